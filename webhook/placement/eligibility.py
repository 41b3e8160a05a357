"""Whether a pod can run on a node, whatever is free there: the rules of kube-scheduler's filters.

Sources: k8s.io/component-helpers/scheduling/corev1 (nodeaffinity, toleration) and the plugins NodeAffinity,
NodeUnschedulable, TaintToleration and, for volumes, VolumeBinding and VolumeZone. The check of readiness is
ours: kube-scheduler knows it only through taints.
"""

import re
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Final

_INTEGER: Final = re.compile(r"([+-]?)0*([0-9]{1,19})")
_STRICT_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]{0,18}")
"""Texts that may be 64-bit integers: Python raises ValueError for one of many thousand digits."""
_INT64: Final = range(-(2**63), 2**63)
NAME_FIELD: Final = "metadata.name"
_FEW: Final = 8
"""Up to so many values, comparing one by one is as fast as a set."""
UNSCHEDULABLE_TAINT: Final = "node.kubernetes.io/unschedulable"
_BLOCKING_EFFECTS: Final = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class Taint:
    """A node's taint."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"

    def __str__(self) -> str:
        """As kubectl writes it: key=value:effect."""
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


@dataclass(frozen=True, slots=True)
class Toleration:
    """A pod's toleration. An empty operator means Equal, an empty effect means every effect."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class Requirement:
    """A condition on one label or field: In, NotIn, Exists, DoesNotExist, Gt, Lt.

    among: the values as a container for look-ups; users may list any number of values.
    """

    key: str
    operator: str
    values: tuple[str, ...] = ()
    among: Container[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        few = len(self.values) <= _FEW
        object.__setattr__(self, "among", self.values if few else frozenset(self.values))


@dataclass(frozen=True, slots=True)
class Term:
    """Requirements on labels (expressions) and fields that must all hold; an empty term matches nothing."""

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()


@dataclass(frozen=True, slots=True)
class Rules:
    """The node rules of a pod: nodeSelector, required node affinity (None: not set), tolerations, volumes.

    volumes: for each requirement of its volumes, the terms; one of them must match the node. claims: the same
    for the devices that are allocated to its claims. exclusions: for each other rule, its name and the nodes
    that it excludes.
    """

    selector: tuple[tuple[str, str], ...] = ()
    affinity: tuple[Term, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    volumes: tuple[tuple[Term, ...], ...] = ()
    exclusions: tuple[tuple[str, frozenset[str]], ...] = ()
    claims: tuple[tuple[Term, ...], ...] = ()

    @property
    def has_preferences(self) -> bool:
        """Whether any rule other than tolerations is set."""
        preferences = self.selector or self.volumes or self.claims or self.exclusions
        return bool(preferences) or self.affinity is not None

    @property
    def size(self) -> int:
        """How many conditions of its pod's author a node may be compared with; an empty term is one."""
        terms = (len(term.expressions) + len(term.fields) for term in self.affinity or ())
        return len(self.selector) + len(self.tolerations) + sum(max(1, each) for each in terms)


LabelValues = tuple[tuple[str, tuple[str, ...]], ...]
"""Keys of node labels, each with the values of which a node must have one; sorted."""


def label_values(rules: Rules) -> LabelValues:
    """The labels that a node must have by the selector, or by each term of the required node affinity."""
    found = {key: {value} for key, value in rules.selector}
    terms = [_values_by_key(term) for term in rules.affinity or ()]
    for key in set.intersection(*map(set, terms)) if terms else ():
        values = set().union(*[term[key] for term in terms])
        found[key] = found.get(key, values) & values
    return tuple(sorted((key, tuple(sorted(values))) for key, values in found.items()))


def _values_by_key(term: Term) -> dict[str, set[str]]:
    """For each label of which a term requires one of some values, these values."""
    found: dict[str, set[str]] = {}
    for each in term.expressions:
        if each.operator == "In":
            found[each.key] = found.get(each.key, {*each.values}) & {*each.values}
    return found


def reason_against(
    rules: Rules,
    name: str,
    labels: Mapping[str, str],
    taints: tuple[Taint, ...],
    unschedulable: bool,
    ready: bool,
) -> str:
    """Why such a pod cannot run on a node, in a few words; "" if it can."""
    against = _rule_against(rules, name, labels)
    if against:
        return against
    if unschedulable and not tolerated(Taint(UNSCHEDULABLE_TAINT), rules.tolerations):
        return "unschedulable"
    for taint in taints:
        if taint.effect in _BLOCKING_EFFECTS and not tolerated(taint, rules.tolerations):
            return f'taint "{taint}"'
    return "" if ready else "not ready"


def _rule_against(rules: Rules, name: str, labels: Mapping[str, str]) -> str:
    """The first rule of the pod that the node does not meet, in a few words; "" if there is none."""
    if unmet := next((key for key, value in rules.selector if labels.get(key) != value), ""):
        return "nodeSelector" if unmet in labels else f'no label "{unmet}"'
    if rules.affinity is not None and not _one_of_each_holds((rules.affinity,), name, labels):
        return "node affinity"
    if not _one_of_each_holds(rules.volumes, name, labels):
        return "volume node affinity"
    if not _one_of_each_holds(rules.claims, name, labels):
        return "devices given to its claims"
    for rule, nodes in rules.exclusions:
        if name in nodes:
            return rule
    return ""


def _one_of_each_holds(each: tuple[tuple[Term, ...], ...], name: str, labels: Mapping[str, str]) -> bool:
    for terms in each:  # explicit loops, since this runs for every node: generators take twice as long
        for term in terms:
            if term_holds(term, name, labels):
                break
        else:
            return False
    return True


def tolerated(taint: Taint, tolerations: tuple[Toleration, ...]) -> bool:
    """Whether one of the tolerations covers the taint."""
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case "Exists":
            return True
        case "Lt" | "Gt":
            return _covers_number(toleration, taint)
        case _:
            return False


def _covers_number(toleration: Toleration, taint: Taint) -> bool:
    if not (_is_int64(toleration.value) and _is_int64(taint.value)):
        return False
    bound, value = int(toleration.value), int(taint.value)
    return value < bound if toleration.operator == "Lt" else value > bound


def _is_int64(text: str) -> bool:
    return _STRICT_INTEGER.fullmatch(text) is not None and int(text) in _INT64


def term_holds(term: Term, name: str, labels: Mapping[str, str]) -> bool:
    """Whether a node meets a term; an empty term matches no node."""
    if not term.expressions and not term.fields:
        return False
    for requirement in term.expressions:
        if not label_holds(requirement, labels):
            return False
    return not term.fields or all(_field_holds(requirement, name) for requirement in term.fields)


def label_holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """Whether labels meet a requirement; an unknown operator never holds."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.among
        case "NotIn":
            return value is None or value not in requirement.among
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return value is not None and _compares(value, requirement)
        case _:
            return False


def _compares(value: str, requirement: Requirement) -> bool:
    if len(requirement.values) != 1:
        return False
    pair = _INTEGER.fullmatch(value), _INTEGER.fullmatch(requirement.values[0])
    if pair[0] is None or pair[1] is None:
        return False
    number, limit = (int(match[1] + match[2]) for match in pair if match)
    if number not in _INT64 or limit not in _INT64:
        return False
    return number > limit if requirement.operator == "Gt" else number < limit


def _field_holds(requirement: Requirement, name: str) -> bool:
    """Whether a node meets a field requirement: only metadata.name, with In or NotIn and one value."""
    if requirement.key != NAME_FIELD or len(requirement.values) != 1:
        return False
    same = requirement.values[0] == name
    return same if requirement.operator == "In" else requirement.operator == "NotIn" and not same


SYNTHETIC_CAPACITY: Final = 1_000_000
"""A node's capacity for a synthetic resource: more than the pods on any node, each of which takes 1."""


def is_synthetic(resource: str) -> bool:
    """Whether a resource stands for a rule between pods: its name has a blank, as no real resource has."""
    return " " in resource
