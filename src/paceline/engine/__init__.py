"""See ARCHITECTURE.md: the `engine` package."""
