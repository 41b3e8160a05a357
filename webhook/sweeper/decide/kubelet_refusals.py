"""Node rules after refusals of kubelets: the next pods of such a gang use other nodes. Pure.

A kubelet may refuse a pod that kube-scheduler has bound to its node (TopologyAffinityError, OutOfcpu,
UnexpectedAdmissionError, ...). kube-scheduler does not know the kubelet's rules, so the next pod would be
bound there too. Whatever the reason, the rule is the same:

1. After a first refusal the gang uses the node only if nothing else fits: another pod may have been quicker,
   or a device plugin or the node may just be restarting.
2. If a later pod is refused there again, the reason was not of the moment. The gang does not use the node for
   ten minutes, and for twice as long after each further refusal, up to six hours.

Where nodeHealth.avoidFor is longer, the node stays the last resort for that long.

A refusal counts only for that gang: the node may suit others. The number of refusals is bounded: the oldest
ones of the namespace with the most are dropped first.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from labeler.contract import keys
from webhook.kube.objects import Node, Pod
from webhook.kube.times import since_1970
from webhook.sweeper.decide.node_rules import NodeRule
from webhook.sweeper.decide.refusing_nodes import avoid_seconds, forgotten_at
from webhook.sweeper.observe.gangs import GangKey, PodGang

REFUSED: Final = "Pod was rejected: "
"""The prefix of the kubelet's message on each pod that it does not admit (rejectPod in kubelet.go)."""
NOT_ADMITTED: Final = "UnexpectedAdmissionError"

MOST: Final = 2000
_REASON: Final = 60
"""The most characters of a reason that are shown: a predicate's reason may be a sentence."""


@dataclass(frozen=True)
class KubeletRefusal:
    """Pods of a gang that a node's kubelet refused, and the reason of the last one.

    at: when the last one was refused, in seconds since 1970. count: how many times, where pods that existed
    together count once.
    """

    at: float
    reason: str
    count: int = 1

    def rules(self, controller: GangKey, node: str) -> Iterable[NodeRule]:
        """After a first refusal the node is the last resort; after further ones it is not used at all."""
        sentence = f"the kubelet refused a pod of this gang there: {self.reason[:_REASON]}"
        rule = NodeRule(frozenset({node}), sentence, applies_to=controller)
        if self.count == 1:
            return [rule]
        return [replace(rule, is_hard=True, until=self.hard_until), rule]

    @property
    def hard_until(self) -> float:
        """Until when the gang does not use the node at all; `at` after a first refusal."""
        return self.at + (avoid_seconds(self.count - 2) if self.count > 1 else 0.0)


_Key = tuple[GangKey, str]
"""The controller of the refused pods (see View.controller_of), and the node."""


@dataclass(frozen=True)
class KubeletRefusals:
    """The refusals by gang and node. If they are lost, a pod may be refused there again.

    new: those of this pass, where pods of an earlier plan may still be about to be released.
    """

    by_key: Mapping[_Key, KubeletRefusal] = field(default_factory=dict)
    new: frozenset[_Key] = frozenset()

    def after(
        self, failed: Iterable[Pod], controller_of: Callable[[Pod], GangKey], now: float, seconds: float
    ) -> "KubeletRefusals":
        """With these failed pods, as far as kubelets refused them, and without expired refusals.

        now: seconds since 1970. seconds: how long a refusal counts at least (nodeHealth.avoidFor).
        """
        refused = sorted(_refused(failed, now), key=lambda each: each[0])
        if not refused and not self.by_key:
            return self
        found, new = dict(self.by_key), set[_Key]()
        for at, pod in refused:
            key = controller_of(pod), pod.spec.node_name
            found[key] = _with_one(found.get(key), pod, at)
            new.add(key)
        found = {
            key: each
            for key, each in found.items()
            if now < max(each.at + seconds, forgotten_at(each.at, each.hard_until))
        }
        if len(found) > MOST:
            found = _newest_of_each_namespace(found)
        return KubeletRefusals(found, frozenset(new & found.keys()))

    @cached_property
    def by_gang(self) -> Mapping[GangKey, Mapping[str, KubeletRefusal]]:
        """Controller -> node -> the refusal there."""
        found: dict[GangKey, dict[str, KubeletRefusal]] = {}
        for (controller, node), each in self.by_key.items():
            found.setdefault(controller, {})[node] = each
        return found

    def rules(self, gangs: Iterable[PodGang], nodes: Mapping[str, Node]) -> Iterator[NodeRule]:
        """The rules for these gangs. nodes: by name, whose operators may have reset their refusals."""
        if not self.by_key:
            return
        for controller in dict.fromkeys(key for gang in gangs for key in (gang.key, gang.controller)):
            for node, refusal in self.by_gang.get(controller, {}).items():
                if node in nodes and refusal.at > _reset_at(nodes[node]):
                    yield from refusal.rules(controller, node)


NONE_REFUSED: Final = KubeletRefusals()


def refused_at(pod: Pod, now: float) -> float | None:
    """When a kubelet refused a failed pod, None if it did not. now: seconds since 1970."""
    status = pod.status
    if not pod.spec.node_name or status.phase != "Failed":
        return None
    if not status.message.startswith(REFUSED) and status.reason != NOT_ADMITTED:
        return None
    at = since_1970(status.start_time)
    return now if at is None else min(at, now)  # a node's clock may be ahead


def _refused(failed: Iterable[Pod], now: float) -> Iterable[tuple[float, Pod]]:
    return ((at, pod) for pod in failed if (at := refused_at(pod, now)) is not None)


def _with_one(before: KubeletRefusal | None, pod: Pod, at: float) -> KubeletRefusal:
    """The refusals with one more, which is not older."""
    if before is None:
        return KubeletRefusal(at, pod.status.reason)
    is_later_pod = (since_1970(pod.metadata.creation_timestamp) or 0) > before.at
    return replace(before, at=at, reason=pod.status.reason, count=before.count + is_later_pod)


def _reset_at(node: Node) -> float:
    """Earlier refusals do not count: of an earlier Node of this name, or that an operator has reset."""
    metadata = node.metadata
    reset_at = since_1970(metadata.annotations.get(keys.RESET_FAILURES_ANNOTATION)) or 0
    return max(reset_at, (since_1970(metadata.creation_timestamp) or 0) - 1)


def _newest_of_each_namespace(found: Mapping[_Key, KubeletRefusal]) -> dict[_Key, KubeletRefusal]:
    """The MOST newest ones: the newest of every namespace first, then the second newest, and so on."""
    seen, places = Counter[str](), list[tuple[int, str, _Key]]()
    for key in sorted(found, key=lambda key: (-found[key].at, str(key))):
        seen[key[0].namespace] += 1
        places.append((seen[key[0].namespace], str(key), key))
    return {key: found[key] for _, _, key in sorted(places, key=lambda place: place[:2])[:MOST]}
