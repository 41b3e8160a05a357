"""Commands of the repository: test, demo, bench, and the local control plane under them."""
