"""See ARCHITECTURE.md: the `backends.native` package."""
