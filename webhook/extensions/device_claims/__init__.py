"""GPUs by claims: what nodes have of devices, and what pods ask for of them."""
