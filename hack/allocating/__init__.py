"""The allocator against the kubelet's real device manager, without the rest of a kubelet."""
