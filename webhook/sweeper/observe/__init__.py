"""Observation: live copies of the cluster, the view that one pass reads, and the gangs in it."""
