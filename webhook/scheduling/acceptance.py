"""Whether kube-scheduler takes the pods of a gang one after the other, and in which order. Pure.

What runs is counted by Neighbourhood; here the pods of one gang are added to that, one by one, as they would
be bound. The plugins InterPodAffinity and PodTopologySpread are followed to the letter, with one addition:
topology spread is judged by the pod as its author wrote it. Released pods carry our pin, and by default
kube-scheduler then counts their own node alone: what that asks (with minDomains) must hold as well.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from webhook.kube import objects
from webhook.scheduling.antiaffinity import AntiAffinityTerm
from webhook.scheduling.neighbourhood import Neighbourhood, near_terms
from webhook.scheduling.podrules import PodRules, SpreadRule
from webhook.scheduling.tallies import RuledKind, RuleRefusal, SpreadOfKind, Tally


@dataclass(eq=False)
class _AlikeMembers:
    """Members of a kind to nodes that are alike. gone: how many have gone; refusal: of the next one."""

    kind: int
    members: list[tuple[str, str]] = field(default_factory=list)
    gone: int = 0
    refusal: RuleRefusal | None = None


class Acceptance:
    """The pods of one gang, to be given nodes one by one. members: by name."""

    def __init__(self, there: Neighbourhood, members: Mapping[str, objects.Pod]) -> None:
        self.there = there
        rules = {name: there.rules_of(pod) for name, pod in members.items()}
        distinct = {id(each): each for each in rules.values()}
        label_keys = sorted(frozenset[str]().union(*(each.label_keys for each in distinct.values())))
        numbers: dict[tuple[object, ...], int] = {}
        self._pods: list[objects.Pod] = []
        self.kind_of: dict[str, int] = {}
        for name, pod in members.items():
            signature = there.signature(pod, rules[name], label_keys)
            number = numbers.setdefault(signature, len(numbers))
            if number == len(self._pods):
                self._pods.append(pod)
            self.kind_of[name] = number
        self._tallies: list[Tally] = []
        self._near: dict[object, Tally] = {}
        self._carried: dict[tuple[str, str], tuple[AntiAffinityTerm, set[int]]] = {}
        for number, pod in enumerate(self._pods):
            for each in there.rules_of(pod).apart:
                self._carried.setdefault((each.key, each.pods.name), (each.pods, set()))[1].add(number)
        carrying = [
            (key, term, self._tally(Tally(key, {}, frozenset(kinds))))
            for (key, _), (term, kinds) in self._carried.items()
        ]
        self.kinds = [self._kind(pod, carrying) for pod in self._pods]
        self._of_kind = [
            [tally for tally in self._tallies if number in tally.kinds] for number in range(len(self.kinds))
        ]
        self._keys = sorted(
            {tally.key for tally in self._tallies} | {e.rule.key for k in self.kinds for e in k.spread}
        )
        self._included = list({id(t.nodes): t.nodes for t in self._tallies if t.nodes is not None}.values())
        self.reset()

    def __bool__(self) -> bool:
        """Whether any member is bound by a rule on the others."""
        return bool(self._tallies)

    def reset(self) -> None:
        """Nobody of the gang has a node."""
        for tally in self._tallies:
            tally.reset()

    def reason(self, name: str, node: str) -> str:
        """Why a member may not go to a node now, "" if it may."""
        return str(self.kinds[self.kind_of[name]].refusal(node, self.there) or "")

    def add(self, name: str, node: str) -> None:
        """The member is there."""
        for tally in self._of_kind[self.kind_of[name]]:
            value = self.there.value(node, tally.key)
            if value is not None and (tally.nodes is None or node in tally.nodes):
                tally.add(value)

    def order(self, nodes: Sequence[tuple[str, str]]) -> tuple[list[str], str]:
        """The members in an order in which each may go to its node, and "" or why the others may not.

        nodes: member and node. Begins with nobody of the gang anywhere, and ends with those that are told.
        Those that are refused wait by the domain that refused them, so that of each only one is tried again.
        """
        self.reset()
        ordered: list[str] = []
        waiting: dict[object, deque[_AlikeMembers]] = {}
        for group in self._groups(nodes):
            if refusal := self._go(group, ordered):
                waiting.setdefault((group.kind, refusal), deque()).append(group)
        while waiting:
            before = len(ordered)
            for queue, groups in list(waiting.items()):
                while groups:
                    refusal = self._go(groups[0], ordered)
                    if refusal and (groups[0].kind, refusal) == queue:
                        break
                    group = groups.popleft()
                    if refusal:
                        waiting.setdefault((group.kind, refusal), deque()).append(group)
            waiting = {queue: groups for queue, groups in waiting.items() if groups}
            if len(ordered) == before:
                break
        refused = next((str(groups[0].refusal) for groups in waiting.values()), "")
        return ordered, refused

    def _groups(self, nodes: Sequence[tuple[str, str]]) -> Iterable["_AlikeMembers"]:
        """Members that are alike, to nodes that are alike."""
        groups: dict[object, _AlikeMembers] = {}
        alike: dict[str, object] = {}
        for name, node in nodes:
            if node not in alike:
                labels = self.there.labels[node]
                values = tuple([labels.get(key) if key else node for key in self._keys])
                alike[node] = values, tuple([node in each for each in self._included])
            kind = self.kind_of[name]
            group = groups.setdefault((kind, alike[node]), _AlikeMembers(kind))
            group.members.append((name, node))
        return groups.values()

    def _go(self, group: "_AlikeMembers", ordered: list[str]) -> RuleRefusal | None:
        """As many of the group as may; why the next one may not, None if all have gone."""
        kind = self.kinds[group.kind]
        while group.gone < len(group.members):
            name, node = group.members[group.gone]
            group.refusal = kind.refusal(node, self.there)
            if group.refusal is not None:
                return group.refusal
            self.add(name, node)
            ordered.append(name)
            group.gone += 1
        return None

    def kept_off(self, name: str, nodes: Iterable[str]) -> dict[str, frozenset[str]]:
        """The nodes to which a member may not go now, by the reason."""
        known: dict[object, str] = {}
        found: dict[str, list[str]] = {}
        kind = self.kinds[self.kind_of[name]]
        for node in nodes:
            values = tuple(self.there.value(node, key) for key in self._keys)
            if values not in known:
                known[values] = str(kind.refusal(node, self.there) or "")
            if known[values]:
                found.setdefault(known[values], []).append(node)
        return {reason: frozenset(names) for reason, names in found.items()}

    # --- kinds ------------------------------------------------------------------------------------

    def _tally(self, tally: Tally) -> Tally:
        self._tallies.append(tally)
        return tally

    def _kind(self, pod: objects.Pod, carrying: Sequence[tuple[str, AntiAffinityTerm, Tally]]) -> RuledKind:
        rules = self.there.rules_of(pod)
        namespace, labels = pod.metadata.namespace, pod.metadata.labels
        apart = [(self._near_tally(each.key, (each.pods,)), each.key) for each in rules.apart]
        apart += [(tally, key) for key, term, tally in carrying if term.repels(namespace, labels)]
        terms = near_terms(rules.affinity)
        near = tuple(self._near_tally(each.key, terms) for each in rules.affinity)
        begins = all(term.repels(namespace, labels) for term in terms)
        spread = tuple(self._spreading(pod, rules, rule) for rule in rules.spread)
        return RuledKind(pod, rules, tuple(apart), near, begins, spread)

    def _near_tally(self, key: str, terms: tuple[AntiAffinityTerm, ...]) -> Tally:
        known = key, tuple(term.name for term in terms)
        if known not in self._near:
            kinds = frozenset(
                number
                for number, pod in enumerate(self._pods)
                if all(term.repels(pod.metadata.namespace, pod.metadata.labels) for term in terms)
            )
            self._near[known] = self._tally(Tally(key, self.there.near(key, terms), kinds))
        return self._near[known]

    def _spreading(self, pod: objects.Pod, rules: PodRules, rule: SpreadRule) -> SpreadOfKind:
        nodes = self.there.eligible(pod, rules, rule)
        known = rule, id(nodes)
        if known not in self._near:
            kinds = frozenset(
                number
                for number, each in enumerate(self._pods)
                if rule.counts(each.metadata.namespace, each.metadata.labels)
            )
            base = dict.fromkeys(self.there.values(nodes, rule.key), 0) | dict(self.there.spread(rule, nodes))
            self._near[known] = self._tally(Tally(rule.key, base, kinds, nodes))
        tally = self._near[known]
        on_node = None
        if rule.min_domains > 1 and rule.honours_affinity:
            if (rule, "") not in self._near:
                self._near[rule, ""] = self._tally(Tally("", self.there.on_nodes(rule), tally.kinds))
            on_node = self._near[rule, ""]
        counts_itself = int(rule.counts(pod.metadata.namespace, pod.metadata.labels))
        return SpreadOfKind(rule, tally, counts_itself, len(tally.base), on_node)
