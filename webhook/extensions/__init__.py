"""Optional features of the sweeper. Each is imported only if it is on, and reads only its hooks' input."""
