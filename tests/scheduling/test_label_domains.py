"""The domains of node labels, and of which nodes they are."""

import msgspec
import pytest

from webhook.kube.objects import Node
from webhook.scheduling.label_domains import LabelDomains


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


def test_domains_are_those_of_nodes_that_are_observed_again_with_the_same_labels() -> None:
    assert LabelDomains(nodes(a="x", b="y")).are_of(nodes(a="x", b="y"))


@pytest.mark.parametrize("after", [{"a": "x", "b": "x"}, {"a": "x"}, {"a": "x", "c": "z"}])
def test_domains_are_others_once_a_node_is_relabelled_gone_or_new(after: dict[str, str]) -> None:
    assert not LabelDomains(nodes(a="x", b="y")).are_of(nodes(**after))
