"""Who makes the pods of gangs, how many of them, and in which stages and roles. Pure."""
