"""Gangs of unlike pods: exact searches within a budget, and rules for what is beyond it."""
