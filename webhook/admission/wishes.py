"""Requests that can never be placed, told to the user while the pod is created.

None of these refuses a pod: a warning costs nothing if we are wrong. The rules on Intel GPUs are those of
webhook.scheduling.gpu_wishes, which the sweeper goes by.
"""

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from itertools import pairwise
from typing import Final

from labeler.contract import keys
from webhook.admission.review import NewContainer, NewPod, NewTerm
from webhook.kube.struct import Quantities
from webhook.policy.values import Policy
from webhook.scheduling import gpu_wishes
from webhook.scheduling.gpu_wishes import ContainerKind
from webhook.text import one_line, quote, sentence_list

LONGEST_WARNING: Final = 120
"""What the API documentation recommends as the length of one warning."""
MOST_WARNINGS: Final = 16

_OURS: Final = "topogate.io/"
_KNOWN: Final = frozenset({*keys.WISH_ANNOTATIONS, keys.INJECT_ANNOTATION})
"""Annotations under our own name that pods may have."""
_MOST_UNKNOWN: Final = 4
"""Unknown keys of one pod that are named."""
_POSITIVE: Final = re.compile(r"[1-9][0-9]{0,8}")
_FOREIGN: Final = {
    "kueue.x-k8s.io/podset-required-topology": keys.REQUIRED_TOPOLOGY_ANNOTATION,
    "kueue.x-k8s.io/podset-preferred-topology": keys.PREFERRED_TOPOLOGY_ANNOTATION,
    "kueue.x-k8s.io/podset-slice-required-topology": keys.SLICE_TOPOLOGY_ANNOTATION,
    "kueue.x-k8s.io/podset-slice-size": keys.SLICE_SIZE_ANNOTATION,
    "kai.scheduler/topology-required-placement": keys.REQUIRED_TOPOLOGY_ANNOTATION,
    "kai.scheduler/topology-preferred-placement": keys.PREFERRED_TOPOLOGY_ANNOTATION,
}
"""Annotations of Kueue and KAI that say what ours say; their values are node labels, which ours take too."""
_KUEUE_GATE: Final = "kueue.x-k8s.io/topology"
"""On pods of which Kueue's topology-aware scheduling chooses the nodes."""
_LONGEST_KEY: Final = 45
"""Characters of an unknown key that are shown."""
_NODE_SHOWN: Final = 38
"""Characters of a node's name, so that the warning is not cut."""
_MOST_LEVELS: Final = 8
"""Levels of one annotation that are looked at."""
LEVEL_KEYS: Final = frozenset(
    ("node", keys.HOSTNAME_LABEL, *(key for x in keys.TOPOLOGY_FAMILIES for key in x))
)
"""What the sweeper takes for a level beside the levels' names."""


def asked_of(container: NewContainer) -> Quantities:
    """What a container asks for: its requests, and limits for what it requests nothing of."""
    resources = container.resources
    if resources is None:
        return {}
    limits, requests = resources.limits, resources.requests
    return {**limits, **requests} if limits and requests else limits or requests or {}


def gpu_resources(pod: NewPod, policy: Policy) -> tuple[str, ...]:
    """Names of the GPU resources that any container or init container asks some of, in order."""
    found: dict[str, None] = {}
    for container in pod.all_containers:
        for resource, quantity in asked_of(container).items():
            if policy.is_gpu_resource(resource) and gpu_wishes.whole(quantity) != 0:
                found[resource] = None
    return tuple(found)


def warnings(pod: NewPod, policy: Policy) -> list[str]:
    """Everything about a pod's wishes that its author should hear."""
    found: list[str] = []
    if any(key.startswith(_OURS) for key in pod.annotations):
        found += [*_inject(pod.annotations), *_gang(pod.annotations)]
        found += [*_topology(pod.annotations, policy), *_slices(pod.annotations, policy)]
        found += [*_spread(pod.annotations, policy), *_unknown(pod.annotations)]
    found += [*_labels(pod.metadata.labels or {}), *_foreign(pod)]
    found += _pin(pod, policy)
    if not _concerns_intel(pod):  # most pods; and a hostile one may have a million containers
        return found
    asking = [
        gpu_wishes.Asking(each.name, gpu_wishes.intel(asked_of(each)), kind) for each, kind in _all(pod)
    ]
    return found + [fault.text for fault in gpu_wishes.faults(asking, pod.annotations)]


def _unknown(annotations: Mapping[str, str]) -> Iterator[str]:
    """Keys under our name that mean nothing: most are misspelled."""
    unknown = sorted(key for key in annotations if key.startswith(_OURS) and key not in _KNOWN)
    for key in unknown[:_MOST_UNKNOWN]:
        name = key.removeprefix(_OURS)[:_LONGEST_KEY]
        near = get_close_matches(name, [each.removeprefix(_OURS) for each in sorted(_KNOWN)], n=1)
        hint = f"did you mean {_OURS}{near[0]}?" if near else "topogate knows no such annotation"
        yield f"{quote(key, _LONGEST_KEY)} has no effect; {hint}"


