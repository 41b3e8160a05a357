"""The rows of `hack/bench placement`: instances, what is measured on them, and rivals on the same."""
