"""hack/soak: hundreds of gangs and everything that can go wrong, and what must hold all the same."""
