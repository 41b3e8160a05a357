"""The node side of topogate: what a node is and where it sits, written as labels of its own Node."""
