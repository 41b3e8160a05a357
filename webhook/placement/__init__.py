"""The pure placement core: values in, values out; no clock, no randomness, no I/O, no Kubernetes client."""
