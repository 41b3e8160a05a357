"""Pods whose rules name the nodes that they may run on: these are looked at, and no others."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from labeler.contract import keys
from webhook.placement.eligibility import NAME_FIELD, Rules, Term
from webhook.placement.model import PodClass
from webhook.placement.snapshot import Block, Path, Snapshot, block_key

Named = tuple[frozenset[str] | None, ...]
"""For each class names of nodes than which its pods run on no other; None: the rules name none."""

_Hosts = Mapping[str, Sequence[str]]
"""By the label of their hostname the names of nodes."""

_HOSTS: Final = "hosts"

_NAMES: Final = 64
"""More names than this in one term, or terms, are taken for none: nobody charges for reading them."""


def named_nodes(classes: Sequence[PodClass], snapshot: Snapshot) -> Named:
    """What the rules of each class name: by affinity, a selector, or for its volumes and claims."""
    if not any(_may_name(each.rules) for each in classes):
        return (None,) * len(classes)
    hosts: dict[str, list[str]] = {}
    for block in snapshot.blocks.values():
        for host, names in block.worked_out(_HOSTS, partial(_hosts, block)).items():
            hosts.setdefault(host, []).extend(names)
    return tuple(_named(each.rules, hosts) if _may_name(each.rules) else None for each in classes)


def by_block(named: Named, snapshot: Snapshot) -> dict[Path, dict[int, list[str]]]:
    """For each block the classes that name nodes of it, and these."""
    found: dict[Path, dict[int, list[str]]] = {}
    for number, names in enumerate(named):
        for name in sorted(names or ()):
            if name in snapshot.nodes:
                key = block_key(snapshot.nodes[name])
                found.setdefault(key, {}).setdefault(number, []).append(name)
    return found


def _may_name(rules: Rules) -> bool:
    return bool(rules.selector or rules.affinity or rules.volumes or rules.claims)


def _hosts(block: Block) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for state in block.states:
        host = state.node.labels.get(keys.HOSTNAME_LABEL)
        if host is not None:
            found.setdefault(host, []).append(state.name)
    return found


def _named(rules: Rules, hosts: _Hosts) -> frozenset[str] | None:
    groups = [*rules.volumes, *rules.claims, *([] if rules.affinity is None else [rules.affinity])]
    every = [_of_terms(terms, hosts) for terms in groups]
    every += [set(hosts.get(value, ())) for key, value in rules.selector if key == keys.HOSTNAME_LABEL]
    known = [names for names in every if names is not None]
    return frozenset(set.intersection(*known)) if known else None


def _of_terms(terms: Sequence[Term], hosts: _Hosts) -> set[str] | None:
    """Of terms of which one must hold."""
    if len(terms) > _NAMES:
        return None
    found = [_of_term(term, hosts) for term in terms]
    known = [names for names in found if names is not None]
    return set().union(*known) if len(known) == len(found) else None


def _of_term(term: Term, hosts: _Hosts) -> set[str] | None:
    for each in term.fields:
        if each.key == NAME_FIELD and each.operator == "In" and len(each.values) == 1:
            return set(each.values)
    for each in term.expressions:
        if each.key == keys.HOSTNAME_LABEL and each.operator == "In" and len(each.values) <= _NAMES:
            return {name for value in each.values for name in hosts.get(value, ())}
    return None
