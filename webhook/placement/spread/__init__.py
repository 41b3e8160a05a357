"""Identical pods that are spread over the domains of a level."""
