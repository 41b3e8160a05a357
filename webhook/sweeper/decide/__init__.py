"""What is to be done: which gang is complete, where it goes, and what it keeps while it waits."""
