"""Drafts: tokens that are guessed first and verified together."""
