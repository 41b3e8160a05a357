"""Questions about one pod as the API server returns it. Pure."""

from collections.abc import Iterator
from typing import Any, Final

from labeler.contract import keys

Json = dict[str, Any]

GPUS: Final = "nvidia.com/gpu"
RUN_FOR: Final = "local.topogate.io/run-for"
"""Annotation: for how long a simulated pod runs, "3s"."""
SIZE: Final = "local.topogate.io/size"
"""Label: the number of pods of a gang that needs all of them."""


def name_of(pod: Json) -> str:
    """NAMESPACE/NAME."""
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def is_finished(pod: Json) -> bool:
    """Whether it takes nothing of its node any more."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def is_terminating(pod: Json) -> bool:
    """Whether it has been deleted, and is still there."""
    return "deletionTimestamp" in pod["metadata"]


def is_gated(pod: Json) -> bool:
    """Whether it has a gate of topogate."""
    gates = pod["spec"].get("schedulingGates", ())
    return any(gate["name"].startswith(keys.GATE_PREFIX) for gate in gates)


def bound_node(pod: Json) -> str:
    """The node to which kube-scheduler has bound it, or ""."""
    return str(pod["spec"].get("nodeName", ""))


def pinned_node(pod: Json) -> str:
    """The node to which a release has pinned it, or ""."""
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms", ()):
        for field in term.get("matchFields", ()):
            return str(field["values"][0])
    return ""


def annotation(pod: Json, key: str) -> str:
    """The value of an annotation, or ""."""
    return str((pod["metadata"].get("annotations") or {}).get(key, ""))


def label(pod: Json, key: str) -> str:
    """The value of a label, or ""."""
    return str((pod["metadata"].get("labels") or {}).get(key, ""))


def gpus(pod: Json) -> int:
    """How many whole GPUs its containers ask for."""
    return sum(int(each.get(GPUS, 0)) for each in _limits(pod))


def millicores(pod: Json) -> int:
    """How many thousandths of an Intel card its containers ask for."""
    texts = [str(each.get(keys.MILLICORES, 0)) for each in _limits(pod)]
    return sum(int(text[:-1]) * 1000 if text.endswith("k") else int(text) for text in texts)


def cards(pod: Json) -> list[str]:
    """The cards that its annotation names, such as card0."""
    text = annotation(pod, keys.GAS_CARDS_ANNOTATION)
    return [card for card in text.replace("|", ",").split(",") if card]


def _limits(pod: Json) -> Iterator[Json]:
    return (container.get("resources", {}).get("limits", {}) for container in pod["spec"]["containers"])
