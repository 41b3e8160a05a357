"""Whom a plan's victims are at each moment: from what stands in the plan and what is there, in memory."""

from typing import Any

import msgspec
import pytest

from tests.sweeper.cluster import Nodes, Placing, gpu_pod, places
from tests.sweeper.preemptions import SETTINGS, Scene, budget_of_jobs, member, plan
from tests.sweeper.sets import pinned_to
from webhook.configuration.settings import Settings
from webhook.kube.disruption_budgets import PodDisruptionBudget
from webhook.kube.objects import Pod
from webhook.scheduling.budgets import Budgets
from webhook.sweeper.decide.plan import without_overbooked
from webhook.sweeper.decide.preemption import NONE_PROTECTED, Protection, candidates
from webhook.sweeper.decide.release_queue import SentReleases
from webhook.sweeper.decide.waiting_plans import Preempting
from webhook.sweeper.observe.cache import ClusterCache
from webhook.sweeper.observe.gangs import OwnerFacts
from webhook.sweeper.observe.pods import ENDING_SECONDS
from webhook.workloads import marks


def going(found: Preempting) -> list[str]:
    return [order.pod.metadata.name for order in found.evictions.values()]


@pytest.mark.promise("R101", "O189")
def test_a_victim_is_evicted_whole_its_blocking_pods_last_and_the_plan_waits_for_it() -> None:
    found = Scene().look()
    assert going(found) == ["low-1", "low-0"]
    assert found.waiting_uids == {"ns-high-0"}
    assert found.sentences == {"ns/high": "pods of lower priority are evicted for it: Job/low (2 pods)"}
    (reason,) = {order.reason for order in found.evictions.values()}
    assert reason == "evicted with its gang Job/low, 2 pods on nodes, for gang Job/high of priority 100"


@pytest.mark.promise("R272")
def test_nobody_is_evicted_for_pods_that_cannot_be_released_yet() -> None:
    """As those whose PodGroup is not there: another may have its name, so that they wait for ever."""
    scene = Scene()
    scene.not_released = frozenset({"ns-high-0"})
    found = scene.look()
    assert (going(found), found.waiting_uids) == ([], frozenset({"ns-high-0"}))
    assert found.sentences["ns/high"].endswith("not yet: its own pods cannot be released yet")
    scene.clock.now += ENDING_SECONDS
    scene.not_released = frozenset()
    found = scene.look()
    assert (going(found), found.waiting_uids) == (["low-1", "low-0"], frozenset({"ns-high-0"}))


@pytest.mark.promise("R101")
def test_what_is_left_of_a_gang_that_is_partly_evicted_is_evicted_too() -> None:
    scene = Scene()
    scene.cluster.pods.remove(scene.low[1])
    assert going(scene.look()) == ["low-0"]


LEAVING = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


@pytest.mark.promise("R101", "O184")
@pytest.mark.parametrize("node", ["n2", ""], ids=["is bound", "was sent to a node"])
def test_a_pod_that_came_after_its_gang_was_chosen_is_evicted_first_and_with_it(node: str) -> None:
    """The leader finds it as long as one is left that the plan names."""
    scene = Scene()
    scene.joined_by(member("low", 2, node, schedulingGates=[]))
    found = scene.look()
    assert going(found) == ["low-2", "low-1", "low-0"]
    (reason,) = {order.reason for order in found.evictions.values()}
    assert f"{3 if node else 2} pods on nodes" in reason


@pytest.mark.promise("I30")
def test_a_gang_of_which_a_pod_is_about_to_be_released_is_not_begun_before_that_one_has_its_node() -> None:
    """It would be sent there, and stand alone."""
    scene = Scene()
    scene.joined_by(member("low", 2))
    found = scene.look()
    assert (going(found), found.waiting_uids) == ([], frozenset({"ns-high-0"}))
    assert found.sentences["ns/high"].endswith("not yet: pods of their gang are planned and not yet released")
    scene.cluster.pods[-1] = member("low", 2, "n2")
    assert going(scene.look()) == ["low-2", "low-1", "low-0"]


