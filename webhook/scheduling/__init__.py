"""What kube-scheduler heeds, turned into the values that placement computes with."""
