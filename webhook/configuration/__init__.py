"""The operator's configuration, one for the whole cluster: its keys, its reader, and the file at work."""
