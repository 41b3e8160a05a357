"""Node health: nodes on which pods fail are excluded or avoided, and some free ones are kept as spares."""
