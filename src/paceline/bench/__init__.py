"""See ARCHITECTURE.md: the `bench` package."""
