"""Gangs in slices, asked about in a small cluster."""

from collections.abc import Mapping

import msgspec

from labeler.contract import keys
from webhook.kube.objects import Node
from webhook.placement import Assignment, NoFit, Snapshot, check, place
from webhook.scheduling import convert
from webhook.scheduling.nodes import node_of
from webhook.sweeper.decide.gang_question import question
from webhook.sweeper.observe.gangs import PodGang


def cluster(**slot_counts: int) -> list[Node]:
    """Nodes by name with so many cpus; all in one block, their first letter names the subblock."""
    return [
        msgspec.convert(
            {
                "metadata": {
                    "name": name,
                    "labels": dict(zip(keys.GCE_TOPOLOGY, ("b", name[0], name), strict=True)),
                },
                "status": {"allocatable": {"cpu": str(slots), "pods": "110"}},
            },
            Node,
        )
        for name, slots in slot_counts.items()
    ]


def places_of(gang: PodGang, nodes: list[Node], places: Mapping[str, str]) -> dict[str, str] | str:
    """uid -> node of the pods that have none yet, or why they have no place. places: of the others."""
    waiting = [pod for pod in gang.gated if pod.metadata.uid not in places]
    asked = question(gang, waiting, places).gang
    usage = [
        (places[pod.metadata.uid], convert.usage_of(pod)) for pod in gang.pods if pod.metadata.uid in places
    ]
    snapshot = Snapshot.build([node_of(node) for node in nodes], usage)
    found = place(asked, snapshot)
    if isinstance(found, NoFit):
        return found.sentence
    assert isinstance(found, Assignment)
    assert check(found, asked, snapshot) == []
    return dict(found.nodes)
