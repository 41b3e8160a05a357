"""Asking an autoscaler for nodes: what a gang wants, what becomes of its request, and the writes."""
