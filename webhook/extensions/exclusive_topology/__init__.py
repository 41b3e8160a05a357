"""Exclusive topology: each Job of a JobSet, or group of a LeaderWorkerSet, has a domain to itself."""
