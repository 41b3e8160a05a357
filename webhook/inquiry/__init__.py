"""Questions about the cluster, answered from one reading of it: why a gang waits, where one would be placed.

Nothing here writes. The command line and the page print the same answers.
"""
