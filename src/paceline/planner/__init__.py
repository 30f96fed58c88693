"""See ARCHITECTURE.md: the `planner` package."""