def _foreign(pod: NewPod) -> Iterator[str]:
    """Topology requests in other schedulers' words, which only these read.

    Where Kueue gates the pod itself it goes first: it chooses a domain, writes it into the nodeSelector, and
    takes its gate away; the pod is placed inside then.
    """
    if any(gate.name == _KUEUE_GATE for gate in pod.spec.scheduling_gates or ()):
        yield f"gate {_KUEUE_GATE}: Kueue chooses the nodes first; topogate places the pod on these"
        return
    for key in sorted(_FOREIGN.keys() & pod.annotations.keys()):
        yield f"{key} is not read: write {_FOREIGN[key]}"


def _labels(labels: Mapping[str, str]) -> Iterator[str]:
    """Wishes that stand among the labels, where nobody reads them."""
    for key in sorted(_KNOWN.intersection(labels)):
        yield f"label {key} has no effect: write it as an annotation"


def _concerns_intel(pod: NewPod) -> bool:
    """Whether a pod says anything that the rules on Intel GPUs are about."""
    if any(key.startswith("gas-") for key in pod.annotations):
        return True
    return any(name.startswith(keys.INTEL_PREFIX) for each in pod.all_containers for name in asked_of(each))


def _all(pod: NewPod) -> Iterator[tuple[NewContainer, ContainerKind]]:
    """Each container and what it is to the pod, in the order in which they run."""
    for each in pod.spec.init_containers or ():
        yield each, ContainerKind.SIDECAR if each.restart_policy == "Always" else ContainerKind.INIT
    yield from ((each, ContainerKind.CONTAINER) for each in pod.spec.containers or ())


def shown(found: list[str]) -> tuple[str, ...]:
    """Warnings as the API server passes them on: one line each, not too long, not too many."""
    if not found:
        return ()
    if len(found) > MOST_WARNINGS:
        rest = len(found) - MOST_WARNINGS + 1
        found = [*found[: MOST_WARNINGS - 1], f"topogate: and {rest} more warnings"]
    lines = (one_line(line) for line in found)
    return tuple(x if len(x) <= LONGEST_WARNING else x[: LONGEST_WARNING - 3] + "..." for x in lines)


def _pin(pod: NewPod, policy: Policy) -> Iterator[str]:
    """Of a GPU pod that only one node may run, by the field that a release writes too: it may be a copy.

    Whose the field is nobody can tell from the pod; a copy of a placed one (kubectl debug --copy-to, a backup
    that is restored) waits for that node, which the first one fills.
    """
    pins = {tuple(_names(term)) for term in pod.required_terms}
    if len(pins) != 1 or len(names := pins.pop()) != 1:
        return
    if gpu_resources(pod, policy) or pod.spec.resource_claims:
        node = quote(names[0], _NODE_SHOWN)
        yield f"spec.affinity.nodeAffinity matchFields: only {node} fits; remove it from a copied pod"


def _names(term: NewTerm) -> Iterator[str]:
    """The nodes that a term names by the field metadata.name."""
    for each in term.match_fields or ():
        if (each.key, each.operator) == ("metadata.name", "In"):
            yield from each.values or ()


def _inject(annotations: Mapping[str, str]) -> Iterator[str]:
    value = annotations.get(keys.INJECT_ANNOTATION)
    if value is not None and value != "true":
        yield f'{keys.INJECT_ANNOTATION}: {quote(value)} has no effect; to opt out write "{keys.INJECT_NO}"'


def _gang(annotations: Mapping[str, str]) -> Iterator[str]:
    for key in (keys.GANG_SIZE_ANNOTATION, keys.GANG_MIN_SIZE_ANNOTATION):
        size = annotations.get(key)
        if size is not None and not _POSITIVE.fullmatch(size):
            yield f"{key}: {quote(size)} is no positive whole number"
    least, most = (
        annotations.get(key, "") for key in (keys.GANG_MIN_SIZE_ANNOTATION, keys.GANG_SIZE_ANNOTATION)
    )
    if _POSITIVE.fullmatch(least) and _POSITIVE.fullmatch(most) and int(least) > int(most):
        yield f"{keys.GANG_MIN_SIZE_ANNOTATION} {least} is more than {keys.GANG_SIZE_ANNOTATION} {most}"
    yield from _gang_name(annotations)


def _gang_name(annotations: Mapping[str, str]) -> Iterator[str]:
    """Pods that no controller holds together name their gang, and how many it has."""
    name = annotations.get(keys.GANG_ANNOTATION)
    if name == "":
        yield f"{keys.GANG_ANNOTATION} is empty: name the gang"
    elif name is not None and keys.GANG_SIZE_ANNOTATION not in annotations:
        yield f"{keys.GANG_ANNOTATION} needs {keys.GANG_SIZE_ANNOTATION}: how many pods belong together"


