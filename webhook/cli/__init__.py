"""The command line: topogate, also as kubectl topogate."""
