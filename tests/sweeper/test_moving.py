"""Which gangs are moved for which, and where they go: decided in memory."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from labeler.contract import keys
from tests.sweeper.cluster import places
from tests.sweeper.moves import (
    MOVABLE,
    MOVES,
    REQUIRED,
    WAITING,
    Moving,
    Scattered,
    evicted,
    moved,
    scene,
    two_gangs_to_move,
    with_limits,
)
from tests.sweeper.preemptions import budget_of_jobs, member
from webhook.configuration.settings import Settings
from webhook.inquiry.move_answer import what_moves_would_do
from webhook.kube.objects import Pod
from webhook.policy.annotations import faults
from webhook.sweeper.decide.preemption import Protection
from webhook.sweeper.decide.reservations import MOVE
from webhook.sweeper.decide.willing_gangs import most_domains
from webhook.sweeper.observe.pods import ENDING_SECONDS


@pytest.mark.promise("O418")
def test_a_willing_gang_is_moved_where_that_frees_a_block() -> None:
    orders = scene().one()
    assert places(orders) == {"large-0": "n0", "large-1": "n1"}
    assert moved(orders) == [(["ns-small-0"], ["n3"])]


@pytest.mark.promise("O418")
def test_nothing_is_moved_for_a_pod_that_has_just_replaced_one_of_an_old_gang() -> None:
    made = scene(with_limits(after_seconds=600))
    created = {"annotations": REQUIRED, "creationTimestamp": datetime.now(UTC).isoformat()}
    made.cluster.pods = [pod for pod in made.cluster.pods if not pod.metadata.name.startswith("large-")]
    made.runs("large", "n1", annotations=REQUIRED)
    made.cluster.pods.append(member("large", 1, metadata=created))
    assert moved(made.one()) == []
    made.cluster.pods[-1] = member(
        "large", 1, metadata=created | {"creationTimestamp": "2026-01-01T00:00:00Z"}
    )
    assert moved(made.one()) == [(["ns-small-0"], ["n3"])]


def make_incomplete(made: Scattered) -> None:
    """Its Placement does not say yet that all of it was bound."""
    (key,) = [key for key in made.cluster.placements if "small" in key]
    plan = made.cluster.placements[key]
    made.record(msgspec.structs.replace(plan, status=msgspec.structs.replace(plan.status, complete=False)))


def have_in_place(made: Scattered, **changed: Any) -> None:
    """The small gang has this pod in the place of its own."""
    made.cluster.pods = [pod for pod in made.cluster.pods if pod.metadata.name != "small-0"]
    made.cluster.pods.append(member("small", 0, "n0", **changed))


@pytest.mark.promise("O418")
@pytest.mark.parametrize(
    "make_unmovable",
    [
        make_incomplete,
        lambda made: have_in_place(made, metadata={"annotations": MOVABLE}, phase="Pending"),
        lambda made: have_in_place(made, metadata={"annotations": {}}),
    ],
)
def test_a_gang_that_waits_is_asked_about_as_soon_as_another_one_may_be_moved(
    make_unmovable: Callable[[Scattered], None],
) -> None:
    """Though no capacity has become free."""
    made = scene()
    pods, placements = list(made.cluster.pods), dict(made.cluster.placements)
    make_unmovable(made)
    assert moved(made.one()) == []
    made.cluster.pods, made.cluster.placements = pods, placements
    assert moved(made.placing.one(is_usage_changed=False)) == [(["ns-small-0"], ["n3"])]


@pytest.mark.promise("O418")
@pytest.mark.parametrize(
    ("settings", "of_small", "reason"),
    [
        (Settings(), {}, ""),
        (with_limits(after_seconds=10**9), {}, ""),
        (with_limits(per_hour=0), {}, "0 more may be moved within the hour (makeRoom.movesPerHour)"),
        (None, {"annotations": {}}, "but it is not movable (topogate.io/movable)"),
        (None, {"annotations": {keys.MOVABLE_ANNOTATION: "yes"}}, "but it is not movable"),
        (
            None,
            {"annotations": MOVABLE | {keys.MOVABLE_AFTER_ANNOTATION: "99999h"}},
            "once it has run for",
        ),
        (None, {"annotations": MOVABLE | {keys.MOVABLE_AFTER_ANNOTATION: "soon"}}, "is not movable"),
        (None, {"annotations": MOVABLE | {keys.MOVABLE_AFTER_ANNOTATION: "-5m"}}, "is not movable"),
        (None, {"annotations": MOVABLE | {keys.MOVABLE_AFTER_ANNOTATION: "1e9h"}}, "is not movable"),
        (None, {"annotations": MOVABLE | {keys.MOVABLE_AFTER_ANNOTATION: ""}}, "is not movable"),
        (None, {"priority": 2}, ""),
        (None, {"phase": "Pending"}, ""),
        (None, {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}, ""),
    ],
)
def test_no_other_gang_is_moved_and_the_reason_names_what_came_closest(
    settings: Settings | None, of_small: dict[str, object], reason: str
) -> None:
    made = scene(settings, **of_small)
    orders = made.one()
    assert places(orders) == {}
    found = made.reason(orders, "large")
    assert ("moving 1 gang of 1 GPU would do, but " in found) == bool(reason)
    assert reason in found


@pytest.mark.parametrize(
    ("labels", "annotations", "is_moved"),
    [
        (MOVABLE, {}, True),
        (MOVABLE, {keys.MOVABLE_ANNOTATION: "false"}, False),
        (MOVABLE | {keys.MOVABLE_AFTER_ANNOTATION: "99999h"}, {}, False),
        (MOVABLE | {keys.MOVABLE_AFTER_ANNOTATION: ""}, {}, False),
        ({}, MOVABLE, True),
    ],
)
def test_labels_of_the_namespace_count_for_pods_without_the_annotation(
    labels: dict[str, str], annotations: dict[str, str], is_moved: bool
) -> None:
    made = scene(annotations=annotations)
    made.cluster.labels = {"ns": labels}
    if is_moved:
        assert evicted(Moving(made).look()) == ["small-0"]
    else:
        assert places(made.one()) == {}


@pytest.mark.promise("O418")
def test_the_labels_of_a_namespace_move_no_gang_of_another_one() -> None:
    made = scene(annotations={})
    made.cluster.labels = {"ns": {}, "other": MOVABLE}
    orders = made.one()
    assert places(orders) == {}
    assert "moving 1 gang of 1 GPU would do, but it is not movable" in made.reason(orders, "large")


def test_the_reason_counts_the_gangs_that_are_not_moved() -> None:
    made = Scattered(4, 3)
    made.runs("one", "n0")
    made.runs("two", "n1", annotations={})
    made.runs("three", "n2", annotations={})
    made.waits("large", 4)
    expected = "moving 3 gangs of 3 GPUs would do, but 2 of them are not movable (topogate.io/movable)"
    assert expected in made.reason(made.one(), "large")
    made = Scattered(4, 3)
    made.runs("one", "n0", annotations=MOVABLE | {keys.MOVABLE_AFTER_ANNOTATION: "99999h"})
    made.runs("two", "n1", "n2", annotations={})
    made.waits("large", 4)
    found = made.reason(made.one(), "large")
    assert "moving 2 gangs of 3 GPUs would do, but 1 of them is " in found
    assert "1 of them is not movable (topogate.io/movable)" in found
    assert "1 of them is movable once it has run for 99999h (topogate.io/movable-after)" in found


def test_nothing_is_moved_for_a_gang_that_waits_for_quantity() -> None:
    made = scene()
    made.runs("third", "n1")
    orders = made.one()
    assert places(orders) == {}
    assert "moving" not in made.reason(orders, "large")


def test_a_gang_of_the_same_priority_is_moved() -> None:
    made = Scattered(2, 2)
    made.runs("small", "n0", priority=5)
    made.runs("fixed", "n2", annotations={}, priority=3000)
    made.waits("large", 2, priority=5)
    assert moved(made.one()) == [(["ns-small-0"], ["n3"])]


def test_a_gang_is_moved_to_no_more_blocks_than_it_uses() -> None:
    made = Scattered(3, 1, 1)
    made.runs("pair", "n0", "n1")
    made.waits("large", 3)
    orders = made.one()
    assert places(orders) == {}, "the pair would lie in two blocks"
    made = Scattered(3, 2)
    made.runs("pair", "n0", "n1")
    made.waits("large", 3)
    assert moved(made.one()) == [(["ns-pair-0", "ns-pair-1"], ["n3", "n4"])]


@pytest.mark.promise("O418")
@pytest.mark.parametrize(("level", "is_moved"), [("block", True), ("subblock", False)])
def test_the_new_place_of_a_gang_keeps_the_level_that_it_requires(level: str, is_moved: bool) -> None:
    """Also if its present place does not, since one of its nodes has got other labels."""
    made = Scattered(3, 2)
    for node, block in (("n1", "b0"), ("n4", "b1")):
        labels = dict(zip(keys.GCE_TOPOLOGY, (block, f"{block}-t", node), strict=True))
        made.cluster.label(node, labels)
    made.runs("pair", "n0", "n1", annotations=MOVABLE | {keys.REQUIRED_TOPOLOGY_ANNOTATION: level})
    made.waits("large", 3)
    assert moved(made.one()) == [(["ns-pair-0", "ns-pair-1"], ["n3", "n4"])] * is_moved


def test_a_moved_gang_may_use_one_more_host_and_node_and_no_more_domains_else() -> None:
    placing = Scattered(3, 2).placing
    snapshot = placing.snapshotter.snapshot(placing.view())
    assert most_domains({"n0", "n1"}, snapshot) == (1, 1, 3, 3)


@pytest.mark.promise("O419")
@pytest.mark.parametrize("deadline", [None, 60], ids=["urgent", "urgent and short"])
def test_the_recreated_pods_get_the_reserved_place_and_nobody_else_does(deadline: int | None) -> None:
    made = scene()
    (order,) = made.one().plans
    made.written(order)
    made.cluster.pods = [pod for pod in made.cluster.pods if pod.metadata.uid != "ns-small-0"]
    made.waits("urgent", 1, priority=1000, activeDeadlineSeconds=deadline)
    orders = made.one()
    assert places(orders) == {}, "the free node is reserved for the moved gang"
    assert "nodes are reserved for gangs that are moved: 1 for" in made.reason(orders, "urgent")
    made.cluster.pods.pop()
    made.waits("small", 1, again=1)
    orders = made.one()
    assert places(orders) == {"small-0": "n3"}
    (back,) = orders.plans
    assert len(back.moves) == 1
    made.written(back)
    made.waits("urgent", 1, priority=1000)
    made.one()
    assert made.placing.ledger.nodes(MOVE) == frozenset(), "the move is over"


# --- the moves of a plan ------------------------------------------------------------------------------


@pytest.mark.promise("O419")
def test_the_gangs_of_a_plan_are_moved_and_its_pods_wait_for_that() -> None:
    found = Moving().look()
    assert evicted(found) == ["one-0", "two-0"]
    assert {order.cause for order in found.evictions.values()} == {"moved"}
    assert found.waiting_uids == WAITING
    (sentence,) = found.sentences.values()
    assert sentence == "gangs are moved for it: Job/one (1 pod), Job/two (1 pod)"


@pytest.mark.parametrize(
    ("namespace", "for_moved", "for_waiting"),
    [
        (
            "ns",
            "evicted with its gang Job/pair, 2 pods, to be placed elsewhere for gang Job/large; "
            "it loses the 2.5 GPU hours since its start",
            "Job/pair (2 pods) is moved for it, and loses the 2.5 GPU hours since its start",
        ),
        (
            "other",
            "evicted with its gang Job/pair, 2 pods, to be placed elsewhere for a gang of another namespace; "
            "it loses the 2.5 GPU hours since its start",
            "a gang of another namespace (2 pods) is moved for it, "
            "and loses the 2.5 GPU hours since its start",
        ),
    ],
)
def test_both_gangs_read_how_many_gpu_hours_are_lost(
    namespace: str, for_moved: str, for_waiting: str
) -> None:
    made, pods = Scattered(3, 2), list[Pod]()
    for number, hours in enumerate((2, 0.5)):
        created = (datetime.now(UTC) - timedelta(hours=hours)).isoformat()
        metadata = {"annotations": MOVABLE, "creationTimestamp": created}
        pods.append(member("pair", number, f"n{number}", namespace=namespace, metadata=metadata))
    made.adopt(pods)
    made.waits("large", 3)
    orders = list(Moving(made).look().evictions.values())
    assert [order.reason for order in orders] == [for_moved] * 2
    assert [order.for_waiting for order in orders] == [for_waiting, ""]


@pytest.mark.promise("O420")
@pytest.mark.parametrize(("allowed", "expected"), [(2, ["one", "two"]), (1, ["four", "three"])])
def test_gangs_that_one_budget_protects_are_moved_together_only_if_it_allows_all_of_them(
    allowed: int, expected: list[str]
) -> None:
    made = Scattered(3, 3, 2)
    for node, name in (("n0", "one"), ("n1", "two"), ("n3", "three"), ("n4", "four")):
        made.runs(name, node)
    made.waits("large", 3)
    made.placing.keeps = Protection(budget_of_jobs(allowed, "one", "two"))
    assert sorted(pods[0].split("-")[1] for pods, _ in moved(made.one())) == expected


@pytest.mark.promise("O420")
def test_a_gang_reads_that_a_budget_does_not_allow_all_moves_that_it_needs() -> None:
    made = two_gangs_to_move()
    made.placing.keeps = Protection(budget_of_jobs(1, "one", "two"))
    orders = made.one()
    assert not orders.plans
    why = "PodDisruptionBudgets do not allow to evict all of them at once"
    assert f"moving 2 gangs of 2 GPUs would do, but {why}" in made.reason(orders, "large")
    assert f"{why}." in list(what_moves_would_do(made.waiting_attempt(), made.state))


@pytest.mark.promise("O420")
def test_no_gang_is_moved_while_a_budget_protects_another_one_of_the_plan() -> None:
    scene = Moving()
    scene.protect("two")
    found = scene.look()
    assert (evicted(found), found.waiting_uids) == ([], WAITING)
    (sentence,) = found.sentences.values()
    assert sentence.endswith("not yet: PodDisruptionBudget keep allows 0 of 1 evictions now")
    scene.clock.now += MOVES.bind_seconds
    assert (scene.look().dropped, evicted(scene.look())) == (WAITING, [])


@pytest.mark.promise("O418")
def test_a_gang_without_the_annotation_is_not_moved_whatever_a_plan_names() -> None:
    """Whoever may write a Placement moves nobody who does not say so."""
    scene = Moving()
    scene.change("two-0", member("two", 0, "n1"))
    found = scene.look()
    assert (evicted(found), found.waiting_uids) == ([], WAITING)
    (sentence,) = found.sentences.values()
    assert sentence.endswith("not yet: their gang has pods without topogate.io/movable")


def test_a_plan_is_given_up_where_moves_are_switched_off() -> None:
    found = Moving().look(Settings())
    assert (evicted(found), found.dropped, found.waiting_uids) == ([], WAITING, WAITING)


def test_a_plan_whose_moved_pods_never_end_is_given_up() -> None:
    """kube-scheduler cannot end them for it: they are of the same priority."""
    scene = Moving()
    scene.look()
    scene.clock.now += ENDING_SECONDS
    found = scene.look()
    assert (evicted(found), found.dropped) == ([], WAITING)


@pytest.mark.promise("O419")
def test_the_gang_is_released_once_those_that_were_moved_are_gone() -> None:
    scene = Moving()
    scene.change("one-0", None)
    found = scene.look()
    assert (evicted(found), found.waiting_uids) == (["two-0"], WAITING)
    scene.change("two-0", None)
    found = scene.look()
    assert (evicted(found), found.waiting_uids, found.dropped) == ([], frozenset(), frozenset())


@pytest.mark.promise("O420")
def test_a_gang_keeps_its_new_place_if_the_plan_for_which_it_was_moved_is_deleted() -> None:
    scene = Moving()
    made = scene.scattered
    made.one()
    assert made.placing.ledger.nodes(MOVE) == {"n3", "n4"}
    scene.change("one-0", None)
    del made.cluster.placements[scene.plan.key]
    made.cluster.pods = [pod for pod in made.cluster.pods if "large" not in pod.metadata.name]
    made.waits("urgent", 1, priority=1000)
    made.one()
    (move,) = made.placing.ledger.of_kind(MOVE)
    assert len(move.nodes) == 1, "two is not moved any more"
    made.waits("one", 1, again=1)
    assert set(places(made.one()).values()) >= move.nodes


def test_a_plan_that_is_dropped_before_a_pod_was_evicted_reserves_nothing() -> None:
    scene = Moving()
    made = scene.scattered
    made.one()
    made.cluster.pods = [pod for pod in made.cluster.pods if "large" not in pod.metadata.name]
    made.waits("other", 1)
    made.one()
    assert made.placing.ledger.nodes(MOVE) == frozenset()


# --- what people read ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "annotations", "sentences"),
    [
        (
            Settings(),
            {},
            [
                "It would fit if 1 gang, 1 pod, moved: ns/Job/small (not movable (topogate.io/movable)).",
                "No gang is moved in this cluster: its configuration has no makeRoom.",
            ],
        ),
        (
            with_limits(after_seconds=10**9),
            MOVABLE,
            [
                "It would fit if 1 gang, 1 pod, moved: ns/Job/small.",
                "They are moved once it has waited for 277777h46m40s (makeRoom.after).",
            ],
        ),
    ],
)
def test_explain_names_the_gangs_whose_move_would_help(
    settings: Settings, annotations: dict[str, str], sentences: list[str]
) -> None:
    made = scene(settings, annotations=annotations)
    made.one()
    assert list(what_moves_would_do(made.waiting_attempt(), made.state)) == sentences


@pytest.mark.parametrize(
    ("annotations", "fault"),
    [
        ({}, ""),
        ({keys.MOVABLE_ANNOTATION: "true", keys.MOVABLE_AFTER_ANNOTATION: "1h30m"}, ""),
        (
            {keys.MOVABLE_ANNOTATION: "yes"},
            'movable: "yes" has no effect; write "true" or "false"',
        ),
        ({keys.MOVABLE_AFTER_ANNOTATION: "30m"}, "topogate.io/movable-after has no effect without"),
        (
            {keys.MOVABLE_ANNOTATION: "true", keys.MOVABLE_AFTER_ANNOTATION: "30"},
            'topogate.io/movable-after: "30" is not a duration, as 30m or 1h30m, so its gang is not moved',
        ),
        (
            {keys.MOVABLE_ANNOTATION: "true", keys.MOVABLE_AFTER_ANNOTATION: ""},
            'topogate.io/movable-after: "" is not a duration',
        ),
    ],
)
def test_the_author_is_warned_of_annotations_that_move_nothing(
    annotations: dict[str, str], fault: str
) -> None:
    found = list(faults(annotations, ("block",)))
    assert len(found) == bool(fault)
    assert all(fault in each for each in found)