def test_a_pod_that_comes_in_the_pass_in_which_its_gang_is_evicted_is_not_placed_beside_it() -> None:
    """It would be released to a node, and stand there alone."""
    scene = Scene()
    scene.cluster.pods.append(member("low", 2))
    found = scene.look()
    assert going(found) == ["low-1", "low-0"]
    placing = Placing(scene.cluster, SETTINGS)
    placing.owner_facts = lambda key: OwnerFacts(size=3 if key.name == "low" else 1)
    assert places(placing.one()) == {"low-2": "n2"}, "there is capacity for it"
    orders = placing.one(going=found.going)
    assert places(orders) == {}
    assert orders.unasked == found.going


def test_a_gang_that_was_placed_again_while_its_old_pods_end_stays() -> None:
    scene = Scene()
    scene.cluster.pods = [member("low", n, f"n{n}", metadata=LEAVING) for n in (0, 1)] + [scene.high]
    scene.joined_by(member("low", 2, "n2"))
    found = scene.look()
    assert (going(found), found.waiting_uids) == ([], frozenset({"ns-high-0"}))


@pytest.mark.promise("I30")
def test_a_gang_that_has_got_a_pod_that_is_as_important_is_not_begun() -> None:
    scene = Scene()
    scene.joined_by(member("low", 2, "n2", priority=100))
    found = scene.look()
    assert (going(found), found.waiting_uids) == ([], frozenset({"ns-high-0"}))
    assert found.sentences["ns/high"].endswith("not yet: their gang has pods that must not be evicted for it")
    scene.clock.now += SETTINGS.bind_seconds
    found = scene.look()
    assert found.dropped == {"ns-high-0"}, "kube-scheduler would preempt a pod of it for a released one"
    assert (going(found), found.waiting_uids) == ([], found.dropped)


@pytest.mark.promise("O183")
def test_the_plan_is_released_once_nobody_blocks_it() -> None:
    scene = Scene()
    scene.cluster.pods = [scene.high]
    found = scene.look()
    assert (going(found), found.waiting_uids) == ([], frozenset())


@pytest.mark.promise("O183")
def test_the_plan_waits_for_victims_that_take_their_time_to_end() -> None:
    scene = Scene()
    scene.cluster.pods = [member("low", n, f"n{n}", metadata=LEAVING) for n in (0, 1)] + [scene.high]
    found = scene.look()
    assert (going(found), found.waiting_uids) == ([], frozenset({"ns-high-0"}))


@pytest.mark.promise("I1")
def test_who_was_chosen_is_evicted_though_others_would_be_cheaper_by_now() -> None:
    scene = Scene()
    scene.cluster.pods.append(member("cheap", 0, "n2"))
    key, cheap = plan("cheap", {"ns-cheap-0": "n2"})
    scene.cluster.placements[key] = cheap
    assert going(scene.look()) == ["low-1", "low-0"]
    placing = Placing(scene.cluster, SETTINGS)
    placing.owner_facts = lambda _: OwnerFacts(size=1)
    assert placing.one().plans == ()


@pytest.mark.promise("I30")
def test_nobody_is_evicted_for_a_gang_that_is_deleted() -> None:
    scene = Scene()
    scene.cluster.pods.remove(scene.high)
    assert going(scene.look()) == []


@pytest.mark.promise("I30")
def test_nobody_is_evicted_once_the_capacity_is_free() -> None:
    scene = Scene()
    (node,) = [each for name, each in scene.cluster.nodes.items() if name == "n0"]
    status = {"allocatable": {"nvidia.com/gpu": "2", "pods": "110"}}
    scene.cluster.nodes["n0"] = msgspec.convert({"metadata": {"name": "n0"}, "status": status}, type(node))
    found = scene.look()
    assert (going(found), found.waiting_uids) == ([], frozenset())


@pytest.mark.promise("O181")
@pytest.mark.parametrize(
    "high",
    [
        member("high", 0, priority=1),
        member("high", 0, priority=100, preemptionPolicy="Never"),
    ],
    ids=["of the same priority", "that never preempts"],
)
def test_nobody_is_evicted_for_a_pod(high: Pod) -> None:
    scene = Scene()
    scene.cluster.pods = [*scene.low, high]
    found = scene.look()
    assert (going(found), found.waiting_uids) == ([], frozenset())


