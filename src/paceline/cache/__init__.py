"""Sequence memory as integers: who owns which block, and what is found again."""
