"""Pods whose controller is gone are no gang: they are neither placed nor released, and evict nobody."""

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec
import pytest

from hack.local.cluster import Cluster
from labeler.contract import keys
from labeler.contract.event_reasons import EventReason
from tests.definitions import define, wait_gone, wait_served
from tests.support import delete, exists, wait_for_pods
from tests.sweeper.at_work import Pods, create_job, create_pod, is_gated, named, run_all, sweep, template
from tests.sweeper.clock import Clock
from tests.sweeper.cluster import Nodes, Placing, gpu_pod, places
from tests.sweeper.owners import PATH, AnsweringApi, found, owner, pod_of, reference
from webhook.configuration.settings import Settings
from webhook.inquiry.cluster_state import ClusterReading
from webhook.inquiry.explanation import explain
from webhook.kube import placements
from webhook.kube.client import MERGE_PATCH, Api, ApiError
from webhook.kube.objects import Metadata, OwnerReference, Pod
from webhook.kube.placements import Placement, PlacementSpec
from webhook.kube.plan_pods import PlannedPod
from webhook.sweeper.context import Silent
from webhook.sweeper.decide.orders import Cause
from webhook.sweeper.observe.gangs import gather
from webhook.sweeper.observe.lost_owners import OwnerState, lost_owner, lost_owners
from webhook.sweeper.observe.membership import LostOwner
from webhook.sweeper.observe.owner_existence import OwnerExistence
from webhook.sweeper.observe.snapshotter import Snapshotter
from webhook.workloads import marks

SETTINGS = Settings(settle_seconds=0, patience_seconds=0)
JOBSET_UID = "jobset.sigs.k8s.io/jobset-uid"
DELETED = LostOwner("its controller Job/big is deleted")


def placing_on(cluster: Nodes, lost: LostOwner | None) -> Placing:
    """Passes on a cluster where the owner of the pods named big is lost."""
    made = Placing(cluster, SETTINGS)
    made.snapshotter = Snapshotter(
        cluster, SETTINGS, owners=lambda: lambda pod: lost if pod.metadata.name.startswith("big") else None
    )
    return made


# --- which controllers count --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        ({"j": found("j", "", False, owner("JobSet", "s")), "s": found("s")}, ""),
        ({"j": found("j", "", False, owner("JobSet", "s")), "s": OwnerState.ABSENT}, "JobSet/s is deleted"),
        (
            {"j": found("j", "", False, owner("JobSet", "s")), "s": found("s", "", True)},
            "JobSet/s is being deleted",
        ),
        ({"j": found("j", "", True)}, "Job/j is being deleted"),
        ({"j": OwnerState.ABSENT}, "Job/j is deleted"),
        ({"j": OwnerState.UNREADABLE}, ""),
        ({"j": OwnerState.UNDEFINED}, "Job/j is deleted with the definition of its kind"),
        ({"j": OwnerState.UNCONFIRMED}, "is asked whether its controller Job/j exists"),
        ({"j": found("j", "", False, owner("Job", "j"))}, ""),
    ],
)
def test_a_controller_counts_at_every_level(
    objects: Mapping[str, Metadata | OwnerState], expected: str
) -> None:
    """Circles of references end, and what may not be read counts as existing."""
    lost = lost_owner(pod_of("Job", "j"), lambda _, reference: objects[reference.name])
    assert (expected in lost.sentence) if lost is not None else not expected


def pods_of_many_owners() -> list[Pod]:
    """Of two Jobs, without owner, left behind by one of two StatefulSets, and with a size of their own."""
    marked = {"labels": {marks.STATEFUL_SET_POD_LABEL: "one-0"}}
    other = {"labels": {marks.STATEFUL_SET_POD_LABEL: "two-0"}}
    sized = marked | {"annotations": {keys.GANG_SIZE_ANNOTATION: "2"}}
    alone = [gpu_pod(f"p{number}", metadata=each) for number, each in enumerate((marked, other, sized, {}))]
    return [pod_of("Job", name, number) for name in ("j", "k") for number in range(3)] + alone


@pytest.mark.parametrize("lost", [(), ("j",), ("k",), ("j", "k")])
def test_one_pod_of_each_owner_stands_for_the_others(lost: Sequence[str]) -> None:
    def answer(pod: Pod) -> LostOwner | None:
        asked.append(pod.metadata.name)
        return lost_owner(
            pod, lambda _, owner: OwnerState.ABSENT if owner.name in lost else found(owner.name)
        )

    asked: list[str] = []
    pods = pods_of_many_owners()
    jobs = pods[:6]
    for some in (pods, pods[::-1], jobs):
        assert lost_owners([some], answer).by_uid == lost_owners([some], answer, tuple).by_uid
    expected = {pod.metadata.uid: each for pod in jobs if (each := answer(pod)) is not None}
    assert lost_owners([jobs], answer).by_uid == expected
    asked.clear()
    lost_owners([jobs], answer)
    assert len(asked) == 2 or lost, "of many pods with one owner, one is asked about"


