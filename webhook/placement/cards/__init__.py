"""GPU cards of one node: which of them serve which containers, and how many pods find theirs."""
