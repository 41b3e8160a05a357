"""Finds the nodes with devices for pods' claims (Dynamic Resource Allocation). Pure."""
