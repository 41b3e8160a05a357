"""The requests of a gang that no node meets, and the cause that excludes most nodes. Pure.

Every reason includes the first: for example a model that no node has, with the models that exist. The second
checks each node for each cause, and is computed on demand.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from webhook.placement import Gang, NodeInfo, PodClass, Rules, Snapshot
from webhook.placement.eligibility import is_synthetic, reason_against
from webhook.placement.snapshot import NodeState
from webhook.scheduling.gpu_counts import node_gpus
from webhook.scheduling.gpus import Counting
from webhook.text import counted, sentence_list

_NAMED: Final = 4
"""The most models, or values of a label, that a sentence names."""
_CLASSES: Final = 3
"""The most pod classes that are checked."""
_OF_ONE: Final = {"are": "is", "lack": "lacks", "have": "has"}
"""The verbs of causes, for one node."""


def impossible(gang: Gang, snapshot: Snapshot, counting: Counting) -> str:
    """A request that no node meets whatever is free there, as a clause; "" if there is none."""
    nodes = [state.node for state in snapshot.nodes.values()]
    classes = _classes(gang)
    for pod_class in classes:
        if found := next(unmet(pod_class, nodes, counting), ""):
            return found
    levels = [gang.required_level, gang.spread.level if gang.spread else None]
    return no_topology(filter(None, levels), classes, snapshot)


def no_topology(levels: Iterable[str], classes: Iterable[PodClass], snapshot: Snapshot) -> str:
    """A clause if a level is requested and no usable node has topology labels; "" otherwise.

    levels: by name or label key. Raises PlacementError for an unknown level.
    """
    nodes = len(snapshot.topology.level_names)
    level = next((each for each in levels if snapshot.topology.level(each) < nodes), None)
    if level is None:
        return ""
    placed = [state.node for state in snapshot.nodes.values() if state.path is not None]
    if any(not _reason(each.rules, node) for each in classes for node in placed):
        return ""
    return f"it asks for domains of the level {level}, and no node that it may use has topology labels"


def unmet(pod_class: PodClass, nodes: list[NodeInfo], counting: Counting) -> Iterator[str]:
    """Each request of the pods that no node meets whatever is free there, as a clause."""
    for key, value in pod_class.rules.selector:
        if not any(node.labels.get(key) == value for node in nodes):
            yield _no_label(key, value, nodes, counting)
    fitting = [node for node in nodes if not _reason(pod_class.rules, node)]
    if fitting:
        yield from _too_much(
            {name: amount for name, amount in pod_class.requests if "/" in name and not is_synthetic(name)},
            fitting,
        )


def most_excluding(gang: Gang, snapshot: Snapshot) -> str:
    """A sentence on the cause that excludes most nodes, and how many it excludes alone; "" for none."""
    for pod_class in _classes(gang):
        all_of, alone = Counter[str](), Counter[str]()
        for state in snapshot.nodes.values():
            causes = list(dict.fromkeys(_causes(pod_class, state)))
            all_of.update(causes)
            alone.update(causes if len(causes) == 1 else ())
        if all_of:
            cause, count = max(all_of.items(), key=lambda item: (item[1], alone[item[0]], item[0]))
            return f"{_nodes(cause, count)}; {_alone(alone[cause], count)}."
    return ""


def _nodes(cause: str, count: int) -> str:
    """How many nodes have a cause, with its verb in the right number."""
    verb, _, rest = cause.partition(" ")
    return f"{counted(count, 'node')} {_OF_ONE[verb] if count == 1 else verb} {rest}"


def _alone(alone: int, count: int) -> str:
    if alone == count == 1:
        return "it is the only reason"
    return f"for {f'all {count}' if alone == count else alone or 'none'} it is the only reason"


def _classes(gang: Gang) -> list[PodClass]:
    return list(dict.fromkeys(member.pod_class for member in gang.members))[:_CLASSES]


def _too_much(requests: Mapping[str, int], nodes: Sequence[NodeInfo]) -> Iterator[str]:
    """Requests above the amount of any node. One clause names all resources that no node has at all."""
    most = {name: max(node.allocatable.get(name, 0) for node in nodes) for name in requests}
    missing = [f"{amount} {name}" for name, amount in requests.items() if amount and not most[name]]
    if missing:
        any_of = "any" if len(missing) == 1 else "any of them"
        yield f"a pod asks for {sentence_list(missing)}, and no node that it may use has {any_of}"
    for name, amount in requests.items():
        if amount > most[name] > 0:
            yield f"a pod asks for {amount} {name}, and no node that it may use has more than {most[name]}"


def _no_label(key: str, value: str, nodes: list[NodeInfo], counting: Counting) -> str:
    if key in counting.model_labels:
        return f"no node has GPU model {value} ({_there(_models(nodes, counting))})"
    values = Counter(node.labels[key] for node in nodes if key in node.labels)
    return f"no node has the label {key}={value} ({_there(values)})"


def _models(nodes: Iterable[NodeInfo], counting: Counting) -> Counter[str]:
    """Nodes by model."""
    return Counter(
        model for node in nodes for model in {each.model for each in node_gpus(node, counting)} if model
    )


def _there(values: Counter[str]) -> str:
    """The existing values, the most frequent first."""
    if not values:
        return "no node has one"
    ordered = sorted(values.items(), key=lambda item: (-item[1], item[0]))
    more = f" and {len(ordered) - _NAMED} more" if len(ordered) > _NAMED else ""
    return "there are: " + ", ".join(f"{name} on {counted(n, 'node')}" for name, n in ordered[:_NAMED]) + more


def _causes(pod_class: PodClass, state: NodeState) -> Iterator[str]:
    """Each cause for which a node takes no such pod now, checked separately, as what such nodes lack."""
    rules, node = pod_class.rules, state.node
    if node.problem:
        yield f"are excluded by {node.problem}"
    for key, value in rules.selector:
        if node.labels.get(key) != value:
            yield f"lack the label {key}={value}"
    for taint in node.taints:
        if reason := _reason(
            Rules(tolerations=rules.tolerations),
            replace(node, taints=(taint,), ready=True, unschedulable=False),
        ):
            yield f"have the {reason}"
    if reason := _reason(replace(rules, selector=()), replace(node, taints=(), problem="")):
        yield f"are excluded by {reason}"
    for name, amount in pod_class.requests:
        if state.free.get(name, 0) < amount:
            yield f"lack free {name}"


def _reason(rules: Rules, node: NodeInfo) -> str:
    return reason_against(rules, node.name, node.labels, node.taints, node.unschedulable, node.ready)
