"""See ARCHITECTURE.md: the `formats` package."""
