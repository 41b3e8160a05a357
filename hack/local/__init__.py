"""The local control plane: built once, started on loopback, filled with simulated nodes."""
