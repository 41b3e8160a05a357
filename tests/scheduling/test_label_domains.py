"""The domains of node labels, and that they are kept for as long as no node's labels change."""

import msgspec

from webhook.kube.objects import Node
from webhook.scheduling.label_domains import KeptDomains, LabelDomains


def node(name: str, **labels: str) -> Node:
    return msgspec.convert({"metadata": {"name": name, "labels": labels}}, Node)


def nodes(**labels: str) -> dict[str, Node]:
    """Nodes by name, each with this zone."""
    return {name: node(name, zone=zone) for name, zone in labels.items()}


def test_nodes_without_a_label_are_in_none_of_its_domains() -> None:
    domains = LabelDomains({**nodes(a="x", b="y", c="x"), "d": node("d")})
    assert domains.by_value("zone") == {"x": ["a", "c"], "y": ["b"]}
    assert domains.with_labels(frozenset({"zone"})) == {"a", "b", "c"}
    assert list(domains.values(frozenset("ad"), "zone")) == ["x"]
    assert domains.value("d", "zone") is None


def test_domains_are_kept_for_nodes_that_are_told_again_with_the_same_labels() -> None:
    kept = KeptDomains()
    first = kept.of(nodes(a="x", b="y"))
    assert kept.of(nodes(a="x", b="y")) is first


def test_domains_are_made_anew_once_a_node_is_relabelled_gone_or_new() -> None:
    kept = KeptDomains()
    first = kept.of(nodes(a="x", b="y"))
    relabelled = kept.of(nodes(a="x", b="x"))
    assert relabelled is not first
    assert relabelled.by_value("zone") == {"x": ["a", "b"]}
    assert kept.of(nodes(a="x")).by_value("zone") == {"x": ["a"]}
    assert kept.of(nodes(a="x", c="z")).by_value("zone") == {"x": ["a"], "z": ["c"]}
