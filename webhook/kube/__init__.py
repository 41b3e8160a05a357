"""The only code of the cluster side that calls the API server."""
