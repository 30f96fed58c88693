"""`paceline bench compare`: this engine and another one on the same machine, in turns. See docs/guides/compare.md."""
