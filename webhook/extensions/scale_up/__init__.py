"""Asking an autoscaler for nodes: who asks, what becomes of the request, and for whom new nodes are."""
