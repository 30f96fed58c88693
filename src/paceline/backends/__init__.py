"""See ARCHITECTURE.md: the `backends` package."""