# --- what a pass does with them -----------------------------------------------------------------------


def test_what_is_left_of_a_deleted_gang_evicts_nobody_and_is_not_placed() -> None:
    running = [gpu_pod(f"low-{n}", node=f"n{n}", priority=1) for n in range(2)]
    left = [pod_of("Job", "big", number, priority=100) for number in range(2)]
    orders = placing_on(Nodes(3, *running, *left), DELETED).one()
    assert not orders.plans
    assert [(each.cause, each.reason) for each in orders.outcomes] == [
        (Cause.OWNER_DELETED, "its controller Job/big is deleted")
    ]
    assert not any(each.is_news for each in orders.outcomes), "nobody needs an Event who deletes a Job"
    assert len(places(placing_on(Nodes(3, *running, *left), None).one())) == 2


def test_a_gang_waits_while_nobody_has_confirmed_that_its_controller_is_gone() -> None:
    unconfirmed = LostOwner("its controller may be gone", is_confirmed=False)
    orders = placing_on(Nodes(1, pod_of("Job", "big")), unconfirmed).one()
    assert not orders.plans
    assert [(each.cause, each.reason) for each in orders.outcomes] == [
        (Cause.INCOMPLETE, "its controller may be gone")
    ]


@pytest.mark.promise("R331")
@pytest.mark.parametrize("is_confirmed", [True, False], ids=["deleted", "asked for"])
def test_at_no_moment_of_a_garbage_collection_does_a_big_gang_take_evict_or_reserve_anything(
    is_confirmed: bool,
) -> None:
    """20 pods a second of 500; the passes share their memory, as of one leader."""
    running = [gpu_pod(f"low-{n}", node=f"n{n}", priority=1) for n in range(4)]
    cluster = Nodes(8, *running)
    placing = placing_on(cluster, DELETED._replace(is_confirmed=is_confirmed))
    placing.settings = Settings(settle_seconds=0, patience_seconds=0, reserve_seconds=0)
    left = [pod_of("Job", "big", number, priority=100) for number in range(500)]
    for count in [*range(500, 20, -20), *range(20, 0, -1)]:
        cluster.pods = [*running, *left[:count]]
        orders = placing.one()
        placing.clock.now += 1
        assert (orders.plans, len(orders.outcomes), placing.reserved) == ((), 1, frozenset())
        assert not any(each.is_news for each in orders.outcomes), "no Event"


@pytest.mark.promise("R331")
@pytest.mark.parametrize("is_asked_in_time", [True, False])
@pytest.mark.parametrize("planned", [0, 500])
def test_sweepers_that_begin_amid_a_garbage_collection_take_evict_and_reserve_nothing_either(
    planned: int, is_asked_in_time: bool
) -> None:
    """Each second a new one, which knows nothing of those before it and sees no Job; planned: of its pods."""
    running = [gpu_pod(f"low-{n}", node=f"n{n}", priority=1) for n in range(4)]
    left = [pod_of("Job", "big", number, priority=100) for number in range(500)]
    entries = [
        PlannedPod(each.metadata.name, each.metadata.uid, f"n{number % 4}")
        for number, each in enumerate(left[:planned])
    ]
    spec = PlacementSpec(gang="Job/big", gang_id="uid-big", size=500, pods=entries)
    for count in [*range(480, 20, -20), *range(20, 0, -1)]:
        cluster = Nodes(8, *running, *left[-count:])
        if entries:
            cluster.placements["ns/p"] = Placement(metadata=Metadata(name="p", namespace="ns"), spec=spec)
        owners = existence(AnsweringApi({}))
        placing = Placing(cluster, Settings(settle_seconds=0, patience_seconds=0, reserve_seconds=0))
        placing.snapshotter = Snapshotter(cluster, placing.settings, owners=owners.lookup)
        for is_known in (False, is_asked_in_time):
            orders = placing.one()
            has_reason = is_known or not planned  # else it waits by its plan
            assert (orders.plans, len(orders.outcomes)) == ((), int(has_reason))
            assert not placing.reserved
            assert not any(each.is_news for each in orders.outcomes), "no Event"
            assert placing.view().not_released == {each.metadata.uid for each in left[-count:]}
            if is_asked_in_time:
                owners.answer_all()
            placing.clock.now += 1


