"""Topology annotations of other schedulers, which topogate does not read. Pure."""

from collections.abc import Iterator, Mapping

from labeler.contract import keys
from webhook.workloads import marks


def foreign_requests(annotations: Mapping[str, str]) -> Iterator[str]:
    """A warning for each of them, which names topogate's own annotation."""
    for key in sorted(marks.TOPOLOGY_REQUESTS.keys() & annotations.keys()):
        ours = marks.TOPOLOGY_REQUESTS[key]
        if key.startswith(marks.VOLCANO_TOPOLOGY) and annotations.get(marks.VOLCANO_TOPOLOGY_MODE) == "soft":
            ours = keys.PREFERRED_TOPOLOGY_ANNOTATION
        yield f"{key} is not read: write {ours}"
