"""Exclusive topology: Jobs of JobSets, and groups of LeaderWorkerSets, that have topology domains to
themselves: in one domain each, and none of it shared.
"""
