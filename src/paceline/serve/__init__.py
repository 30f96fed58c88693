"""See ARCHITECTURE.md: the `serve` package."""
