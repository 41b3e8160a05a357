"""What one version of a pod says of where it is, or is sent to, and of what it takes there. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from labeler.contract import keys

GPUS: Final = "nvidia.com/gpu"
RUN_FOR: Final = "local.topogate.io/run-for"
"""Annotation: for how long a simulated pod runs, "3s"."""

Json = dict[str, Any]


@dataclass
class Take:
    """One unfinished pod: where it is or is sent to, and what it takes there."""

    name: str
    node: str
    is_bound: bool
    priority: int
    gpus: int
    cards: tuple[str, ...]
    millicores: int
    is_ours: bool


def take_of(pod: Json, node: str, *, is_ours: bool) -> Take:
    """What the pod takes of a node."""
    metadata, spec = pod["metadata"], pod["spec"]
    limits = [container.get("resources", {}).get("limits", {}) for container in spec["containers"]]
    cards = (metadata.get("annotations") or {}).get(keys.GAS_CARDS_ANNOTATION, "")
    return Take(
        name=f"{metadata['namespace']}/{metadata['name']}",
        node=node,
        is_bound=bool(spec.get("nodeName")),
        priority=spec.get("priority", 0),
        gpus=sum(int(each.get(GPUS, 0)) for each in limits),
        cards=tuple(filter(None, cards.replace("|", ",").split(","))),
        millicores=sum(_millicores(each.get(keys.MILLICORES, 0)) for each in limits),
        is_ours=is_ours,
    )


def pinned_to(pod: Json) -> str:
    """The node that a release has pinned a pod to, "" for one not placed by topogate."""
    for term in _terms(pod):
        for wanted in term.get("matchFields", []):
            return str(wanted["values"][0])
    return ""


def _terms(pod: Json) -> list[Json]:
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    return list(required.get("nodeSelectorTerms", []))


def has_ended(pod: Json) -> bool:
    """Whether it takes nothing any more."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def is_gated(spec: Json) -> bool:
    """Whether a gate of ours holds it; what others hold may have been released by us all the same."""
    return any(gate["name"].startswith(keys.GATE_PREFIX) for gate in spec.get("schedulingGates", []))


def listed(takes: Iterable[Take]) -> str:
    """These pods in a sentence."""
    return ", ".join(
        f"{take.name} ({take.gpus or take.cards}{'' if take.is_bound else ', not bound'})" for take in takes
    )


def preempted(pod: Json) -> bool:
    """Whether others of higher priority have made it go, by what Kubernetes says of it."""
    conditions: list[Mapping[str, str]] = pod.get("status", {}).get("conditions", [])
    return any(each["type"] == "DisruptionTarget" and each.get("reason") in _PREEMPTED for each in conditions)


_PREEMPTED: Final = frozenset({"PreemptionByScheduler", "EvictionByEvictionAPI"})


def _millicores(amount: str | int) -> int:
    text = str(amount)
    return int(text[:-1]) * 1000 if text.endswith("k") else int(text)
