"""Fair order: among gangs of one priority, those of accounts with less recent GPU time come first.

It is on if the policy has fairOrder.
"""
