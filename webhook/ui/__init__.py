"""The page: where gangs stand in the network tree, what waits and why, and what would fit. It only reads."""
