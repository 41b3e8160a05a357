"""The rows of `hack/bench placement`: instances, and what is measured on them."""
