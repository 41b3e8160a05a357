"""What pods would like of their node, as it is read of their specs and of the pods that stand."""

from typing import Any

import msgspec
import pytest

from webhook.kube.objects import Node, Pod
from webhook.placement.model import PodClass, PodCounts, Preferences
from webhook.scheduling import convert
from webhook.scheduling.neighbourhood import Neighbourhood

ZONE = "topology.kubernetes.io/zone"
SELECTOR = {"matchLabels": {"app": "x"}}


def pod(name: str, app: str = "x", **spec: Any) -> Pod:
    metadata = {"name": name, "namespace": "ns", "uid": name, "labels": {"app": app}}
    return msgspec.convert({"metadata": metadata, "spec": spec}, Pod)


def read(asked: Pod) -> PodClass:
    """The class of a pod beside two pods of its app in zone "a" and another one in "b"."""
    nodes = {
        zone: msgspec.convert({"metadata": {"name": zone, "labels": {ZONE: zone}}}, Node) for zone in "ab"
    }
    there = [(pod("r0"), "a"), (pod("r1"), "a"), (pod("r2", "y"), "b")]
    near = Neighbourhood(nodes, there, {}, [asked])
    return near.pod_class(asked, convert.pod_class_of(asked))


def test_a_pod_that_is_given_its_node_counts_for_those_who_are_asked_about_next() -> None:
    node = msgspec.convert({"metadata": {"name": "a", "labels": {ZONE: "a"}}}, Node)
    soft = {"topologyKey": ZONE, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": SELECTOR}
    asked = pod("p", topologySpreadConstraints=[soft])
    before = Neighbourhood({"a": node}, [(pod("r0"), "a")], {}, [asked])
    counts: list[PodCounts] = []
    counts += before.pod_class(asked, convert.pod_class_of(asked)).preferred.spread
    after = before.with_added([(pod("r1"), "a")])
    for near in (after, before):
        counts += near.pod_class(asked, convert.pod_class_of(asked)).preferred.spread
    assert [each.counts for each in counts] == [(("a", 1),), (("a", 2),), (("a", 1),)]


@pytest.mark.promise("R118")
def test_preferred_node_affinity_is_read_with_its_weights() -> None:
    expression = {"key": "disk", "operator": "In", "values": ["ssd"]}
    preferred = [{"weight": 7, "preference": {"matchExpressions": [expression]}}]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    (found,) = read(pod("p", affinity=affinity)).preferred.terms
    assert (found[0], found[1].expressions[0].key, found[1].expressions[0].values) == (7, "disk", ("ssd",))


@pytest.mark.promise("R118")
def test_a_preferred_spread_counts_the_pods_that_run() -> None:
    soft = {
        "topologyKey": ZONE,
        "maxSkew": 2,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": SELECTOR,
    }
    found = read(pod("p", topologySpreadConstraints=[soft]))
    assert found.preferred == Preferences(spread=(PodCounts(ZONE, (("a", 2),), 2),))
    assert not found.rules.exclusions


@pytest.mark.promise("R118")
def test_preferred_pod_affinity_and_anti_affinity_count_with_their_weights() -> None:
    term = {"topologyKey": ZONE, "labelSelector": SELECTOR}
    affinity = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "podAffinityTerm": term}]}
    assert read(pod("p", affinity={"podAffinity": affinity})).preferred.near == (
        PodCounts(ZONE, (("a", 10),)),
    )
    assert read(pod("p", affinity={"podAntiAffinity": affinity})).preferred.near == (
        PodCounts(ZONE, (("a", -10),)),
    )