@pytest.mark.promise("O181")
@pytest.mark.parametrize(("policy", "victims"), [("PreemptLowerPriority", 1), ("Never", 0)])
def test_a_gang_whose_class_never_preempts_gets_no_victims(policy: str, victims: int) -> None:
    low = gpu_pod("low", node="n0", priority=1)
    high = gpu_pod("high", priority=100, preemptionPolicy=policy)
    orders = Placing(Nodes(1, low, high), SETTINGS).one()
    assert len(orders.plans) == victims


DAEMON_SET = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": True}


@pytest.mark.parametrize(
    ("more", "victims"),
    [
        ({"node": "n0"}, 1),
        ({"node": "n0", "affinity": pinned_to("n0"), "metadata": {"ownerReferences": [DAEMON_SET]}}, 0),
        ({"schedulingGates": [], "affinity": pinned_to("n0")}, 0),
    ],
    ids=["bound", "of a DaemonSet, which recreates it", "released and not bound yet"],
)
def test_only_a_bound_pod_that_does_not_come_again_is_a_victim(more: dict[str, Any], victims: int) -> None:
    cluster = Nodes(1, gpu_pod("low", priority=1, **more), gpu_pod("high", priority=100))
    cluster.placements = dict([plan("low", {"uid-low": "n0"})])
    orders = Placing(cluster, SETTINGS).one()
    assert len(orders.plans) == victims


@pytest.mark.promise("I30")
def test_a_plan_that_names_gangs_elsewhere_evicts_none_of_them() -> None:
    scene = Scene()
    other = member("other", 0, "n2", namespace="theirs")
    scene.cluster.pods.append(other)
    scene.plan_for(pods=["ns-low-0", "ns-low-1", "theirs-other-0"], whole=True)
    key, theirs = plan("other", {"theirs-other-0": "n2"}, "theirs")
    scene.cluster.placements[key] = theirs
    assert sorted(going(scene.look())) == ["low-0", "low-1"]
    scene.plan_for(pods=["theirs-other-0"], whole=True)
    scene.cluster.placements[key] = theirs
    assert going(scene.look()) == []


@pytest.mark.promise("O199")
def test_pods_that_topogate_never_gated_are_left_to_kube_scheduler() -> None:
    scene = Scene()
    del scene.cluster.placements["ns/low"]
    found = scene.look()
    assert (going(found), found.waiting_uids) == ([], frozenset())


@pytest.mark.promise("S36", "O189")
def test_gangs_of_other_namespaces_are_not_named_to_one_another() -> None:
    scene = Scene()
    low = [member("secret", n, f"n{n}", namespace="theirs") for n in (0, 1)]
    scene.cluster.pods = [*low, scene.high]
    uids = [pod.metadata.uid for pod in low]
    scene.plan_for(pods=uids, whole=True)
    key, theirs = plan("secret", dict(zip(uids, ("n0", "n1"), strict=True)), "theirs")
    scene.cluster.placements[key] = theirs
    found = scene.look()
    assert len(found.evictions) == 2
    assert all("high" not in order.reason for order in found.evictions.values())
    assert all("secret" not in sentence and "theirs" not in sentence for sentence in found.sentences.values())


def budget(allowed: int, *more: str) -> Budgets:
    """A budget for the pods of low. more: the uids of pods of which each has another one."""
    low = {marks.JOB_NAME_LABEL: "low"}
    bodies = [
        {
            "metadata": {"name": name, "namespace": "ns", "uid": name},
            "spec": {"selector": {"matchLabels": labels}},
            "status": {"disruptionsAllowed": allowed},
        }
        for name, labels in (("keep", low), *((uid, {"uid": uid}) for uid in more))
    ]
    return Budgets(msgspec.convert(bodies, list[PodDisruptionBudget]))


@pytest.mark.promise("S16", "O180")
def test_no_pod_of_a_gang_is_evicted_if_a_budget_protects_one() -> None:
    scene = Scene()
    scene.budgets = budget(1)
    found = scene.look()
    assert (going(found), found.waiting_uids) == ([], frozenset({"ns-high-0"}))
    assert found.sentences["ns/high"].endswith(
        "not yet: PodDisruptionBudget keep allows 1 of 2 evictions now"
    )


