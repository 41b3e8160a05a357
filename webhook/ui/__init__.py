"""The page: where gangs run in the topology, which gangs wait and why, and what would fit. It only reads."""