def test_a_plan_for_pods_of_a_deleted_owner_holds_no_node_and_is_not_released() -> None:
    pod = pod_of("Job", "big")
    cluster = Nodes(1, pod)
    entry = PlannedPod(name=pod.metadata.name, uid=pod.metadata.uid, node="n0")
    spec = PlacementSpec(gang="Job/big", gang_id="uid-big", size=1, pods=[entry], later_pod_nodes=["n0"])
    cluster.placements["ns/p"] = Placement(metadata=Metadata(name="p", namespace="ns"), spec=spec)
    assert placing_on(cluster, None).view().planned.keys() == {pod.metadata.uid}
    view = placing_on(cluster, DELETED).view()
    assert not view.planned
    assert view.not_released == {pod.metadata.uid}
    unconfirmed = placing_on(cluster, LostOwner("asked", is_confirmed=False)).view()
    assert unconfirmed.planned, "its node is given to nobody before the API server has answered"
    assert unconfirmed.not_released == {pod.metadata.uid}


def test_pods_of_a_deleted_owner_are_no_members_of_the_gang_that_takes_its_name() -> None:
    """Ray clusters and training jobs are known by their names alone."""
    old, new = (
        gpu_pod(name, metadata={"uid": name, "labels": {"ray.io/cluster": "r"}}) for name in ("old", "new")
    )
    facts = Placing(Nodes(0), SETTINGS).owner_facts
    lost = {"old": DELETED}
    gangs = gather([old, new], [], facts, lost_owner=lambda pod: lost.get(pod.metadata.name))
    assert [[pod.metadata.name for pod in gang.pods] for gang in gangs] == [["new"]]


@pytest.mark.promise("R331")
@pytest.mark.parametrize("is_asked", [True, False], ids=["asked for", "being deleted"])
@pytest.mark.parametrize(
    ("kind", "marks_of_gang", "is_owned"),
    [
        pytest.param(
            "JobSet",
            {"labels": {marks.JOBSET_NAME_LABEL: "s", JOBSET_UID: "uid-s"}},
            True,
            id="Jobs of a JobSet",
        ),
        pytest.param(
            "JobSet",
            {
                "labels": {marks.JOBSET_NAME_LABEL: "s", JOBSET_UID: "uid-s"},
                "annotations": {keys.GANG_ANNOTATION: "g"},
            },
            True,
            id="Jobs of a JobSet in a gang of their author's",
        ),
        pytest.param(
            "Workflow", {"annotations": {keys.GANG_ANNOTATION: "g"}}, False, id="pods of a Workflow"
        ),
        pytest.param(
            "Workflow",
            {"annotations": {keys.GANG_ANNOTATION: "g", keys.GANG_SIZE_ANNOTATION: "4"}},
            False,
            id="pods of a Workflow that state their number",
        ),
    ],
)
def test_pods_that_are_left_behind_wait_until_the_last_of_their_gang_is(
    kind: str, marks_of_gang: dict[str, Any], is_owned: bool, is_asked: bool
) -> None:
    """However long the garbage collector takes; then they are a gang as they are."""

    def with_owner(number: int, is_left: bool) -> Pod:
        above = owner("Job", f"j{number}") if is_owned else owner(kind, "s")
        owners = [] if is_left and not is_owned else [above]
        return gpu_pod(f"big-{number}", metadata=marks_of_gang | {"ownerReferences": owners})

    for left in range(5):
        jobs = {f"j{n}": found(f"j{n}", "", False, *[owner(kind, "s")] * (n >= left)) for n in range(4)}
        objects = {**jobs, "s": OwnerState.UNCONFIRMED if is_asked else found("s", "", True)}
        pods = [with_owner(number, number < left) for number in range(4)]
        facts = Placing(Nodes(0), SETTINGS).owner_facts

        def find(
            _: str, of: OwnerReference, objects: Mapping[str, Metadata | OwnerState] = objects
        ) -> Metadata | OwnerState:
            return objects[of.name]

        lost = functools.partial(lost_owner, find=find)
        (gang,) = gather(pods, [], facts, lost_owner=lost)
        assert len(gang.pods) == 4
        assert (gang.lost_owner is None) == (left == 4)


# --- asking the API server ----------------------------------------------------------------------------


def existence(api: AnsweringApi, clock: Clock | None = None, live: Metadata | None = None) -> OwnerExistence:
    return OwnerExistence(cast(Api, api), lambda *_: live, lambda: None, clock or Clock())


@pytest.mark.promise("R331")
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"name": "big", "uid": "uid-big"}, "uid-big"),
        ({"name": "big", "uid": "another"}, OwnerState.ABSENT),
        (404, OwnerState.ABSENT),
        (403, OwnerState.UNREADABLE),
        (500, OwnerState.UNCONFIRMED),
    ],
)
def test_an_owner_that_is_not_seen_is_asked_for(answer: dict[str, Any] | int, expected: object) -> None:
    """The live copy may be late, also with another owner of the same name."""
    made = existence(AnsweringApi({PATH: answer}), live=found("big", "an earlier one"))
    assert made.find("ns", reference()) is OwnerState.UNCONFIRMED
    made.answer_all()
    answered = made.find("ns", reference())
    assert (answered.uid if isinstance(answered, Metadata) else answered) == expected