@pytest.mark.promise("O180")
def test_no_pod_of_a_gang_is_evicted_if_one_has_several_budgets() -> None:
    """The API server refuses the eviction of such a pod, whatever they allow."""
    scene = Scene()
    labelled = msgspec.structs.replace(
        scene.low[0].metadata, labels=scene.low[0].metadata.labels | {"uid": "ns-low-0"}
    )
    scene.cluster.pods[0] = msgspec.structs.replace(scene.low[0], metadata=labelled)
    scene.budgets = budget(5, "ns-low-0")
    found = scene.look()
    assert (going(found), found.waiting_uids) == ([], frozenset({"ns-high-0"}))
    sentence = "several PodDisruptionBudgets select one of its pods, which the eviction API then refuses"
    assert found.sentences["ns/high"].endswith(f"not yet: {sentence}")
    scene.budgets = budget(5, "ns-low-2")
    assert len(going(scene.look())) == 2


def test_a_gang_that_has_lost_a_pod_by_itself_loses_no_more_than_a_budget_allows() -> None:
    scene = Scene()
    scene.low.append(member("low", 2, "n2"))
    scene.cluster.pods = [*scene.low[:2], scene.high]
    scene.plan_for(pods=["ns-low-0", "ns-low-1", "ns-low-2"], whole=True)
    lost, three = plan("low", {f"ns-low-{number}": f"n{number}" for number in range(3)})
    scene.cluster.placements[lost] = three
    gang = Placing(scene.cluster, SETTINGS).view().gang_of(scene.low[0])
    scene.cluster.placements[gang.placement_key] = three
    scene.budgets = budget(1)
    found = scene.look()
    assert (going(found), found.waiting_uids) == ([], frozenset({"ns-high-0"}))
    scene.budgets = budget(2)
    assert len(going(scene.look())) == 2


def test_no_gang_is_begun_before_it_is_known_whether_a_budget_keeps_it() -> None:
    """A leader that has just started would have the API server refuse half of it."""
    nobody: Any = None  # nothing is asked of the API server before start()
    scene = Scene()
    scene.budgets = ClusterCache(nobody).budgets()
    found = scene.look()
    assert (going(found), found.waiting_uids) == ([], frozenset({"ns-high-0"}))
    assert found.sentences["ns/high"].endswith("not yet: the PodDisruptionBudgets have not been read")


@pytest.mark.promise("O180")
def test_a_gang_that_a_budget_allows_is_evicted() -> None:
    scene = Scene()
    scene.budgets = budget(2)
    assert len(going(scene.look())) == 2


def test_a_gang_that_is_evicted_for_two_others_is_evicted_once() -> None:
    scene = Scene()
    scene.budgets = budget(2)
    scene.cluster.pods.append(member("next", 0, priority=100))
    victims = [{"pods": ["ns-low-0", "ns-low-1"], "whole": True}]
    key, after = plan("next", {"ns-next-0": "n1"}, preempts=True, victims=victims)
    scene.cluster.placements[key] = after
    found = scene.look()
    assert sorted(going(found)) == ["low-0", "low-1"]
    assert found.waiting_uids == {"ns-high-0", "ns-next-0"}
    assert all("not yet" not in sentence for sentence in found.sentences.values())


@pytest.mark.promise("R204")
def test_nobody_is_evicted_where_preemption_is_switched_off() -> None:
    scene = Scene()
    found = scene.look(Settings(preempt=False))
    assert (going(found), found.waiting_uids) == ([], frozenset())


@pytest.mark.promise("O191")
def test_what_a_budget_keeps_for_long_is_left_to_kube_scheduler() -> None:
    scene = Scene()
    scene.budgets = budget(0)
    scene.look()
    scene.clock.now += SETTINGS.bind_seconds
    found = scene.look()
    assert (going(found), found.waiting_uids) == ([], frozenset())


