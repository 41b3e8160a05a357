"""Container images made of files, without a container engine and without a registry."""
