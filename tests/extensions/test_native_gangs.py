"""Gangs of Kubernetes' own PodGroups: what these say is applied, and what is left alone is reported."""

from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from labeler.contract import keys
from labeler.contract.event_reasons import EventReason
from tests.extensions.native_groups import BLOCK, HOST, RACK, group, pods
from tests.support import work_of
from tests.sweeper.cluster import Nodes
from webhook.configuration.settings import Settings
from webhook.extensions.native_gangs.adopt import complete_gangs
from webhook.extensions.native_gangs.group_constraints import excluded_by_label
from webhook.extensions.native_gangs.own_pod_groups import COLLECTIONS, GROUPS, NativeMemory
from webhook.extensions.native_gangs.pod_group_gangs import LEFT, NATIVE_GANGS, report_left
from webhook.kube.objects import Pod
from webhook.kube.placements import Placement
from webhook.policy.values import Policy
from webhook.sweeper.decide.node_rules import GangNodes
from webhook.sweeper.decide.release_queue import SentReleases
from webhook.sweeper.extension import HookInput, with_plan_checks
from webhook.sweeper.observe.gangs import OwnerFacts, PodGang, gather
from webhook.sweeper.observe.snapshotter import Snapshotter
from webhook.workloads.native_gangs import BINDS_ANY_PRIORITY, VERSIONS, NativePodGroup, is_in_tree

REQUIRED = keys.REQUIRED_TOPOLOGY_ANNOTATION
IN = {keys.INJECTION_LABEL: keys.INJECTION_ENABLED}


def gangs_of(
    groups: dict[str, NativePodGroup] | None,
    *members: Pod,
    size: int | None = None,
    minimum: int | None = None,
    version: str = VERSIONS[0],
) -> list[PodGang]:
    """The gangs of a cluster of two blocks, each of the racks r0 and r1, with these groups.

    version: in which PodGroups are served.
    """
    cluster = Nodes(4, *members)
    for number in range(4):
        cluster.label(f"n{number}", {BLOCK: f"b{number // 2}", RACK: f"r{number % 2}", HOST: f"h{number}"})
    there = {f"in/{name}": each for name, each in (groups or {}).items()}
    view = Snapshotter(cluster, Settings()).view()
    if groups is not None:
        objects: dict[Hashable, Mapping[str, Any]] = {GROUPS: there}
        objects[COLLECTIONS[VERSIONS.index(version)]] = {}
        view = replace(view, objects=objects)
    found = gather(view.gated, view.others, lambda _: OwnerFacts(size, minimum=minimum), view.gang_of)
    return list(complete_gangs(HookInput(view, gangs=found)))


def test_without_the_api_a_gang_is_what_its_pods_name() -> None:
    (gang,) = gangs_of(None, *pods(2))
    assert (gang.fault, gang.problems) == ("", ())


@pytest.mark.promise("R250")
@pytest.mark.parametrize("minimum", [1_000_000, 2**31 - 1])
def test_a_group_that_asks_for_more_pods_than_there_are_takes_no_place(minimum: int) -> None:
    (gang,) = gangs_of({"g": group(minimum)}, *pods(2, job="train"), size=2)
    assert gang.fault == (
        f"2 pods of PodGroup g exist, and kube-scheduler binds none before there are {minimum} (minCount)"
    )


@pytest.mark.promise("R250")
def test_a_group_that_is_not_there_takes_no_place_for_its_pods() -> None:
    (gang,) = gangs_of({}, *pods(2))
    assert (
        "PodGroup g is missing: kube-scheduler binds no pod of a PodGroup that does not exist" in gang.fault
    )


@pytest.mark.promise("R250")
@pytest.mark.parametrize(
    ("least", "own", "expected"),
    [(None, None, None), (4, None, None), (2, None, 2), (2, 3, 3), (3, 2, 3), (0, None, None)],
    ids=["no-gang", "all", "fewer", "own-is-more", "own-is-fewer", "nothing"],
)
def test_no_fewer_pods_run_than_kube_scheduler_binds_together(
    least: int | None, own: int | None, expected: int | None
) -> None:
    (gang,) = gangs_of({"g": group(least)}, *pods(4, job="train"), size=4, minimum=own)
    assert (gang.fault, gang.minimum) == ("", expected)


