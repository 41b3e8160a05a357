"""What benchmarks see of a cluster while they load it."""
