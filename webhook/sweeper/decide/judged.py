"""Answers of the placement core, judged by the rules of a gang on other pods, and put together. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from webhook.placement import Assignment, Gang, NoFit, Snapshot
from webhook.placement.model import Objective
from webhook.placement.snapshot import families_of
from webhook.scheduling.acceptance import Acceptance


def in_order(answer: Assignment, rules: Acceptance) -> Assignment | None:
    """The answer with its members in the order of release; None if it breaks a rule."""
    placed = {each.member: each for each in answer.placed}
    ordered, reason = rules.order([(each.member, each.node) for each in answer.placed])
    return None if reason else replace(answer, placed=tuple(placed[name] for name in ordered))


def together(gang: Gang, found: Sequence[Assignment], snapshot: Snapshot) -> Assignment:
    """One answer of those of all parts. Of its objective only the domains are told: each part has its own."""
    placed = {each.member: each for answer in found for each in answer.placed}
    topology = snapshot.topology
    names = {each.node for each in placed.values()}
    paths = {name: snapshot.nodes[name].path or (name,) * (len(topology.level_names) + 1) for name in names}
    levels = range(len(topology.level_names))
    domains = (*(len({path[: level + 2] for path in paths.values()}) for level in levels), len(names))
    objective = Objective(domains, (0,) * len(domains), 0)
    order = tuple(placed[member.name] for member in gang.members)
    return Assignment(order, objective, False, topology.spread(domains, families_of(snapshot, names)))


def broken(gang: Gang, rules: Acceptance, snapshot: Snapshot) -> NoFit:
    """What is told of a gang that has room, but none that was found to keep its rules."""
    names = {reason for kind in rules.kinds for reason in kind.names}
    sentence = (
        f"Gang {gang.name} needs room for {len(gang.members)} pods: there is room, but no way was found to "
        f"keep their rules on other pods as well ({', '.join(sorted(names))})."
    )
    return NoFit(sentence, len(gang.members), 0, len(snapshot.nodes), {}, proven=False)