@pytest.mark.promise("R251")
@pytest.mark.parametrize(
    ("key", "own", "expected"),
    [
        (BLOCK, None, "block"),
        (BLOCK, "subblock", "subblock"),
        (RACK, "block", "subblock"),
        (RACK, "host", "host"),
    ],
)
def test_the_finer_of_the_levels_of_a_group_and_of_its_pods_is_required(
    key: str, own: str | None, expected: str
) -> None:
    annotations = {REQUIRED: own} if own else {}
    (gang,) = gangs_of({"g": group(2, key)}, *pods(2, **annotations))
    assert (gang.fault, gang.required_level) == ("", expected)


@pytest.mark.promise("R251")
def test_each_group_of_a_gang_has_a_domain_of_its_own_key() -> None:
    members = pods(2, "g", job="train") + [
        msgspec.structs.replace(
            pod,
            metadata=msgspec.structs.replace(pod.metadata, labels={"batch.kubernetes.io/job-name": "train"}),
        )
        for pod in pods(3, "h")
    ]
    (gang,) = gangs_of({"g": group(2, RACK), "h": group(3)}, *members)
    assert [(len(part.uids), part.required_level) for part in gang.parts] == [(3, None), (2, "subblock")]


@pytest.mark.promise("R251")
@pytest.mark.parametrize("key", ["example.com/zone", "subblock", "node"])
def test_a_key_that_is_no_label_of_a_level_is_reported(key: str) -> None:
    (gang,) = gangs_of({"g": group(2, key)}, *pods(2))
    assert f"requires one domain of the label {key}, which is not a level" in gang.fault


def test_of_very_many_groups_with_problems_a_few_are_reported() -> None:
    """The report is saved in the gang's Placement, which has only so much space."""
    names = [f"g{number:03}" for number in range(100)]
    members: list[Pod] = []
    for gang_name in ("mine", "theirs"):
        for name in names:
            members += pods(1, name, f"{gang_name}-{name}", **{keys.GANG_ANNOTATION: gang_name})
    for gang in gangs_of(dict.fromkeys(names, group(1)), *members):
        assert len(gang.problems) < 20
        assert gang.problems[-1].endswith(" more problems")


@pytest.mark.parametrize("key", [keys.PRERELEASE_TOPOLOGY[1], "fabric.topograph.run/tier-1"])
def test_a_key_of_a_level_that_no_node_has_is_reported(key: str) -> None:
    (gang,) = gangs_of({"g": group(2, key)}, *pods(2))
    problem = f"no node has the label {key} of its PodGroup: kube-scheduler binds none of its pods"
    assert gang.problems == (problem,)


def of_priority(members: list[Pod], priority: int | None) -> list[Pod]:
    replaced = msgspec.structs.replace
    return [replaced(pod, spec=replaced(pod.spec, priority=priority)) for pod in members]


def test_pods_of_another_priority_than_their_group_are_reported() -> None:
    (gang,) = gangs_of({"g": group(2, priority=0)}, *of_priority(pods(2), 100))
    assert gang.problems == (
        "PodGroup g has priority 0, and pods of it have 100: kube-scheduler binds none of them; recreate it "
        "with the PriorityClass of all its pods",
    )


@pytest.mark.parametrize(("of_group", "of_pods"), [(100, 100), (0, None), (None, 0), (None, None)])
def test_pods_of_the_priority_of_their_group_have_no_problem(
    of_group: int | None, of_pods: int | None
) -> None:
    (gang,) = gangs_of({"g": group(2, priority=of_group)}, *of_priority(pods(2), of_pods))
    assert gang.problems == ()


def test_in_kubernetes_1_36_pods_of_another_priority_are_bound_and_have_no_problem() -> None:
    members = of_priority(pods(2), 100)
    (gang,) = gangs_of({"g": group(2, priority=0)}, *members, version=BINDS_ANY_PRIORITY)
    assert gang.problems == ()


def of_policies(*policies: str) -> list[Pod]:
    replaced = msgspec.structs.replace
    members = zip(pods(len(policies)), policies, strict=True)
    return [replaced(pod, spec=replaced(pod.spec, preemption_policy=policy)) for pod, policy in members]


