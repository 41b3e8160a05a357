"""Repair of released pods that do not start: found, checked, and deleted so that they are recreated."""