def test_a_wrong_name_beside_the_uid_of_an_owner_makes_it_no_deleted_one() -> None:
    """Any user of the namespace may write that on a pod."""
    made = existence(AnsweringApi({PATH: {"name": "big", "uid": "uid-big"}}))
    wrong = msgspec.structs.replace(reference(), name="missing")
    for each in (wrong, reference()):
        made.find("ns", each)
        made.answer_all()
    assert made.find("ns", wrong) is OwnerState.ABSENT
    assert isinstance(made.find("ns", reference()), Metadata)


def test_a_version_that_is_served_no_more_makes_no_owner_a_deleted_one() -> None:
    """After an upgrade of a CustomResourceDefinition, references name a version that is not served."""

    class Upgraded(AnsweringApi):
        def request(self, _: str, path: str, **more: Any) -> bytes:
            if path == PATH:
                raise ApiError(404, "Not Found", "404 page not found")
            return super().request(_, path, **more)

    made = existence(Upgraded({}))
    made.find("ns", reference())
    made.answer_all()
    assert made.find("ns", reference()) is OwnerState.UNREADABLE


class DefinedApi:
    """Serves a kind at v1 until its definition changes; then bodies or statuses of `discovery`, or 404."""

    def __init__(self, discovery: Mapping[str, Any]) -> None:
        self._discovery = discovery
        self._root, self.is_changed = "/apis/example.com/v1", False

    def request(self, _: str, path: str, **__: Any) -> bytes:
        if self.is_changed:
            answer = self._discovery.get(path, 404)
            if isinstance(answer, int):
                raise ApiError(answer, "Forbidden" if answer == 403 else "", "refused")
            return msgspec.json.encode(answer)
        if path == self._root:
            return msgspec.json.encode({"resources": [{"kind": "Job", "name": "jobs"}]})
        return msgspec.json.encode({"metadata": {"name": "big", "uid": "uid-big"}})


V2 = {"/apis/example.com": {"versions": [{"version": "v2"}]}}
OTHER_KIND = {"resources": [{"kind": "Other", "name": "others"}]}
SAME_KIND = {"resources": [{"kind": "Job", "name": "jobs"}]}


@pytest.mark.parametrize(
    ("discovery", "expected"),
    [
        pytest.param({}, OwnerState.UNDEFINED, id="the group is gone"),
        pytest.param(
            V2 | {"/apis/example.com/v2": OTHER_KIND}, OwnerState.UNDEFINED, id="the group has other kinds"
        ),
        pytest.param(
            V2 | {"/apis/example.com/v2": SAME_KIND}, OwnerState.UNREADABLE, id="another version has the kind"
        ),
        pytest.param(
            {"/apis/example.com/v1/namespaces/ns/jobs/big": 403},
            OwnerState.UNREADABLE,
            id="it may not be read",
        ),
        pytest.param({"/apis/example.com": 503}, "uid-big", id="the API server fails"),
    ],
)
def test_an_owner_that_was_seen_is_gone_with_the_definition_of_its_kind(
    discovery: Mapping[str, Any], expected: object
) -> None:
    if 403 in discovery.values():
        discovery = {
            **discovery,
            "/apis/example.com": {"versions": [{"version": "v1"}]},
            "/apis/example.com/v1": SAME_KIND,
        }
    clock, api, asked = Clock(), DefinedApi(discovery), reference(version="example.com/v1")
    made = OwnerExistence(cast(Api, api), lambda *_: None, lambda: None, clock)
    made.find("ns", asked)
    made.answer_all()
    api.is_changed = True
    clock.now += 11
    made.find("ns", asked)
    made.answer_all()
    answered = made.find("ns", asked)
    assert (answered.uid if isinstance(answered, Metadata) else answered) == expected


def test_an_owner_that_existed_is_asked_for_again_and_a_deleted_one_is_not() -> None:
    clock, api = Clock(), AnsweringApi({PATH: {"name": "big", "uid": "uid-big"}})
    made = existence(api, clock)
    for _ in range(4):
        made.find("ns", reference())
        made.answer_all()
        api.answers[PATH] = 404
        clock.now += 20
    assert api.asked.count(PATH) == 2
    assert made.find("ns", reference()) is OwnerState.ABSENT


def test_a_kind_of_which_nothing_can_be_read_stops_nobody_for_long() -> None:
    """As of a CustomResourceDefinition whose conversion webhook is away."""
    made = existence(AnsweringApi({PATH: 500}))
    for _ in range(5):
        made.find("ns", reference())
        made.answer_all()
    assert made.find("ns", reference()) is OwnerState.UNREADABLE


OWNERS: list[tuple[list[bool], list[str], str]] = [
    # whether each owner a, b is the controller, those that are gone, the one that is missing
    ([False], ["a"], "its owner Job/a is deleted"),
    ([False], [], ""),
    ([False, False], ["a"], ""),
    ([False, True], ["a"], ""),
    ([False, True], ["b"], "its controller Job/b is deleted"),
]