@pytest.mark.parametrize(
    ("priority", "planned"), [(1, {"n0"}), (99, {"n0"}), (100, set[str]()), (200, set[str]())]
)
def test_a_plan_that_preempts_holds_on_a_node_as_long_as_none_but_lower_pods_fill_it(
    priority: int, planned: set[str]
) -> None:
    """As one that was given up for a while: others of its priority may have been given the node meanwhile."""
    scene = Scene()
    scene.cluster.pods = [member("other", 0, "n0", priority=priority), scene.high]
    placing = Placing(scene.cluster, SETTINGS)
    view = placing.view()
    left = without_overbooked(view, placing.snapshotter.snapshot(view), SentReleases())
    assert {each.node for each in left.planned.values()} == planned


@pytest.mark.promise("R101")
@pytest.mark.parametrize("is_leaving", [False, True], ids=["stays", "ends"])
@pytest.mark.parametrize("is_bound", [True, False], ids=["bound", "released"])
def test_a_plan_that_preempts_is_invalid_once_another_gang_of_ours_has_got_its_node(
    is_bound: bool, is_leaving: bool
) -> None:
    """A new leader finds the plan that the earlier one had dropped: it would preempt a single pod."""
    scene = Scene()
    place = {"node": "n0"} if is_bound else {"schedulingGates": [], "affinity": pinned_to("n0")}
    other = member("other", 0, **place, metadata=LEAVING if is_leaving else {})
    scene.cluster.pods = [other, scene.high]
    scene.cluster.placements |= dict([plan("other", {"ns-other-0": "n0"})])
    placing = Placing(scene.cluster, SETTINGS)
    view = placing.view()
    left = without_overbooked(view, placing.snapshotter.snapshot(view), SentReleases())
    assert left.planned.keys() == ({"ns-high-0"} if is_leaving else set())


@pytest.mark.parametrize("metadata", [LEAVING, {}], ids=["ends", "stays"])
def test_a_plan_is_invalid_once_a_replacement_of_its_victim_has_got_the_node(
    metadata: dict[str, Any],
) -> None:
    """The rest of the victim's gang is elsewhere, so that it is not evicted for the plan any more."""
    scene = Scene()
    scene.cluster.pods = [member("low", 1, "n1", metadata=metadata), member("low", 2, "n0"), scene.high]
    scene.cluster.placements |= dict([plan("low", {"ns-low-1": "n1", "ns-low-2": "n0"})])
    placing = Placing(scene.cluster, SETTINGS)
    view = placing.view()
    left = without_overbooked(view, placing.snapshotter.snapshot(view), SentReleases())
    assert not left.planned


def test_a_cpu_only_pod_of_lower_priority_does_not_make_the_plan_of_its_gang_invalid() -> None:
    """Nothing is evicted for it: the victims need only be of lower priority than the pods with GPUs."""
    scene = Scene()
    scene.cluster.pods = [member("low", n, f"n{n}", priority=50) for n in (0, 1)]
    launcher = member("high", 1, priority=0, gpus=0)
    scene.cluster.pods += [scene.high, launcher]
    victims = [{"pods": ["ns-low-0", "ns-low-1"], "whole": True}]
    entries = {"ns-high-0": "n0", "ns-high-1": "n0"}
    scene.cluster.placements |= dict([plan("high", entries, preempts=True, victims=victims)])
    placing = Placing(scene.cluster, SETTINGS)
    view = placing.view()
    left = without_overbooked(view, placing.snapshotter.snapshot(view), SentReleases())
    assert left.planned.keys() == set(entries)
    assert going(scene.look()) == ["low-1", "low-0"]


@pytest.mark.parametrize(("priority", "planned"), [(1, {"next", "high"}), (100, set[str]())])
def test_victims_do_not_count_against_other_plans_for_free_slots_of_their_node(
    priority: int, planned: set[str]
) -> None:
    """Such a plan would be made elsewhere later, perhaps by preempting other pods for nothing.

    Any tenant may have written a Placement: pods of no lower priority than those that wait are no victims.
    """
    scene = Scene()
    scene.cluster = Nodes(1, gpus=2)
    waiting = [member(name, 0, priority=100) for name in ("high", "next")]
    scene.cluster.pods = [member("low", 0, "n0", priority=priority), *waiting]
    scene.plan_for(pods=["ns-low-0"], whole=True)
    scene.cluster.placements |= dict([plan("next", {"ns-next-0": "n0"})])
    placing = Placing(scene.cluster, SETTINGS)
    view = placing.view()
    left = without_overbooked(view, placing.snapshotter.snapshot(view), SentReleases())
    assert left.planned.keys() == {f"ns-{name}-0" for name in planned}


