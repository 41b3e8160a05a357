"""What the allocator counts, for Prometheus."""

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

from labeler.version import version

BUILD: Final = Gauge("topogate_build_info", "1; its label is the program's version.", ["version"])
BUILD.labels(version()).set(1)
ALLOCATIONS: Final = Counter(
    "topogate_allocator_allocations",
    "Containers by how their devices were chosen: planned, default, oldest, refused.",
    ["resource", "outcome"],
)
DECISION_SECONDS: Final = Histogram(
    "topogate_allocator_decision_seconds",
    "From the kubelet's question to the answer, waiting included.",
    ["call"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
DEVICES: Final = Gauge(
    "topogate_allocator_devices", "Devices offered to the kubelet.", ["resource", "health"]
)
REGISTERED: Final = Gauge(
    "topogate_allocator_registered", "1 while the allocator is registered with the kubelet.", ["resource"]
)
REGISTRATIONS: Final = Counter(
    "topogate_allocator_registrations", "Registrations with the kubelet.", ["resource"]
)
CONFLICT: Final = Gauge(
    "topogate_allocator_conflict", "1 while another device plugin holds the resource.", ["resource"]
)
EVENTS_DROPPED: Final = Counter(
    "topogate_allocator_events_dropped", "Events that the API server did not accept."
)
