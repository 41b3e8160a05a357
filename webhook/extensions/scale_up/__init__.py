"""Requests to an autoscaler for nodes: which gangs need them, their progress, and the use of new nodes."""
