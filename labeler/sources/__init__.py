"""Where a node's facts come from: one module a source, each failing alone."""
