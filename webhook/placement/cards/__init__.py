"""GPU cards of one node: which cards serve which containers, and how many pods fit."""
