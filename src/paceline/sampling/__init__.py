"""See ARCHITECTURE.md: the `sampling` package."""
