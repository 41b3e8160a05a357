"""Pods that cannot share a node: host ports and required anti-affinity over nodes, as synthetic resources.

Each anti-affinity term, and each host port, is a resource. Every node has SYNTHETIC_CAPACITY of it. A pod
that a term repels takes 1 of it, and a pod that carries the term takes all (or vice versa, see `Conflicts`).
So a carrier excludes all repelled pods, and a repelled pod excludes every carrier, in any order and also
within a gang. Only terms and ports that concern a waiting pod become resources: usually there are none.

Source of the rules: kube-scheduler's plugins InterPodAffinity (see antiaffinity) and NodePorts.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from webhook.kube import objects
from webhook.placement.eligibility import SYNTHETIC_CAPACITY
from webhook.placement.model import NodeInfo, PodClass, Usage, vector
from webhook.scheduling.antiaffinity import AntiAffinityTerm, Index, NamespaceLabels, terms_of
from webhook.scheduling.coarser import stand_ins
from webhook.scheduling.rule_shares import lumps

ANY_ADDRESS: Final = "0.0.0.0"
SPARE: Final = 16
"""The most unneeded resources that are kept, since removing them changes every node."""

LUMP: Final = "anti-affinity and host ports of many pods"

Carried = tuple[str, tuple[AntiAffinityTerm, ...]]
"""A pod's namespace and anti-affinity terms."""


# --- host ports ---------------------------------------------------------------------------------------


def host_ports(pod: objects.Pod) -> dict[str, int]:
    """The amounts of host ports that a pod takes, by resource.

    A pod that listens on every address takes the whole port. A pod on a single address takes 1 of the port,
    and the whole port at that address. Containers and sidecars count, as in kube-scheduler.
    """
    found: dict[str, int] = {}
    sidecars = (each for each in pod.spec.init_containers if each.restart_policy == "Always")
    for container in (*pod.spec.containers, *sidecars):
        for port in container.ports:
            what = f"{port.host_port}/{port.protocol or 'TCP'}"
            address = port.host_ip or ANY_ADDRESS
            if address == ANY_ADDRESS:
                found[_port(what)] = SYNTHETIC_CAPACITY
            else:
                found.setdefault(_port(what), 1)  # a pod does not conflict with itself
                found[_port(f"{address}:{what}")] = SYNTHETIC_CAPACITY
    return found


def _port(what: str) -> str:
    return f"host port {what} in use"