@pytest.mark.parametrize(("controllers", "gone", "missing"), OWNERS)
def test_the_only_owner_of_a_pod_without_controller_counts_as_one(
    controllers: list[bool], gone: list[str], missing: str
) -> None:
    """The garbage collector deletes the pod with it."""
    owners = [
        owner("Job", name) | {"controller": is_controller}
        for name, is_controller in zip("ab", controllers, strict=False)
    ]
    pod = gpu_pod("p", metadata={"ownerReferences": owners})
    lost = lost_owner(pod, lambda _, of: OwnerState.ABSENT if of.name in gone else found(of.name))
    assert (lost.sentence if lost is not None else "").removesuffix(
        ", so its pods are neither placed nor released"
    ) == missing


def test_an_owner_in_no_namespace_is_asked_for_at_its_own_path() -> None:
    api = AnsweringApi({"/apis/example.com/v1/fleets/f": {"uid": "uid-f"}})
    made = existence(api)
    for name in ("f", "gone"):
        fleet = msgspec.convert(owner("Fleet", name, "example.com/v1"), OwnerReference)
        made.find("ns", fleet)
        made.answer_all()
        assert (made.find("ns", fleet) is OwnerState.ABSENT) == (name == "gone")


@pytest.mark.parametrize(
    ("name", "version"),
    [("../../secrets/x", "batch/v1"), ("x?y", "batch/v1"), ("x", "../v1"), ("x", "a/b/c")],
)
def test_a_reference_that_is_no_name_is_not_asked_about(name: str, version: str) -> None:
    """Any user may write one, and it would become a part of a path."""
    api = AnsweringApi({})
    made = existence(api)
    made.find("ns", reference(name, version))
    made.answer_all()
    assert api.asked == []
    assert made.find("ns", reference(name, version)) is OwnerState.UNREADABLE


def test_no_namespace_delays_the_questions_of_another() -> None:
    api = AnsweringApi({})
    made = existence(api)
    for number in range(5):
        made.find("evil", reference(f"j{number}"))
    made.find("good", reference("good"))
    made.answer_all()
    owners = [path.rpartition("/")[2] for path in api.asked if "namespaces" in path]
    assert owners.index("good") == 1


@pytest.mark.parametrize("status", [404, 200], ids=["invented owners", "owners that exist"])
def test_however_many_owners_a_namespace_names_those_of_others_are_asked_for_again_in_time(
    status: int,
) -> None:
    clock = Clock()
    good = PATH.replace("/ns/", "/good/")
    paths = [PATH.replace("big", f"j{number}") for number in range(500)]
    answers: dict[str, Any] = {path: {"uid": f"uid-j{n}"} for n, path in enumerate(paths) if status == 200}
    api = AnsweringApi({**answers, good: {"uid": "uid-big"}})
    made = existence(api, clock)
    for _ in range(2):
        for number in range(500):
            made.find("ns", reference(f"j{number}"))
        made.find("good", reference())
        made.answer_all()
        clock.now += 10
    assert api.asked.count(good) == 2
    assert api.asked.count(paths[0]) == 1


def test_an_api_version_that_does_not_answer_is_asked_once_and_delays_no_answer_about_others() -> None:
    api, changes = AnsweringApi({PATH: {"uid": "uid-big"}, "/apis/away.example.com/v1": 500}), list[int]()
    made = OwnerExistence(cast(Api, api), lambda *_: None, lambda: changes.append(len(api.asked)), Clock())
    for _ in range(2):
        for number in range(5):
            made.find("evil", reference(f"j{number}", "away.example.com/v1"))
        made.find("ns", reference())
        assert made.answer_all().keys() == {"away.example.com/v1"}
    assert api.asked.count("/apis/away.example.com/v1") == 2
    assert len(changes) == 1
    assert isinstance(made.find("ns", reference()), Metadata)


class HangingApi(AnsweringApi):
    """An API version that never answers: each request to it takes all of its time."""

    def __init__(self, clock: Clock, version: str) -> None:
        super().__init__({PATH: {"uid": "uid-big"}})
        self._clock, self._version = clock, version

    def request(self, _: str, path: str, **more: Any) -> bytes:
        if self._version in path:
            self._clock.now += more.get("timeout_seconds", 10.0)
            raise ApiError(0, "Timeout", "no answer")
        return super().request(_, path, **more)


