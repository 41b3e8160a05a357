"""What the operator allows and wants, for every program that must know: GPU models, tiers, namespaces."""
