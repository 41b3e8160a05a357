"""The cluster side of topogate: admission webhook, placement core, sweeper and command line."""