def _topology(annotations: Mapping[str, str], policy: Policy) -> Iterator[str]:
    level = annotations.get(keys.REQUIRED_TOPOLOGY_ANNOTATION)
    if level is not None:
        yield from _level(keys.REQUIRED_TOPOLOGY_ANNOTATION, level, policy)
    yield from _preferred(annotations, policy)
    several = annotations.get(keys.SLICE_TOPOLOGY_ANNOTATION)
    for level in several.split(",", _MOST_LEVELS) if several is not None else ():
        yield from _level(keys.SLICE_TOPOLOGY_ANNOTATION, level, policy)


def _preferred(annotations: Mapping[str, str], policy: Policy) -> Iterator[str]:
    """Levels of which one domain takes the pods if it can: coarsest first, below the required one."""
    key = keys.PREFERRED_TOPOLOGY_ANNOTATION
    value = annotations.get(key)
    if value is None:
        return
    names, levels = value.split(",", _MOST_LEVELS), policy.topology_levels
    for name in names:
        yield from _level(key, name, policy)
    if len(set(names)) < len(names):
        yield f"{key} {quote(value)} names a level twice"
    numbers = [levels.index(name) for name in names if name in levels]
    if numbers != sorted(numbers):
        yield f"{key} {quote(value)}: write the coarsest level first"
    top = annotations.get(keys.REQUIRED_TOPOLOGY_ANNOTATION)
    if top in levels and any(number <= levels.index(top) for number in numbers):
        yield f"{key} {levels[min(numbers)]} has no effect: it is not below the required {top}"


def _level(key: str, level: str, policy: Policy) -> Iterator[str]:
    if level not in policy.topology_levels and level not in LEVEL_KEYS:
        yield f"{key}: no level {quote(level)}; known: {sentence_list(policy.topology_levels)}"


def _slices(annotations: Mapping[str, str], policy: Policy) -> Iterator[str]:
    """Runs of consecutive ranks, each in one domain of a level: as many sizes as levels, coarsest first."""
    levels = annotations.get(keys.SLICE_TOPOLOGY_ANNOTATION)
    sizes = annotations.get(keys.SLICE_SIZE_ANNOTATION)
    if levels is not None and sizes is None:
        yield f"{keys.SLICE_TOPOLOGY_ANNOTATION} needs {keys.SLICE_SIZE_ANNOTATION}: the pods of a slice"
    if sizes is None:
        return
    if levels is None:
        yield f"{keys.SLICE_SIZE_ANNOTATION} needs {keys.SLICE_TOPOLOGY_ANNOTATION}: the level of a slice"
    each = sizes.split(",", _MOST_LEVELS)
    wrong = [size for size in each if not _POSITIVE.fullmatch(size)]
    if wrong:
        yield f"{keys.SLICE_SIZE_ANNOTATION}: {quote(wrong[0])} is no positive whole number"
        return
    if levels is not None and levels.count(",") != sizes.count(","):
        both = f"{keys.SLICE_TOPOLOGY_ANNOTATION} and {keys.SLICE_SIZE_ANNOTATION}"
        yield f"{both} need one size for each level"
    if any(int(larger) % int(size) or larger == size for larger, size in pairwise(each)):
        yield f"{keys.SLICE_SIZE_ANNOTATION} {sizes}: each size is a multiple of the next"
    gang, size = annotations.get(keys.GANG_SIZE_ANNOTATION, ""), each[0]
    if _POSITIVE.fullmatch(gang) and int(gang) % int(size):
        yield f"{keys.GANG_SIZE_ANNOTATION} {gang} is no multiple of {keys.SLICE_SIZE_ANNOTATION} {size}"
    top, names = annotations.get(keys.REQUIRED_TOPOLOGY_ANNOTATION), policy.topology_levels
    level = (levels or "").partition(",")[0]
    if level in names and top in names and names.index(level) < names.index(top):
        yield f"{keys.SLICE_TOPOLOGY_ANNOTATION} {level} lies above {keys.REQUIRED_TOPOLOGY_ANNOTATION} {top}"


def _spread(annotations: Mapping[str, str], policy: Policy) -> Iterator[str]:
    """Pods evenly over the domains of a level, or at most so many in each."""
    key = keys.SPREAD_TOPOLOGY_ANNOTATION
    value = annotations.get(key)
    if value is None:
        return
    level, colon, most = value.partition(":")
    yield from _level(key, level, policy)
    if colon and not _POSITIVE.fullmatch(most):
        yield f"{key}: after the colon {quote(most)} is no positive whole number"
    if keys.SLICE_TOPOLOGY_ANNOTATION in annotations:
        yield f"{key} excludes {keys.SLICE_TOPOLOGY_ANNOTATION}"
    top, levels = annotations.get(keys.REQUIRED_TOPOLOGY_ANNOTATION), policy.topology_levels
    if level in levels and top in levels and levels.index(level) <= levels.index(top):
        yield f"{key} {level} is not below {keys.REQUIRED_TOPOLOGY_ANNOTATION} {top}"
