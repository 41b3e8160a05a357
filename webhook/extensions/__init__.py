"""Optional features of the sweeper: each is imported where it is on, and sees what its hooks are given."""