def test_an_api_version_that_hangs_delays_the_owners_of_other_namespaces_by_two_seconds_once() -> None:
    clock, reported = Clock(), list[float]()
    api, began = HangingApi(clock, "away.example.com/v1"), clock()
    made = OwnerExistence(cast(Api, api), lambda *_: None, lambda: reported.append(clock() - began), clock)
    for number in range(5):
        made.find("evil", reference(f"j{number}", "away.example.com/v1"))
    made.find("ns", reference())
    made.answer_all()
    assert reported == [2.0]
    began = clock.now = clock.now + 60
    api.answers[PATH] = 404
    made.find("evil", reference("j9", "away.example.com/v1"))
    made.find("ns", reference())
    made.answer_all()
    assert reported[1:] == [0.0]


def test_an_owner_whose_metadata_cannot_be_read_delays_nobody() -> None:
    api = AnsweringApi({PATH: cast(Any, {"uid": 5})})
    made = existence(api)
    made.find("ns", reference())
    assert made.answer_all() == {}
    assert made.find("ns", reference()) is OwnerState.UNREADABLE


# --- at work ------------------------------------------------------------------------------------------


class Deletion(Silent):
    """Gang low runs on two nodes; big, of higher priority, waits for them until big's owner is deleted.

    notes: of the Events about big, but those that are right.
    """

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster, self.namespace, self.api = cluster, namespace, cluster.api()
        self.settings, self.notes = Settings(settle_seconds=0), list[str]()
        self.is_right: Callable[[str], bool] = lambda note: False
        create_job(self.api, namespace, "low", 2, template(8, priorityClassName="low"))
        low = sweep(cluster, namespace, self.settings, lambda pods: run_all(pods, "low", 2), "the low gang")
        self.low = {pod["metadata"]["uid"] for pod in low}

    def announce(self, pod: Pod, reason: EventReason, note: str) -> None:
        """Note what is reported about big."""
        if pod.metadata.name.startswith("big") and not self.is_right(note):
            self.notes.append(note)

    def path(self, kind: str = "jobs", group: str = "batch/v1") -> str:
        return f"/apis/{group}/namespaces/{self.namespace}/{kind}"

    def create_big(self, count: int, **metadata: Any) -> None:
        create_job(self.api, self.namespace, "big", count, template(8, priorityClassName="high"), **metadata)
        wait_for_pods(
            self.cluster, self.namespace, lambda pods: len(named(pods, "big")) == count, "pods of big"
        )

    def delete(self, path: str, policy: str = "Background", finalizers: Sequence[str] = ()) -> None:
        """finalizers: keep the object there, until end() is called."""
        body = {"metadata": {"finalizers": [*finalizers]}}
        if finalizers:
            self.api.request("PATCH", path, body=body, content_type=MERGE_PATCH)
        self.api.request("DELETE", path, query={"propagationPolicy": policy})

    def end(self, path: str) -> None:
        body = {"metadata": {"finalizers": None}}
        self.api.request("PATCH", path, body=body, content_type=MERGE_PATCH)

    def sweep_until(self, holds: Callable[[Pods], bool], what: str) -> Pods:
        """Let the sweeper work; the running gang is left alone, and no Event is about the deletion."""
        pods = sweep(self.cluster, self.namespace, self.settings, holds, what, announcer=self)
        there = [pod for pod in named(pods, "low") if "deletionTimestamp" not in pod["metadata"]]
        assert {pod["metadata"]["uid"] for pod in there} == self.low
        assert not self.notes
        return pods

    def reports(self, reason: str) -> Callable[[Pods], bool]:
        def is_reported(_: Pods) -> bool:
            found = self.api.json("GET", placements.path(self.namespace))["items"]
            return any(reason in each.get("status", {}).get("reason", "") for each in found)

        return is_reported


@pytest.fixture
def deletion(two_nodes: Cluster, namespace: str) -> Deletion:
    return Deletion(two_nodes, namespace)


@pytest.mark.promise("R331")
@pytest.mark.cluster
def test_a_job_that_is_being_deleted_evicts_nobody_and_its_placement_has_the_reason(
    deletion: Deletion,
) -> None:
    deletion.create_big(2)
    job = f"{deletion.path()}/big"
    deletion.delete(job, "Background", ["example.com/finalizer"])
    reason = "its controller Job/big is being deleted, so its pods are neither placed nor released"
    pods = deletion.sweep_until(deletion.reports(reason), "the reason of the big gang")
    assert all(map(is_gated, named(pods, "big")))
    deletion.end(job)


@pytest.mark.promise("R331")
@pytest.mark.cluster
def test_while_a_big_job_is_collected_in_the_background_nobody_is_evicted(deletion: Deletion) -> None:
    """Each pass sees fewer of its pods, down to as many as there are nodes."""
    deletion.create_big(40)
    deletion.delete(f"{deletion.path()}/big")
    deletion.sweep_until(lambda pods: not named(pods, "big"), "the end of the big gang")


