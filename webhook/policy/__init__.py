"""The operator's policy, for all programs: GPU models, tiers, namespaces."""
