"""Gangs of identical pods: a knapsack that is exact and bounded by a polynomial at any size."""
