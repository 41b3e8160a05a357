"""Whether kube-scheduler accepts the pods of a gang one by one, and in which order. Pure.

Neighbourhood counts the running pods. This module adds the pods of one gang to these counts, one by one, as
kube-scheduler would bind them. It follows the plugins InterPodAffinity and PodTopologySpread exactly, with
one addition: topology spread must hold for the pod as its author wrote it. Released pods also carry
topogate's node selector, and by default kube-scheduler then counts only their own node. The rule must hold
for that too, for example with minDomains.
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from webhook.kube import objects
from webhook.scheduling.antiaffinity import AntiAffinityTerm
from webhook.scheduling.neighbourhood import Neighbourhood, near_terms
from webhook.scheduling.podrules import PodRules, SpreadRule
from webhook.scheduling.tallies import RuledClass, RuleGate, SpreadOfClass, Tally


@dataclass(eq=False, slots=True)
class _EquivalentMembers:
    """Members of one pod class for equivalent nodes. gone: how many are placed."""

    kind: int
    gate: RuleGate
    tallies: list[tuple[Tally, str]]
    """The tallies that count them, with the domain in each."""
    members: list[str] = field(default_factory=list)
    gone: int = 0


class Acceptance:
    """Accepts the pods of one gang one by one. members: by name."""

    def __init__(self, there: Neighbourhood, members: Mapping[str, objects.Pod]) -> None:
        self.there = there
        self._domains = there.domains
        self.kind_of, self._pods = _pod_classes(there, members)
        self._tallies: list[Tally] = []
        self._near: dict[object, Tally] = {}
        self._carried: dict[tuple[str, str], tuple[AntiAffinityTerm, set[int]]] = {}
        for number, pod in enumerate(self._pods):
            for each in there.rules_of(pod).apart:
                self._carried.setdefault((each.key, each.pods.name), (each.pods, set()))[1].add(number)
        carrying = [
            (key, term, self._tally(Tally(key, {}, frozenset(classes))))
            for (key, _), (term, classes) in self._carried.items()
        ]
        self.classes = [self._kind(pod, carrying) for pod in self._pods]
        self._of_kind = [
            [tally for tally in self._tallies if number in tally.classes]
            for number in range(len(self.classes))
        ]
        self._keys = sorted(
            {tally.key for tally in self._tallies} | {e.rule.key for k in self.classes for e in k.spread}
        )
        self.reset()

    def __bool__(self) -> bool:
        """Whether a rule of any member depends on other members."""
        return bool(self._tallies)

    def reset(self) -> None:
        """Start again without placed members."""
        for tally in self._tallies:
            tally.reset()

    def reason(self, name: str, node: str) -> str:
        """Why kube-scheduler would refuse a member on a node now, "" if it would not."""
        gate = self._gate(self.kind_of[name], node)
        return "" if gate.width(1) else str(gate.refused)

    def add(self, name: str, node: str) -> None:
        """Count the member on the node."""
        for tally, value in self._counted(self.kind_of[name], node):
            tally.add(value)

    def order(self, nodes: Sequence[tuple[str, str]]) -> tuple[list[str], str]:
        """An order in which kube-scheduler accepts each member on its node, and "" or why it refuses the
        others.

        nodes: pairs of member and node. No member is placed before; call `reset` before you add others.
        Refused members wait in a queue per refusing domain, so that only one of each queue is tried again.
        """
        self.reset()
        inert = self._inert(nodes)
        groups_there = self._groups(nodes, inert)
        ordered: list[str] = self._by_height(groups_there, inert)
        if ordered:
            return ordered, ""
        waiting: dict[object, deque[_EquivalentMembers]] = {}
        for group in groups_there:
            if self._advance(group, ordered):
                waiting.setdefault((group.kind, group.gate.refused), deque()).append(group)
        while waiting:
            before = len(ordered)
            waiting = self._still_waiting(waiting, ordered)
            if len(ordered) == before:
                break
        refused = next((str(groups[0].gate.refused) for groups in waiting.values()), "")
        return ordered, refused

    def _still_waiting(
        self, waiting: dict[object, deque[_EquivalentMembers]], ordered: list[str]
    ) -> dict[object, deque[_EquivalentMembers]]:
        """The members that still wait, by class and refusal, after each queue is tried until it refuses
        again.
        """
        for queue, groups in list(waiting.items()):
            while groups:
                is_left = self._advance(groups[0], ordered)
                if is_left and (groups[0].kind, groups[0].gate.refused) == queue:
                    break
                group = groups.popleft()
                if is_left:
                    waiting.setdefault((group.kind, group.gate.refused), deque()).append(group)
        return {queue: groups for queue, groups in waiting.items() if groups}

    def _inert(self, nodes: Sequence[tuple[str, str]]) -> frozenset[Tally]:
        """The tallies of topology spread that refuse no member on these nodes, in any order."""
        live = {tally for kind in self.classes for tally in (*kind.near, *(each for each, _ in kind.apart))}
        inert = set()
        on_node = Counter([node for _, node in nodes])
        for tally, bound in self._spread_bounds().items():
            gained = self._gained(on_node, tally.key)
            counts = tally.counts
            if tally not in live and all(
                value is not None and counts.get(value, 0) + more <= bound for value, more in gained.items()
            ):
                inert.add(tally)
        return frozenset(inert)

    def _spread_bounds(self) -> dict[Tally, int]:
        """For each tally the most pods in a domain with which its spread rules refuse no pod."""
        most: dict[Tally, int] = {}
        for each in (each for kind in self.classes for each in kind.spread):
            skew, floor = each.rule.max_skew, each.tally.lowest if each.is_floored else 0
            for tally, bound in ((each.tally, skew + floor), (each.on_node, skew)):
                if tally is not None:
                    most[tally] = min(bound, most.get(tally, bound))
        return most

    def _gained(self, on_node: Mapping[str, int], key: str) -> Mapping[str | None, int]:
        """How many members each domain of a label gets; the key None is for nodes without the label."""
        if not key:
            return dict(on_node.items())
        domain_of = self._domains.of_nodes(key)
        gained: dict[str | None, int] = {}
        for node, count in on_node.items():
            value = domain_of[node]
            gained[value] = gained.get(value, 0) + count
        return gained

    def _by_height(self, groups: Sequence["_EquivalentMembers"], inert: frozenset[Tally]) -> list[str]:
        """The order for a single class if one topology spread rule alone matters; else [].

        Members are sorted by the count that they give their domain. Then no count is ever further above the
        emptiest domain than at the end.
        """
        spread = self._only_spread(inert)
        if not groups or spread is None:
            return []
        tally, heights = spread.tally, list[tuple[int, int, str]]()
        final = dict(tally.counts)
        for number, group in enumerate(groups):
            counted = [value for each, value in group.tallies if each is tally]
            if not counted:
                return []
            first = final[counted[0]] + 1
            final[counted[0]] += len(group.members)
            heights += [(first + more, number, name) for more, name in enumerate(group.members)]
        floor = min(final.values()) if spread.is_floored else 0
        heights.sort()  # names are not compared: heights differ within a group
        return [name for *_, name in heights] if heights[-1][0] <= floor + spread.rule.max_skew else []

    def _only_spread(self, inert: frozenset[Tally]) -> SpreadOfClass | None:
        """The single spread rule that may refuse members of the only class and counts them; else None."""
        if len(self.classes) != 1 or self.classes[0].near or self.classes[0].apart:
            return None
        harmless = {None, *inert}
        rules = [e for e in self.classes[0].spread if not harmless.issuperset((e.tally, e.on_node))]
        if len(rules) != 1 or rules[0].on_node not in harmless or not rules[0].counts_itself:
            return None
        return rules[0]

    def _groups(
        self, nodes: Sequence[tuple[str, str]], inert: frozenset[Tally]
    ) -> Sequence["_EquivalentMembers"]:
        """Members of one class for nodes that are equivalent in the tallies that matter."""
        groups: dict[object, _EquivalentMembers] = {}
        by_node: dict[tuple[int, str], _EquivalentMembers] = {}
        kind_of = self.kind_of
        tallies = [each for each in self._tallies if each not in inert]
        keys = sorted({each.key for each in tallies})
        included = list({id(each.nodes): each.nodes for each in tallies if each.nodes is not None}.values())
        for name, node in nodes:
            place = kind_of[name], node
            group = by_node.get(place)
            if group is None:
                kind = place[0]
                equivalents = kind, self._values(node, keys), tuple([node in each for each in included])
                group = groups.get(equivalents)
                if group is None:
                    counted = [each for each in self._counted(kind, node) if each[0] not in inert]
                    group = _EquivalentMembers(kind, self._gate(kind, node, inert), counted)
                    groups[equivalents] = group
                by_node[place] = group
            group.members.append(name)
        return list(groups.values())

    def _advance(self, group: "_EquivalentMembers", ordered: list[str]) -> bool:
        """Place as many of the group as are accepted; whether any are left. Then the gate has the refusal."""
        members, gone = group.members, group.gone
        while gone < len(members):
            more = group.gate.width(len(members) - gone)
            if not more:
                break
            for tally, value in group.tallies:
                tally.add(value, more)
            ordered += members[gone : gone + more]
            gone += more
        group.gone = gone
        return gone < len(members)

    def excluded_nodes(self, name: str, nodes: Iterable[str]) -> dict[str, frozenset[str]]:
        """The nodes on which a member would be refused now, by reason."""
        known: dict[object, str] = {}
        found: dict[str, list[str]] = {}
        kind = self.kind_of[name]
        for node in nodes:
            values = self._values(node, self._keys)
            if values not in known:
                gate = self._gate(kind, node)
                known[values] = "" if gate.width(1) else str(gate.refused)
            if known[values]:
                found.setdefault(known[values], []).append(node)
        return {reason: frozenset(names) for reason, names in found.items()}

    def _values(self, node: str, keys: Iterable[str]) -> tuple[str | None, ...]:
        """The domains of a node for these labels."""
        labels = self._domains.labels[node]
        return tuple([labels.get(key) if key else node for key in keys])

    def _gate(self, kind: int, node: str, inert: frozenset[Tally] = frozenset()) -> RuleGate:
        return RuleGate(self.classes[kind], kind, node, self._domains, inert)

    def _counted(self, kind: int, node: str) -> list[tuple[Tally, str]]:
        """The tallies and domains in which a member on this node counts."""
        found = []
        for tally in self._of_kind[kind]:
            value = self._domains.value(node, tally.key)
            if value is not None and (tally.nodes is None or node in tally.nodes):
                found.append((tally, value))
        return found

    # --- pod classes ------------------------------------------------------------------------------

    def _tally(self, tally: Tally) -> Tally:
        self._tallies.append(tally)
        return tally

    def _kind(self, pod: objects.Pod, carrying: Sequence[tuple[str, AntiAffinityTerm, Tally]]) -> RuledClass:
        rules = self.there.rules_of(pod)
        namespace, labels = pod.metadata.namespace, pod.metadata.labels
        apart = [(self._near_tally(each.key, (each.pods,)), each.key) for each in rules.apart]
        apart += [(tally, key) for key, term, tally in carrying if term.repels(namespace, labels)]
        terms = near_terms(rules.affinity)
        near = tuple(self._near_tally(each.key, terms) for each in rules.affinity)
        begins = all(term.repels(namespace, labels) for term in terms)
        spread = tuple(self._spreading(pod, rules, rule) for rule in rules.spread)
        return RuledClass(pod, rules, tuple(apart), near, begins, spread)

    def _near_tally(self, key: str, terms: tuple[AntiAffinityTerm, ...]) -> Tally:
        known = key, tuple(term.name for term in terms)
        if known not in self._near:
            classes = frozenset(
                number
                for number, pod in enumerate(self._pods)
                if all(term.repels(pod.metadata.namespace, pod.metadata.labels) for term in terms)
            )
            self._near[known] = self._tally(Tally(key, self.there.counts.near(key, terms), classes))
        return self._near[known]

    def _spreading(self, pod: objects.Pod, rules: PodRules, rule: SpreadRule) -> SpreadOfClass:
        nodes = self.there.eligible(pod, rules, rule)
        known = rule, id(nodes)
        if known not in self._near:
            classes = frozenset(
                number
                for number, each in enumerate(self._pods)
                if rule.counts(each.metadata.namespace, each.metadata.labels)
            )
            base = dict.fromkeys(self._domains.values(nodes, rule.key), 0)
            base |= self.there.counts.spread(rule, nodes)
            self._near[known] = self._tally(Tally(rule.key, base, classes, nodes))
        tally = self._near[known]
        on_node = None
        if rule.min_domains > 1 and rule.honours_affinity:
            if (rule, "") not in self._near:
                self._near[rule, ""] = self._tally(Tally("", self.there.counts.on_nodes(rule), tally.classes))
            on_node = self._near[rule, ""]
        counts_itself = int(rule.counts(pod.metadata.namespace, pod.metadata.labels))
        return SpreadOfClass(rule, tally, counts_itself, len(tally.base), on_node)


def _pod_classes(
    there: Neighbourhood, members: Mapping[str, objects.Pod]
) -> tuple[dict[str, int], list[objects.Pod]]:
    """The class number of each member, and a pod per class: the rules of members treat a class equally."""
    equivalents = {name: there.equivalents(pod) for name, pod in members.items()}
    distinct = {id(each): each for each in equivalents.values()}
    label_keys = sorted({key for each in distinct.values() for key in each.rules.label_keys})
    classes = _PodClasses(label_keys)
    if all(each.label_keys.issuperset(label_keys) for each in distinct.values()):
        known = {key: classes.number_of(each.pod, each.rules) for key, each in distinct.items()}
        return {name: known[id(each)] for name, each in equivalents.items()}, classes.pods
    numbers = {name: classes.number_of(pod, equivalents[name].rules) for name, pod in members.items()}
    return numbers, classes.pods


@dataclass(slots=True)
class _PodClasses:
    """The pod classes found so far. label_keys: the labels that distinguish them; pods: the first of each."""

    label_keys: Sequence[str]
    pods: list[objects.Pod] = field(default_factory=list)
    _numbers: dict[tuple[object, ...], int] = field(default_factory=dict)

    def number_of(self, pod: objects.Pod, rules: PodRules) -> int:
        """The number of a pod's class, a new one if its class is new."""
        labels, spec = pod.metadata.labels, pod.spec
        own = tuple([labels.get(key) for key in self.label_keys])
        nodes = (id(spec.node_selector), id(spec.affinity), id(spec.tolerations)) if rules.spread else ()
        kind = (pod.metadata.namespace, own, id(rules), nodes)
        number = self._numbers.setdefault(kind, len(self._numbers))
        if number == len(self.pods):
            self.pods.append(pod)
        return number
