"""See ARCHITECTURE.md: the `models` package."""
