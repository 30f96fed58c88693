"""See ARCHITECTURE.md: the `cli` package."""