@pytest.mark.promise("R331")
@pytest.mark.cluster
@pytest.mark.parametrize("policy", ["Background", "Foreground"])
def test_a_job_that_is_created_again_while_its_former_pods_end_is_a_gang_of_its_own(
    deletion: Deletion, policy: str
) -> None:
    """The new one has two pods of the class of those that run, so it waits, and takes nothing either."""
    deletion.create_big(40)
    job, steps = f"{deletion.path()}/big", list[str]()
    old, new = deletion.reports("40 pods do not fit"), deletion.reports("2 pods do not fit")

    def is_over(pods: Pods) -> bool:
        if not steps and old(pods):
            deletion.delete(job, policy)
            steps.append("deleted")
        if steps == ["deleted"] and not exists(deletion.api, job):
            create_job(deletion.api, deletion.namespace, "big", 2, template(8, priorityClassName="low"))
            steps.append("created")
        return steps[1:] == ["created"] and len(named(pods, "big")) == 2 and new(pods)

    of_one_of_them = r"\b(40|2) pods do not fit|\b1 pod is there, 2 are expected"
    deletion.is_right = lambda note: re.search(of_one_of_them, note) is not None
    pods = named(deletion.sweep_until(is_over, "the new gang to wait alone"), "big")
    uid = deletion.api.json("GET", job)["metadata"]["uid"]
    assert {pod["metadata"]["ownerReferences"][0]["uid"] for pod in pods} == {uid}
    assert all(map(is_gated, pods))


@pytest.mark.promise("R331")
@pytest.mark.cluster
@pytest.mark.parametrize("policy", ["Background", "Foreground", "Orphan"])
def test_a_big_stateful_set_that_is_deleted_while_it_waits_evicts_nobody(
    deletion: Deletion, policy: str
) -> None:
    """One sweeper sees it wait, and its pods go or lose their owner one by one."""
    pod = template(8, priorityClassName="high")
    pod["metadata"]["labels"] = {"app": "big"}
    spec = {"replicas": 40, "podManagementPolicy": "Parallel", "template": pod, "serviceName": "big"}
    body = {"metadata": {"name": "big"}, "spec": spec | {"selector": {"matchLabels": {"app": "big"}}}}
    sets = deletion.path("statefulsets", "apps/v1")
    deletion.api.request("POST", sets, body=body)
    does_not_fit, is_left = (
        deletion.reports("40 pods do not fit"),
        deletion.reports("has left its pods behind"),
    )
    deleted = list[str]()
    deletion.is_right = lambda note: "40 pods do not fit" in note

    def is_over(pods: Pods) -> bool:
        if not deleted and does_not_fit(pods):
            deletion.delete(f"{sets}/big", policy)
            deleted.append(policy)
        big = named(pods, "big")
        owned = [each for each in big if each["metadata"].get("ownerReferences")]
        return bool(deleted) and (is_left(pods) and not owned if policy == "Orphan" else not big)

    left = named(deletion.sweep_until(is_over, "the end of the set"), "big")
    assert all(map(is_gated, left))
    assert len(left) == (40 if policy == "Orphan" else 0)


@pytest.mark.promise("R331")
@pytest.mark.cluster
def test_a_sweeper_that_begins_amid_a_garbage_collection_evicts_nobody_either(deletion: Deletion) -> None:
    """The test collects in the place of Kubernetes, so that four sweepers live through it."""
    deletion.create_big(8)
    pods = f"/api/v1/namespaces/{deletion.namespace}/pods"
    with deletion.cluster.paused("kube-controller-manager"):
        deletion.delete(f"{deletion.path()}/big")
        for left in (6, 4, 2, 1):
            found = named(deletion.api.json("GET", pods)["items"], "big")
            for pod in found[left:]:
                deletion.delete(f"{pods}/{pod['metadata']['name']}")
                deletion.end(f"{pods}/{pod['metadata']['name']}")
            reported = deletion.reports("its controller Job/big is deleted, so its pods are neither placed")
            deletion.sweep_until(reported, f"the reason of the {left} pods that are left")
            rest = named(deletion.api.json("GET", pods)["items"], "big")
            assert [is_gated(pod) for pod in rest] == [True] * left


@pytest.mark.promise("R331")
@pytest.mark.cluster
def test_the_controller_of_a_controller_counts_though_its_kind_is_not_watched(deletion: Deletion) -> None:
    define(deletion.cluster, "Flow", "example.com", "v1")
    wait_served(deletion.cluster, "example.com/v1", "Flow")
    flows = deletion.path("flows", "example.com/v1")
    flow = deletion.api.json(
        "POST", flows, body={"apiVersion": "example.com/v1", "kind": "Flow", "metadata": {"name": "f"}}
    )
    above = owner("Flow", "f", "example.com/v1") | {"uid": flow["metadata"]["uid"]}
    deletion.create_big(2, ownerReferences=[above])
    deletion.delete(f"{flows}/f", "Background", ["example.com/finalizer"])
    pods = deletion.sweep_until(
        deletion.reports("its controller Flow/f is being deleted"), "the reason of the big gang"
    )
    assert all(map(is_gated, named(pods, "big")))
    name = named(pods, "big")[0]["metadata"]["name"]
    explained = explain(ClusterReading.read(deletion.api), deletion.namespace, name, deletion.settings)
    assert {"Now: the same."} & set(explained), "explain asks for it too"
    deletion.end(f"{flows}/f")


