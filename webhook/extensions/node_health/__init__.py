"""Node health: nodes where pods fail are excluded or avoided, and some free nodes are kept as spares."""
