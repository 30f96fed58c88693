"""See ARCHITECTURE.md: the `observe` package."""