@pytest.mark.parametrize(
    ("of_group", "of_pods", "expected"),
    [
        (
            "Never",
            ("", "Never"),
            "PodGroup g has preemptionPolicy Never, and pods of it have PreemptLowerPriority",
        ),
        (
            None,
            ("Never", "PreemptLowerPriority"),
            "pods of PodGroup g have preemptionPolicy Never and PreemptLowerPriority: ",
        ),
        ("PreemptLowerPriority", ("", "PreemptLowerPriority"), ""),
        (None, ("Never", "Never"), ""),
    ],
)
def test_pods_of_other_preemption_policies_than_kube_scheduler_binds_together_are_reported(
    of_group: str | None, of_pods: tuple[str, ...], expected: str
) -> None:
    """A PodGroup has one of its own where the feature gate PodGroupPreemptionPolicy is on."""
    members, there = of_policies(*of_pods), {"g": group(2)}
    there["g"] = msgspec.structs.replace(
        there["g"], spec=msgspec.structs.replace(there["g"].spec, preemption_policy=of_group)
    )
    (gang,) = gangs_of(there, *members)
    assert [each.startswith(expected) for each in gang.problems] == [True] * bool(expected)
    (gang,) = gangs_of(there, *members, version=BINDS_ANY_PRIORITY)
    assert gang.problems == ()


@pytest.mark.promise("R251")
def test_values_that_repeat_under_several_parents_are_reported() -> None:
    (gang,) = gangs_of({"g": group(2, RACK)}, *pods(2))
    (problem,) = gang.problems
    assert f"{RACK}=r0 is the label of several domains, under 2 parents" in problem
    assert gangs_of({"g": group(2, BLOCK)}, *pods(2))[0].problems == ()


@pytest.mark.promise("R251")
def test_whoever_names_the_group_of_another_gang_gets_an_event() -> None:
    both = gangs_of({"g": group(4)}, *pods(2, job="mine"), *pods(2, job="theirs"))
    assert [gang.fault for gang in both] == ["", ""]
    assert all("PodGroup g has pods of Job/" in gang.problems[0] for gang in both)


def with_gangs_of_their_own(members: list[Pod]) -> list[Pod]:
    found = []
    for pod in members:
        metadata = msgspec.structs.replace(
            pod.metadata, annotations={keys.GANG_ANNOTATION: pod.metadata.name}
        )
        found.append(msgspec.structs.replace(pod, metadata=metadata))
    return found


@pytest.mark.parametrize(
    ("count", "others"),
    [(2, "Gang/g-1"), (3, "Gang/g-1 and Gang/g-2"), (6, "Gang/g-1, Gang/g-2, Gang/g-3 and 2 more")],
)
def test_of_the_gangs_that_share_a_group_a_few_are_named(count: int, others: str) -> None:
    first = gangs_of({"g": group(2)}, *with_gangs_of_their_own(pods(count)))[0]
    assert f"PodGroup g has pods of {others} too" in first.problems[0]


def test_a_group_whose_pods_each_name_a_gang_of_their_own_delays_nobody() -> None:
    def work(count: int) -> int:
        members = with_gangs_of_their_own(pods(count))
        return work_of(lambda: gangs_of({"g": group(2)}, *members))

    assert work(800) < 8 * work(200), "by the square it would be sixteen times"


@pytest.mark.promise("R250")
@pytest.mark.parametrize(
    ("groups", "why"),
    [
        ({"in/g": group(2)}, ""),
        ({"in/g": group(3)}, "2 pods of PodGroup g exist"),
        ({}, "its PodGroup g is missing"),
        ({"in/g": group(3, parentCompositePodGroupName="whole")}, ""),
    ],
    ids=["it fits", "too few pods", "deleted", "a tree"],
)
def test_no_plan_holds_nodes_for_a_group_that_kube_scheduler_no_longer_binds(
    groups: dict[str, NativePodGroup], why: str
) -> None:
    waiting, released = pods(2)
    spec = msgspec.structs.replace(released.spec, scheduling_gates=())
    released = msgspec.structs.replace(released, spec=spec)
    cluster = Nodes(2, waiting, released)
    entries = [{"uid": f"g-{number}", "name": f"g-{number}", "node": f"n{number}"} for number in (0, 1)]
    plan = {"metadata": {"name": "g", "namespace": "in", "uid": "plan"}, "spec": {"pods": entries}}
    cluster.placements["in/g"] = msgspec.convert(plan, Placement)
    view = replace(Snapshotter(cluster, Settings()).view(), objects={GROUPS: groups})
    sent = SentReleases()
    check = NATIVE_GANGS.check_plans(HookInput(view, sent=sent))
    assert sorted(check.why_not_tried) == (["g-0", "g-1"] if why else [])
    assert all(each.startswith(why) for each in check.why_not_tried.values())
    after = with_plan_checks(view, [check], sent)
    assert list(after.planned) == ([] if why else ["g-0"])
    assert after.why_not_tried == check.why_not_tried


