"""Admission: a review in, a JSON Patch out; decided without any call to the API server."""