# --- the resources ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Conflicts:
    """The synthetic resources of one pass, and the amounts of nodes and pods.

    loners: names of terms that waiting pods carry but that repel no waiting pod. For these, the repelled pods
    take SYNTHETIC_CAPACITY and the carriers 1, so that waiting carriers can share a node. If there are
    waiting pods of both classes, and some carry the term without being repelled by it, no amounts express the
    rule exactly. Then those carriers cannot share a node either.

    lumped: for terms and ports without a resource of their own, the resource that stands for several of them,
    see `between`. A pod that carries such a term or port takes SYNTHETIC_CAPACITY of it, and a pod that it
    repels takes 1.

    coarser: for terms that are replaced, the coarser term, see stand_ins.

    namespaces: the labels of namespaces for reading terms, see terms_of.
    """

    terms: Mapping[str, AntiAffinityTerm] = field(default_factory=dict)
    ports: frozenset[str] = frozenset()
    loners: frozenset[str] = frozenset()
    lumped: Mapping[str, str] = field(default_factory=dict)
    coarser: Mapping[str, AntiAffinityTerm] = field(default_factory=dict)
    namespaces: NamespaceLabels | None = None
    capacity: Mapping[str, int] = field(init=False)
    """The capacity of every node."""

    def __post_init__(self) -> None:
        """Compute the capacity."""
        names = {self.lumped.get(name, name) for name in (*self.terms, *self.ports)}
        object.__setattr__(self, "capacity", dict.fromkeys(sorted(names), SYNTHETIC_CAPACITY))

    def __bool__(self) -> bool:
        """Whether there is any resource."""
        return bool(self.capacity)

    @cached_property
    def _index(self) -> Index:
        return Index(self.terms.values())

    @property
    def names(self) -> frozenset[str]:
        """The names of all terms and ports."""
        return self.ports | self.terms.keys()

    def takes(self, pod: objects.Pod) -> dict[str, int]:
        """The amounts that a pod takes on its node, or on the node that it will get."""
        ports = host_ports(pod) if self.ports else {}
        taken = {name: amount for name, amount in ports.items() if name in self.ports}
        carried = {name for name in _carried(self._terms(pod), self.coarser) if name in self.terms}
        repelled = {term.name for term in self._index.repelling(pod.metadata.namespace, pod.metadata.labels)}
        for name in carried | repelled:
            kind = repelled if name in self.loners else carried
            taken[name] = SYNTHETIC_CAPACITY if name in kind else 1
        return self._with_lumps(taken, carried | ports.keys()) if self.lumped else taken

    def _with_lumps(self, taken: Mapping[str, int], own: Set[str]) -> dict[str, int]:
        """The amounts with lumped resources merged. own: the ports and terms that the pod carries."""
        found: dict[str, int] = {}
        for name, amount in taken.items():
            lump = self.lumped.get(name)
            if lump is None:
                found[name] = amount
            elif found.get(lump) != SYNTHETIC_CAPACITY:
                found[lump] = SYNTHETIC_CAPACITY if name in own else 1
        return found

    def _terms(self, pod: objects.Pod) -> tuple[AntiAffinityTerm, ...]:
        return terms_of(pod, namespaces=self.namespaces)

    def node(self, _: objects.Node, node: NodeInfo) -> NodeInfo:
        """The node with its capacity of these resources."""
        return replace(node, allocatable={**node.allocatable, **self.capacity})

    def usage(self, pod: objects.Pod, usage: Usage) -> Usage:
        """The pod's usage with its amounts of these resources."""
        # This runs for every pod of the cluster, and most take none of these resources.
        spec = pod.spec
        concerned = self and (
            spec.affinity is not None
            or (self.ports and any(each.ports for each in (*spec.containers, *spec.init_containers)))
            or self._index.may_repel(pod.metadata.namespace)
        )
        taken = self.takes(pod) if concerned else None
        return replace(usage, requests={**usage.requests, **taken}) if taken else usage

    def pod_class(self, pod: objects.Pod, pod_class: PodClass) -> PodClass:
        """The pod's class with its amounts of these resources."""
        taken = self.takes(pod) if self and not pod_class.problem else {}
        if not taken:
            return pod_class
        return replace(pod_class, requests=vector({**dict(pod_class.requests), **taken}))

    def serves(self, needed: "Conflicts") -> bool:
        """Whether these include all needed resources with the same meaning, and few others."""
        return (
            needed.capacity.keys() <= self.capacity.keys()
            and len(self.capacity) <= len(needed.capacity) + SPARE
            and needed.loners == self.loners & needed.terms.keys()
            and all(self.lumped.get(name) == needed.lumped.get(name) for name in needed.names)
            and needed.coarser.items() <= self.coarser.items()
            and needed.namespaces == self.namespaces
        )


NONE: Final = Conflicts()


def between(
    waiting: Iterable[objects.Pod],
    assigned: Iterable[Carried],
    most: int | None = None,
    read: Callable[[objects.Pod], tuple[AntiAffinityTerm, ...]] | None = None,
    there: Callable[[], Iterable[objects.Pod]] = tuple,
    namespaces: NamespaceLabels | None = None,
) -> Conflicts:
    """The conflicts of waiting pods. assigned: namespace and terms of each pod that has a node.

    read, namespaces: see terms_of. there: all pods that do not wait, for bounding the work.

    most: the most resources. Users may write any number of terms, and every node has an amount of each. So
    each namespace whose pods carry terms has a share. Terms beyond it are lumped together, first those by
    which waiting pods ask for nodes of their own. This loses little: a node then takes one such pod whatever
    its term.
    """
    read = read or (lambda pod: terms_of(pod, namespaces=namespaces))
    pods = list(waiting)
    own = [(pod, read(pod)) for pod in pods]
    terms, carriers = _by_name([*((pod.metadata.namespace, each) for pod, each in own), *assigned])
    coarser = stand_ins(terms, carriers, lambda: (*pods, *there()))
    _put_coarser(coarser, terms, carriers)
    meetings = _meetings(own, terms, coarser)
    ports = _ports(pods)
    needed = {name: terms[name] for name in sorted(meetings.repelling | meetings.carrying)}
    coarser = {name: coarse for name, coarse in coarser.items() if coarse.name in needed}
    names = frozenset[str]().union(*(taken for _, taken in ports))
    found = Conflicts(needed, names, meetings.loners, coarser=coarser, namespaces=namespaces)
    if most is not None and len(found.capacity) > most:
        shared = meetings.shared | _shared_ports(ports)
        found = replace(found, lumped=lumps(_wanted(ports, needed, carriers, shared), most, LUMP))
    return found or NONE