class Flow:
    """A kind of v1 and v2, an object of which controls the four pods of gang big, by v1."""

    def __init__(self, deletion: Deletion) -> None:
        self._api, self._cluster = deletion.api, deletion.cluster
        self._pods = f"/api/v1/namespaces/{deletion.namespace}/pods"
        self._does_not_fit, self._notes = deletion.reports("do not fit"), deletion.notes
        self.definition = define(self._cluster, "Flow", "gone.example.com", "v1", "v2")
        wait_served(self._cluster, "gone.example.com/v1", "Flow")
        controller = owner("Flow", "f", "gone.example.com/v1")
        body = {key: controller[key] for key in ("apiVersion", "kind")} | {"metadata": {"name": "f"}}
        made = self._api.json("POST", deletion.path("flows", "gone.example.com/v1"), body=body)
        for number in range(4):
            pod = template(8, priorityClassName="high")
            pod["metadata"]["ownerReferences"] = [controller | {"uid": made["metadata"]["uid"]}]
            create_pod(self._api, deletion.namespace, f"big-{number}", pod)

    def change_once_it_waits(self, pods: Pods, change: Callable[[], None]) -> bool:
        """Change the kind, and leave two pods of the four; returns whether that is done."""
        if len(named(pods, "big")) <= 2:
            return True
        if self._does_not_fit(pods):
            self._notes.clear()  # the Event that they do not fit is right
            change()
            for number in range(2):
                delete(self._api, f"{self._pods}/big-{number}")
        return False

    def delete_kind(self) -> None:
        delete(self._api, self.definition)
        wait_gone(self._cluster, self.definition)

    def serve_only_v2(self) -> None:
        versions = self._api.json("GET", self.definition)["spec"]["versions"]
        body = {"spec": {"versions": [each | {"served": each["name"] == "v2"} for each in versions]}}
        self._api.request("PATCH", self.definition, body=body, content_type=MERGE_PATCH)
        path = "/apis/gone.example.com/v1/flows"
        self._cluster.wait_for("the end of v1", lambda: not exists(self._api, path))


@pytest.fixture
def flow(deletion: Deletion) -> Iterator[Flow]:
    made = Flow(deletion)
    yield made
    made.delete_kind()


@pytest.mark.promise("R331")
@pytest.mark.cluster
def test_pods_whose_controllers_kind_is_deleted_while_they_wait_evict_nobody(
    deletion: Deletion, flow: Flow
) -> None:
    """The two that are left would fit, by eviction. Nobody collects them meanwhile."""
    is_reported = deletion.reports("its controller Flow/f is deleted with the definition of its kind")
    with deletion.cluster.paused("kube-controller-manager"):
        left = deletion.sweep_until(
            lambda pods: flow.change_once_it_waits(pods, flow.delete_kind) and is_reported(pods),
            "the reason of the two pods",
        )
    assert [is_gated(pod) for pod in named(left, "big")] == [True, True]


@pytest.mark.promise("R331")
@pytest.mark.cluster
def test_pods_whose_controller_is_served_by_another_version_meanwhile_are_placed(
    deletion: Deletion, flow: Flow
) -> None:
    def run(pods: Pods) -> bool:
        return flow.change_once_it_waits(pods, flow.serve_only_v2) and run_all(pods, "big", 2)

    sweep(deletion.cluster, deletion.namespace, deletion.settings, run, "the two pods to run")


@pytest.mark.promise("R333")
@pytest.mark.cluster
def test_pods_that_a_job_has_left_behind_wait_until_they_state_how_many_they_are(deletion: Deletion) -> None:
    deletion.create_big(1)
    deletion.delete(f"{deletion.path()}/big", "Orphan")
    deletion.sweep_until(
        deletion.reports("its controller Job/big is deleted and has left its pods behind"), "the reason"
    )
    deletion.delete(f"{deletion.path()}/low")
    (big,) = named(wait_for_pods(deletion.cluster, deletion.namespace, lambda _: True, "pods"), "big")
    annotations = {"metadata": {"annotations": {keys.GANG_SIZE_ANNOTATION: "1"}}}
    path = f"/api/v1/namespaces/{deletion.namespace}/pods/{big['metadata']['name']}"
    deletion.api.request("PATCH", path, body=annotations, content_type=MERGE_PATCH)
    sweep(
        deletion.cluster, deletion.namespace, deletion.settings, lambda pods: run_all(pods, "big", 1), "big"
    )
