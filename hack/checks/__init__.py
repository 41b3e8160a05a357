"""Checks of the code that no tool makes as it is: what is too complex, and how large it is."""