def placing_in_the_place_of_low(*more: Pod) -> Placing:
    """The gang that waits fits where "low" is alone: the third node has a more important pod."""
    scene = Scene()
    scene.cluster.placements = dict([plan("low", {"ns-low-0": "n0", "ns-low-1": "n1"})])
    scene.cluster.pods += [gpu_pod("stranger", node="n2", priority=100), *more]
    placing = Placing(scene.cluster, SETTINGS)
    placing.owner_facts = lambda _: OwnerFacts(size=1)
    return placing


@pytest.mark.promise("O183", "W32")
def test_the_plan_names_whole_gangs_and_releases_nobody_at_once() -> None:
    placing = placing_in_the_place_of_low()
    (made,) = placing.one().plans
    assert made.preempts
    assert made.now == ()
    assert [(sorted(group.pods), group.whole) for group in made.victims] == [(["ns-low-0", "ns-low-1"], True)]


def test_a_second_gang_of_a_pass_uses_what_the_first_one_s_victims_leave() -> None:
    placing = placing_in_the_place_of_low(member("next", 0, priority=100))
    first, second = placing.one().plans
    assert {entry.node for entry in (*first.entries, *second.entries)} == {"n0", "n1"}
    assert first.victims == second.victims


@pytest.mark.parametrize("is_of_another_pass", [False, True])
def test_many_gangs_that_preempt_on_one_node_name_each_victim_once_and_all_get_their_place(
    is_of_another_pass: bool,
) -> None:
    """Each plan also names the victims of earlier plans there: repeated, they doubled from plan to plan."""
    low = [member(f"low-{number}", 0, "n0") for number in range(20)]
    high = [member(f"high-{number}", 0, priority=100) for number in range(20)]
    cluster = Nodes(1, *low, *high[: 10 if is_of_another_pass else 20], gpus=20)
    placing = Placing(cluster, SETTINGS)
    placing.owner_facts = lambda _: OwnerFacts(size=1)
    plans = placing.one().plans
    if is_of_another_pass:
        for each in plans:
            pods = {entry.uid: entry.node for entry in each.entries}
            name, victims = each.gang.key.placement_name, msgspec.to_builtins(list(each.victims))
            cluster.placements |= dict([plan(name, pods, preempts=True, victims=victims)])
        cluster.pods = [*low, *high]
        plans = (*plans, *placing.one().plans)
    assert len(plans) == 20
    named = [uid for group in plans[-1].victims for uid in group.pods]
    assert sorted(named) == sorted(pod.metadata.uid for pod in low)


class WithBudget(Scene):
    """The Job low has three pods, of which two are enough, and can spare the one on n0."""

    def __init__(self) -> None:
        super().__init__()
        self.low.append(member("low", 2, "n2"))
        self.cluster.pods.append(self.low[2])
        self.spares("ns-low-0")

    def spares(self, *pods: str) -> None:
        self.plan_for(pods=list(pods))
        gang = Placing(self.cluster, SETTINGS).view().gang_of(self.low[0])
        three = {f"ns-low-{number}": f"n{number}" for number in range(3)}
        _, made = plan(gang.placement_name, three, minimum=2)
        self.cluster.placements = {made.key: made, "ns/high": self.cluster.placements["ns/high"]}


@pytest.mark.promise("O180")
def test_an_elastic_gang_loses_what_it_can_spare() -> None:
    assert going(WithBudget().look()) == ["low-0"]


@pytest.mark.parametrize("lost", [1, 2])
def test_an_elastic_gang_that_has_lost_others_since_it_was_chosen_loses_none(lost: int) -> None:
    scene = WithBudget()
    scene.cluster.pods.remove(scene.low[lost])
    found = scene.look()
    assert (going(found), found.waiting_uids) == ([], frozenset({"ns-high-0"}))
    assert found.sentences["ns/high"].endswith("not yet: their gang would fall below its minimum")


