"""Mutation testing: whether a test fails when the code is wrong in one place (DeMillo et al., 1978)."""