@pytest.mark.promise("R282")
def test_a_gang_of_a_tree_of_groups_is_left_to_kube_scheduler() -> None:
    """Also before all of its pods exist, and whatever else its PodGroup requires."""
    groups = {"g": group(4, "no-level", parentCompositePodGroupName="whole"), "h": group(1)}
    left, placed = gangs_of(groups, *pods(2, "g"), *pods(1, "h"))
    assert left.left.startswith("PodGroup g is in CompositePodGroup whole, and topogate does not place trees")
    assert (left.fault, placed.left, placed.fault) == (left.left, "", "")
    both = [is_in_tree(pod, {"in/g": groups["g"]}) for pod in (*left.gated, *placed.gated)]
    assert both == [True, True, False]


def end_of(policy: Policy, *members: Pod, labels: dict[str, dict[str, str]] | None = None) -> HookInput:
    cluster = Nodes(4, *members)
    view = Snapshotter(cluster, Settings()).view()
    return HookInput(view, policy=policy, namespaces={"in": IN} if labels is None else labels)


@pytest.mark.promise("O108")
def test_the_owner_of_a_gang_that_is_left_alone_gets_one_event_and_its_pods_are_counted() -> None:
    policy = Policy(adopts_native_gangs=False)
    given = end_of(policy, *pods(3, job="train", node="n0", **{REQUIRED: "block"}))
    orders, memory = report_left(given, NativeMemory())
    (event,) = orders.events
    assert event.reason is EventReason.LEFT_TO_KUBE_SCHEDULER
    assert event.note.startswith(f"{REQUIRED} has no effect: the configuration leaves pods")
    assert orders.gauges[LEFT.name] == {(): 3.0}
    again, _ = report_left(given, memory)
    assert (again.events, again.gauges) == ((), orders.gauges)


@pytest.mark.parametrize(
    "given",
    [
        end_of(Policy(), *pods(2, node="n0", **{REQUIRED: "block"})),
        end_of(Policy(adopts_native_gangs=False), *pods(2, node="n0")),
        end_of(Policy(adopts_native_gangs=False), *pods(2, node="n0", **{REQUIRED: "block"}), labels={}),
        end_of(
            Policy(adopts_native_gangs=False),
            *pods(2, node="n0", **{REQUIRED: "block", keys.INJECT_ANNOTATION: "false"}),
        ),
    ],
    ids=["adopted", "no-request", "namespace-not-in", "opted-out"],
)
def test_nobody_else_gets_an_event(given: HookInput) -> None:
    orders, _ = report_left(given, NativeMemory())
    assert (orders.events, orders.gauges[LEFT.name]) == ((), {(): 0.0})


def test_a_group_with_a_key_avoids_the_nodes_that_lack_its_label() -> None:
    """Nodes of two providers: kube-scheduler binds none of the group on those of the other."""
    cluster = Nodes(4, *pods(2), *pods(1, "h"))
    for number in range(4):
        family = keys.TOPOLOGY_FAMILIES[number % 2]
        cluster.label(f"n{number}", dict.fromkeys(family, "x"))
    groups = {"in/g": group(2, BLOCK), "in/h": group(1)}
    view = replace(Snapshotter(cluster, Settings()).view(), objects={GROUPS: groups})
    found = gather(view.gated, view.others, lambda _: OwnerFacts(), view.gang_of)
    rules = excluded_by_label(HookInput(view, gangs=found))
    hard = {gang.key.name: GangNodes(rules.of(gang)).hard for gang in found}
    assert hard == {"g": {"n1", "n3"}, "h": frozenset()}
