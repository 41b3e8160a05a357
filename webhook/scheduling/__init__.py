"""Turns the scheduling rules that kube-scheduler enforces into the input of placement."""
