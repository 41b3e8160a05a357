"""The controllers that create the pods of gangs: how many pods, in which stages and roles. Pure."""