def test_what_a_gang_was_to_spare_stays_once_the_capacity_is_free() -> None:
    scene = WithBudget()
    scene.cluster.pods[0] = member("low", 0, "n0", metadata=LEAVING)
    scene.cluster.pods.append(member("low", 3, "n0"))
    status = {"allocatable": {"nvidia.com/gpu": "2", "pods": "110"}}
    scene.cluster.nodes["n0"] = msgspec.convert(
        {"metadata": {"name": "n0"}, "status": status}, type(scene.cluster.nodes["n0"])
    )
    scene.spares("ns-low-0", "ns-low-3")
    ((key, made),) = [each for each in scene.cluster.placements.items() if each[0] != "ns/high"]
    entry = msgspec.structs.replace(made.spec.pods[0], name="ns-low-3", uid="ns-low-3")
    spec = msgspec.structs.replace(made.spec, pods=[*made.spec.pods, entry])
    scene.cluster.placements[key] = msgspec.structs.replace(made, spec=spec)
    assert going(scene.look()) == []


@pytest.mark.parametrize(("below", "units"), [(1, 0), (2, 1)])
def test_gangs_are_looked_at_as_victims_only_where_some_pod_has_a_lower_priority(
    below: int, units: int
) -> None:
    """Most gangs may evict nobody, and a cluster has many pods."""
    low, cluster = member("low", 0, "n0"), Nodes(1)
    cluster.pods = [low]
    cluster.placements = dict([plan("low", {low.metadata.uid: "n0"})])
    view = Placing(cluster, SETTINGS).view()
    found = candidates(view, below, frozenset(), NONE_PROTECTED)
    assert (len(found.units), "bound_gangs" in vars(view)) == (units, bool(units))


# --- budgets of several victims -----------------------------------------------------------------------


def of_pairs(budgets: Budgets, *jobs: str) -> Placing:
    """These Jobs run two pods each, with a GPU, on nodes of their own: n0 and n1 are those of the first."""
    cluster = Nodes(2 * len(jobs))
    for number, job in enumerate(jobs):
        nodes = [f"n{2 * number + index}" for index in range(2)]
        cluster.pods += [member(job, index, node) for index, node in enumerate(nodes)]
        key, made = plan(job, {f"ns-{job}-{index}": node for index, node in enumerate(nodes)})
        cluster.placements[key] = made
    placing = Placing(cluster, SETTINGS)
    placing.keeps = Protection(budgets)
    return placing


def victims(placing: Placing, name: str, count: int) -> set[str]:
    """The Jobs that are evicted for another one of so many pods."""
    placing.cluster.pods += [member(name, index, priority=100) for index in range(count)]
    placing.owner_facts = lambda key: OwnerFacts(size=count)
    (made,) = placing.one().plans
    key, written = plan(name, {}, preempts=True)
    spec = msgspec.structs.replace(written.spec, pods=list(made.entries), victims=list(made.victims))
    placing.cluster.placements[key] = msgspec.structs.replace(written, spec=spec)
    return {uid.split("-")[1] for group in made.victims for uid in group.pods}


@pytest.mark.promise("O180")
@pytest.mark.parametrize(
    ("allowed", "protected", "expected"),
    [
        (4, ("a", "b"), {"a", "b"}),
        (2, ("a", "b"), {"a", "c"}),
        (2, ("b", "c"), {"a", "b"}),
        (4, ("a", "b", "c"), {"a", "b"}),
        (2, ("a", "b", "c"), {"a", "b"}),
    ],
    ids=["enough", "one of the first two", "one of the others", "two of three", "one of all"],
)
def test_gangs_that_one_budget_protects_are_evicted_together_only_if_it_allows_all_of_them(
    allowed: int, protected: tuple[str, ...], expected: set[str]
) -> None:
    """Where no others suffice it is left to kube-scheduler, as for gangs whose own budget protects them."""
    placing = of_pairs(budget_of_jobs(allowed, *protected), "a", "b", "c")
    assert victims(placing, "high", 4) == expected


@pytest.mark.promise("O180")
def test_a_gang_is_no_victim_where_the_victims_of_another_plan_have_used_up_its_budget() -> None:
    placing = of_pairs(budget_of_jobs(2, "a", "b"), "a", "b", "c")
    assert [victims(placing, name, 2) for name in ("first", "second")] == [{"a"}, {"c"}]
