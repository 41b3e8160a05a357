"""Decisions: which gang is complete, where it is placed, and what is reserved while it waits."""
