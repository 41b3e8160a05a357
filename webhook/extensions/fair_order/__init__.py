"""Fair order: among gangs of one priority, those come first whose account has used less GPU time of late.

On where the policy has fairOrder. Of the project its core (use, turns, book, record) knows the policy alone.
"""
