"""See ARCHITECTURE.md: the `cache` package."""
