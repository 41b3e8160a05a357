"""Pods that may not share a node: host ports, and required anti-affinity over nodes, as synthetic resources.

Each anti-affinity term, and each host port, is a resource of which every node has SYNTHETIC_CAPACITY. Of a
term, a pod that it repels takes 1 and a pod that carries it takes all of it (or the other way round, see
`Conflicts`), so that one carrier shuts all repelled pods out and one repelled pod shuts every carrier out,
whoever came first and whether it is of the same gang. Only what concerns a waiting pod becomes a resource:
usually nothing does.

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
"""Resources that are kept although nobody needs them any more: taking them away changes every node."""

LUMP: Final = "anti-affinity and host ports of many pods"

Carried = tuple[str, tuple[AntiAffinityTerm, ...]]
"""The namespace of a pod, and its terms."""


# --- host ports ---------------------------------------------------------------------------------------


def host_ports(pod: objects.Pod) -> dict[str, int]:
    """What a pod takes of host ports, by resource.

    A pod at every address takes the whole port, one at a single address takes a little of the port and the
    whole of the port at that address. Containers and sidecars count, as for kube-scheduler.
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
                found.setdefault(_port(what), 1)  # a pod does not stand in its own way
                found[_port(f"{address}:{what}")] = SYNTHETIC_CAPACITY
    return found


def _port(what: str) -> str:
    return f"host port {what} in use"


# --- all of it ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Conflicts:
    """The synthetic resources of one moment, and what nodes have and pods take of them.

    loners: names of terms by which some waiting pods repel others but none is repelled. Of such a term the
    repelled pods take SYNTHETIC_CAPACITY and the carriers 1, which leaves the waiting carriers free to be
    together. Where waiting pods are of both classes, and some carry the term that does not repel them, no
    amounts say exactly what is allowed; then those carriers may not be together either.

    lumped: by name of terms and ports for which there is no resource of their own, the one that stands for
    them and others, see `between`. Of that, who carries such a term or port takes SYNTHETIC_CAPACITY, whom
    it repels 1.

    coarser: by name of terms that are not heeded themselves, the term that stands for them, see stand_ins.

    namespaces: by which terms are read, see terms_of.
    """

    terms: Mapping[str, AntiAffinityTerm] = field(default_factory=dict)
    ports: frozenset[str] = frozenset()
    loners: frozenset[str] = frozenset()
    lumped: Mapping[str, str] = field(default_factory=dict)
    coarser: Mapping[str, AntiAffinityTerm] = field(default_factory=dict)
    namespaces: NamespaceLabels | None = None
    capacity: Mapping[str, int] = field(init=False)
    """What every node has."""

    def __post_init__(self) -> None:
        """Work the capacity out."""
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
        """Of all terms and ports."""
        return self.ports | self.terms.keys()

    def takes(self, pod: objects.Pod) -> dict[str, int]:
        """What a pod takes of these resources, on its node or on the one that it will get."""
        ports = host_ports(pod) if self.ports else {}
        taken = {name: amount for name, amount in ports.items() if name in self.ports}
        carried = {name for name in _carried(self._terms(pod), self.coarser) if name in self.terms}
        repelled = {term.name for term in self._index.repelling(pod.metadata.namespace, pod.metadata.labels)}
        for name in carried | repelled:
            kind = repelled if name in self.loners else carried
            taken[name] = SYNTHETIC_CAPACITY if name in kind else 1
        return self._with_lumps(taken, carried | ports.keys()) if self.lumped else taken

    def _with_lumps(self, taken: Mapping[str, int], own: Set[str]) -> dict[str, int]:
        """What is taken where some of it lies in lumps. own: the pod's ports and terms it carries."""
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
        """The node with what it has of these resources."""
        return replace(node, allocatable={**node.allocatable, **self.capacity})

    def usage(self, pod: objects.Pod, usage: Usage) -> Usage:
        """The pod's use of its node with what it takes of these resources."""
        # Asked of every pod of the cluster, most of which have nothing to do with any of it.
        spec = pod.spec
        concerned = self and (
            spec.affinity is not None
            or (self.ports and any(each.ports for each in (*spec.containers, *spec.init_containers)))
            or self._index.may_repel(pod.metadata.namespace)
        )
        taken = self.takes(pod) if concerned else None
        return replace(usage, requests={**usage.requests, **taken}) if taken else usage

    def pod_class(self, pod: objects.Pod, pod_class: PodClass) -> PodClass:
        """The pod's class with what it takes of these resources."""
        taken = self.takes(pod) if self and not pod_class.problem else {}
        if not taken:
            return pod_class
        return replace(pod_class, requests=vector({**dict(pod_class.requests), **taken}))

    def serves(self, needed: "Conflicts") -> bool:
        """Whether these have all that is needed, with the same meaning, and not much besides."""
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
    """What keeps waiting pods off nodes. assigned: namespace and terms of each pod that has a node; read: see
    terms_of, as namespaces; there: all pods but those that wait, by which work is reckoned.

    most: how many resources there may be, since anybody may write as many terms as he likes and every node
    has its amount of each. Each namespace whose pods carry some has its share. What exceeds that is lumped
    together: first the terms by which pods that wait want nodes of their own, which loses little, for a node
    then takes one such pod whatever its term.
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
    """For each pod with host ports, its namespace and what it takes of them."""
    return [(pod.metadata.namespace, taken) for pod in pods if (taken := host_ports(pod))]


def _shared_ports(ports: Iterable[tuple[str, Mapping[str, int]]]) -> set[str]:
    """The host ports of which some pod takes less than SYNTHETIC_CAPACITY."""
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
    """Put coarser terms in the place of those that they stand for."""
    for name, coarse in coarser.items():
        del terms[name]
        terms[coarse.name] = coarse
        carriers.setdefault(coarse.name, set()).update(carriers.pop(name))


@dataclass(frozen=True)
class _Meetings:
    """Names of terms by what waiting pods have to do with them.

    carrying: some pod carries it and is not repelled by it; repelling: it repels some pod; partly: some pod
    is repelled by it and does not carry it.
    """

    carrying: frozenset[str]
    repelling: frozenset[str]
    partly: frozenset[str]

    @property
    def loners(self) -> frozenset[str]:
        """Those by which pods want nodes of their own."""
        return self.carrying - self.repelling

    @property
    def shared(self) -> frozenset[str]:
        """Those of which some waiting pod takes less than SYNTHETIC_CAPACITY."""
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
    """By namespace, the resources that its pods want, those that no pod shares with others last."""
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
    """The names of the terms that a pod carries, as far as they are heeded."""
    for term in terms:
        yield coarser.get(term.name, term).name
