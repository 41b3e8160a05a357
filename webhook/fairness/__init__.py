"""Whose turn it is among gangs of one priority, by decayed use. Pure: the time is passed in."""