def _ports(pods: Iterable[objects.Pod]) -> list[tuple[str, Mapping[str, int]]]:
    """For each pod with host ports its namespace and amounts."""
    return [(pod.metadata.namespace, taken) for pod in pods if (taken := host_ports(pod))]


def _shared_ports(ports: Iterable[tuple[str, Mapping[str, int]]]) -> set[str]:
    """The host ports that some pod takes only in part, less than SYNTHETIC_CAPACITY."""
    return {name for _, taken in ports for name, amount in taken.items() if amount < SYNTHETIC_CAPACITY}


def _by_name(carrying: Iterable[Carried]) -> tuple[dict[str, AntiAffinityTerm], dict[str, set[str]]]:
    """The terms, and the namespaces whose pods carry each."""
    terms: dict[str, AntiAffinityTerm] = {}
    carriers: dict[str, set[str]] = {}
    for namespace, each in carrying:
        for term in each:
            terms[term.name] = term
            carriers.setdefault(term.name, set()).add(namespace)
    return terms, carriers


def _put_coarser(
    coarser: Mapping[str, AntiAffinityTerm],
    terms: dict[str, AntiAffinityTerm],
    carriers: dict[str, set[str]],
) -> None:
    """Replace terms with the coarser ones that stand for them."""
    for name, coarse in coarser.items():
        del terms[name]
        terms[coarse.name] = coarse
        carriers.setdefault(coarse.name, set()).update(carriers.pop(name))


@dataclass(frozen=True)
class _Meetings:
    """Names of terms by their relation to waiting pods.

    carrying: a pod carries the term without being repelled by it. repelling: it repels a pod. partly: it
    repels a pod that does not carry it.
    """

    carrying: frozenset[str]
    repelling: frozenset[str]
    partly: frozenset[str]

    @property
    def loners(self) -> frozenset[str]:
        """The terms by which pods ask for nodes of their own."""
        return self.carrying - self.repelling

    @property
    def shared(self) -> frozenset[str]:
        """The terms that some waiting pod takes only in part, less than SYNTHETIC_CAPACITY."""
        return self.partly | self.loners


def _meetings(
    own: Iterable[tuple[objects.Pod, tuple[AntiAffinityTerm, ...]]],
    terms: Mapping[str, AntiAffinityTerm],
    coarser: Mapping[str, AntiAffinityTerm],
) -> _Meetings:
    carrying: set[str] = set()
    repelling: set[str] = set()
    partly: set[str] = set()
    index = Index(terms.values())
    for pod, each in own if terms else ():
        carried = set(_carried(each, coarser))
        repelled = {term.name for term in index.repelling(pod.metadata.namespace, pod.metadata.labels)}
        carrying |= carried - repelled
        repelling |= repelled
        partly |= repelled - carried
    return _Meetings(frozenset(carrying), frozenset(repelling), frozenset(partly))


def _wanted(
    ports: Iterable[tuple[str, Mapping[str, int]]],
    needed: Iterable[str],
    carriers: Mapping[str, set[str]],
    shared: Container[str],
) -> dict[str, list[str]]:
    """The resources that pods need, by namespace; those that no pod shares with others come last."""
    wanted: dict[str, set[str]] = {}
    for namespace, taken in ports:
        wanted.setdefault(namespace, set()).update(taken)
    for name in needed:
        for namespace in carriers[name]:
            wanted.setdefault(namespace, set()).add(name)
    return {
        namespace: sorted(each, key=lambda name: (name not in shared, name))
        for namespace, each in wanted.items()
    }


def _carried(terms: Iterable[AntiAffinityTerm], coarser: Mapping[str, AntiAffinityTerm]) -> Iterator[str]:
    """The names of the terms that a pod carries, coarser ones for those that are replaced."""
    for term in terms:
        yield coarser.get(term.name, term).name
