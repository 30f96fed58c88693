"""See ARCHITECTURE.md: the `text` package."""
