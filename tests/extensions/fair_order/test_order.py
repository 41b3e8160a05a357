"""Fair order in passes: whose GPUs count, for whom, and what people and metrics see."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from labeler.contract import keys
from tests.devices.bodies import NAMESPACE, claim, claim_spec, exactly, supply
from tests.extensions.made import none_failed
from tests.sweeper.clock import Clock
from tests.sweeper.cluster import Nodes, Placing, gpu_pod
from webhook.configuration.settings import Settings
from webhook.devices.needs import needs
from webhook.extensions.device_claims import AddedDevices, ClaimedGpus
from webhook.extensions.fair_order.account_use import KEY, NAME, OTHER, Book, encode
from webhook.extensions.fair_order.fair_order import FAIR_ORDER, MOST_ACCOUNTS, FairMemory
from webhook.extensions.known import SWITCHES
from webhook.kube.client import Api, ApiError
from webhook.kube.objects import Pod
from webhook.policy.fair import FairOrder
from webhook.policy.values import GpuModel, Policy
from webhook.sweeper.context import Pass
from webhook.sweeper.decide.orders import Cause, Done
from webhook.sweeper.decide.reservations import LATER_STAGE, Reservation
from webhook.sweeper.extension import HookInput
from webhook.sweeper.hooks import ExtensionHooks
from webhook.sweeper.observe.cache import ClusterCache
from webhook.sweeper.observe.gangs import GangKey, OwnerFacts, gather
from webhook.sweeper.observe.snapshotter import Snapshotter
from webhook.sweeper.observe.view import Moment, View

NOW = 1_800_000_000.0
CREATED = "2027-01-15T08:00:00Z"
"""NOW as pods say it."""


class Stored:
    """The ConfigMap, as far as the sweeper asks for it."""

    def __init__(self, text: str = "", error: int = 0) -> None:
        self.text, self.error, self.reads = text, error, 0

    def json(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        assert method == "GET"
        assert path.endswith(f"/configmaps/{NAME}")
        self.reads += 1
        if self.error:
            raise ApiError(self.error, "Away", "it is away")
        return {"metadata": {"resourceVersion": "1"}, "data": {KEY: self.text}}


@pytest.mark.promise("O79")
def test_an_emptied_record_resets_the_use_of_all_accounts() -> None:
    view = Snapshotter(Nodes(1), Settings()).view(Moment(100.0, datetime.fromtimestamp(NOW, UTC)))
    memory = FairMemory(book=Book({"a": {"H100": 7200.0}}, at=0.0))
    given = HookInput(view, policy=Policy(fair_order=FairOrder()), record={})
    _, memory = FAIR_ORDER.order_gangs(given, memory)
    assert memory.book.use == {}


class Case:
    """Passes with a fair order over a cluster in memory."""

    def __init__(
        self,
        *pods: Pod,
        fair: FairOrder | None = FairOrder(),  # noqa: B008 - frozen
        stored: Stored | None = None,
        labels: Mapping[str, Mapping[str, str]] | None = None,
        **policy: Any,
    ) -> None:
        self.clock, self.stored = Clock(), stored or Stored()
        self.cluster = Nodes(4, *pods, gpus=8)
        self.cluster.labels = labels
        cache = cast(ClusterCache, self.cluster)
        self.policy: Policy | None = Policy(fair_order=fair, **policy)
        self.surroundings = Pass(
            cast(Api, self.stored),
            cache,
            Settings(),
            clock=self.clock,
            policy=lambda: self.policy,
            extensions=SWITCHES,
        )
        self.hooks = ExtensionHooks(self.surroundings, lambda: NOW + self.clock())
        self.causes: dict[GangKey, Cause] = {}
        self.snapshotter = Snapshotter(self.cluster, Settings())

    def order(self, stages: Mapping[str, Reservation] | None = None) -> list[str]:
        """One pass: the names of the gangs in turn. stages: which nodes plans keep for later stages."""
        view = self.view()
        gangs = gather(view.gated, view.others, lambda _: OwnerFacts())
        view = self.hooks.begin(view, self.hooks.memories)
        ordered = self.hooks.order(gangs, view, self.causes, stages or {})
        self.found_no_place = {gang.key: Cause.INSUFFICIENT_CAPACITY for gang in gangs}
        return [gang.key.name for gang in ordered]

    def view(self) -> View:
        now = self.clock()
        return self.snapshotter.view(Moment(now, datetime.fromtimestamp(NOW + now, UTC)))

    @property
    def memory(self) -> FairMemory:
        found = self.hooks.memories["fair_order"]
        assert isinstance(found, FairMemory)
        return found

    def sentences_of_the_order(self) -> list[str]:
        """The same, of gangs that have found no capacity before."""
        self.order()
        self.causes = self.found_no_place
        return self.order()

    def metric(self, name: str, account: str) -> float | None:
        return self.surroundings.metrics.registry.get_sample_value(name, {"account": account})


def pod(name: str, namespace: str, **more: Any) -> Pod:
    metadata = {"namespace": namespace, "uid": f"{namespace}-{name}", "creationTimestamp": CREATED}
    return gpu_pod(name, metadata=metadata | more.pop("metadata", {}), **more)


HOUR = 3600.0
WAITING = pod("a1", "a"), pod("b1", "b")


def runs(namespace: str, name: str = "runs", **more: Any) -> Pod:
    return pod(name, namespace, node="n0", **more)


@pytest.mark.promise("O60")
def test_who_has_gpus_comes_behind_who_has_none() -> None:
    assert Case(*WAITING).order() == ["a1", "b1"], "by name, as they are of one age"
    assert Case(*WAITING, runs("a")).order() == ["b1", "a1"]


@pytest.mark.promise("O60")
def test_without_the_policy_s_word_nothing_changes_and_nothing_is_read() -> None:
    case = Case(*WAITING, runs("a"), fair=None)
    assert case.order() == ["a1", "b1"]
    case.policy = None
    assert case.order() == ["a1", "b1"]
    assert case.stored.reads == 0


@pytest.mark.promise("O65")
def test_use_counts_on_after_a_pod_has_gone_and_decays_by_a_half_life() -> None:
    case = Case(*WAITING, runs("a"), runs("b", "later"), fair=FairOrder(half_life_seconds=HOUR))
    case.order()
    case.cluster.pods = [*WAITING, runs("b", "later")]
    case.clock.now = 10.0
    case.order()
    case.cluster.pods = [*WAITING]
    case.clock.now = 20.0
    assert case.order() == ["a1", "b1"], "b has used more by 10 s"
    case.cluster.pods = [*WAITING, runs("a")]
    case.clock.now = 100.0
    assert case.order() == ["b1", "a1"]


@pytest.mark.promise("O65")
@pytest.mark.parametrize(
    "more",
    [
        {"metadata": {"deletionTimestamp": "2027-01-15T08:00:00Z"}},
        {"metadata": {"annotations": {"gas-allow": "card0", "topogate.io/inject": "false"}}},
        {"phase": "Pending"},
    ],
    ids=["is being deleted", "says odd things of itself", "has only been bound"],
)
def test_a_pod_counts_from_its_place_to_its_end_whatever_its_status_is(more: dict[str, Any]) -> None:
    assert Case(*WAITING, runs("a", **more)).order() == ["b1", "a1"]


@pytest.mark.promise("O65")
def test_nodes_that_a_plan_keeps_for_later_stages_count() -> None:
    ends = datetime(2027, 1, 15, 9, tzinfo=UTC)
    stored = Reservation(LATER_STAGE, "a/job-staged", frozenset({"n0"}), 0.0, HOUR, ends)
    assert Case(*WAITING).order({"a/job-staged": stored}) == ["b1", "a1"]


@pytest.mark.promise("O65")
@pytest.mark.parametrize(("claims_make_gpu_pods", "first"), [(True, "b1"), (False, "a1")])
def test_a_claim_on_devices_counts_as_a_gpu_where_claims_make_gpu_pods(
    claims_make_gpu_pods: bool, first: str
) -> None:
    claims = runs("a", gpus=0, resourceClaims=[{"name": "gpu", "resourceClaimName": "mine"}])
    assert Case(*WAITING, claims, resource_claims=claims_make_gpu_pods).order()[0] == first


@pytest.mark.promise("O65")
def test_devices_that_a_pod_requests_without_a_claim_count_as_gpus() -> None:
    resources = {"requests": {f"{keys.DEVICE_CLASS}gpu.example.com": "2"}}
    runs_devices = runs("a", gpus=0, initContainers=[{"name": "i", "resources": resources}])
    assert Case(*WAITING, runs_devices, resource_claims=True).order() == ["b1", "a1"]


@pytest.mark.promise("O65")
def test_a_claim_counts_as_many_gpus_as_devices_that_it_asks_for() -> None:
    """Eight of one claim are more than four of a device plugin, one of an unknown claim is less."""
    known = supply(claims=(claim("mine", claim_spec(exactly(8))),))
    added = AddedDevices(needs((), (), {}, known, 1), ClaimedGpus(()))
    claims = [{"name": "gpu", "resourceClaimName": "mine"}]
    pods = runs(NAMESPACE, gpus=0, resourceClaims=claims), runs("a", gpus=4)

    def first(*resources: AddedDevices) -> str:
        case = Case(pod("a1", "a"), pod("b1", NAMESPACE), *pods, resource_claims=True)
        view = case.view
        case.view = lambda: replace(view(), added=resources)  # type: ignore[method-assign]
        return case.order()[0]

    assert (first(added), first()) == ("a1", "b1")


def test_what_a_pass_has_placed_counts_in_the_next_though_nothing_was_counted_since() -> None:
    case = Case(*WAITING, pod("a2", "a"), fair=FairOrder())
    assert case.order() == ["a1", "b1", "a2"]
    case.hooks.memories = {"fair_order": replace(case.memory, due_at=1e9)}
    placing = Placing(case.cluster, Settings())
    placing.remember(placing.gangs(), placing.view())
    placed = next(plan for plan in placing.one().plans if plan.gang.key.name == "a1")
    case.hooks.on_result(Done(placed=(placed,)))
    case.hooks.after_pass(case.view(), none_failed(case.hooks))
    case.cluster.pods = [WAITING[1], pod("a2", "a")]
    assert case.order() == ["b1", "a2"]


def test_a_pod_without_gpus_counts_nothing() -> None:
    assert Case(*WAITING, runs("a", gpus=0)).order() == ["a1", "b1"]


@pytest.mark.promise("O62")
def test_namespaces_of_one_account_share_its_position() -> None:
    labels = {"a": {"team": "x"}, "a2": {"team": "x"}, "b": {}}
    fair = FairOrder(account_label="team")
    assert Case(*WAITING, runs("a2"), fair=fair, labels=labels).order() == ["b1", "a1"]
    assert Case(*WAITING, runs("a2"), fair=fair).order() == ["a1", "b1"], "as long as labels are not known"


def test_weights_and_costs_of_models_count() -> None:
    two = runs("a", gpus=2), runs("b")
    assert Case(*WAITING, *two).order() == ["b1", "a1"]
    assert Case(*WAITING, *two, fair=FairOrder(weights={"a": 4.0})).order() == ["a1", "b1"]
    fair = FairOrder(model_costs={"T4": 0.1})
    models = (GpuModel("T4", {"gpu": "t4"}),)
    case = Case(*WAITING, runs("a", gpus=2), pod("elsewhere", "b", node="n1"), fair=fair, gpu_models=models)
    case.cluster.label("n0", {"gpu": "t4"})
    assert case.order() == ["a1", "b1"]


def test_the_next_leader_continues_from_what_was_written_down() -> None:
    stored = Stored(encode({"a": {"": 1e6}}, NOW - HOUR, FairOrder()))
    assert Case(*WAITING, runs("b"), stored=stored).order() == ["b1", "a1"]
    assert Case(*WAITING, runs("b"), stored=Stored()).order() == ["a1", "b1"]


@pytest.mark.promise("O79")
def test_what_still_runs_counts_for_the_time_between_two_leaders() -> None:
    stored = Stored(encode({"b": {"": 8 * HOUR}}, NOW - 2 * HOUR, FairOrder()))
    long: dict[str, Any] = {"metadata": {"creationTimestamp": "2027-01-15T05:00:00Z"}, "gpus": 8}
    case = Case(*WAITING, runs("a", **long), stored=stored)
    case.order()
    case.cluster.pods = [*WAITING]
    assert case.order() == ["b1", "a1"]


@pytest.mark.promise("O79")
@pytest.mark.parametrize("error", [0, 403, 404, 500])
def test_an_api_server_that_does_not_give_it_stops_no_order(error: int) -> None:
    case = Case(*WAITING, runs("a"), stored=Stored("{" if not error else "", error))
    assert case.order() == ["b1", "a1"]
    assert case.order() == ["b1", "a1"]
    assert case.stored.reads == 1, "it is asked again a minute later"


@pytest.mark.promise("O79")
def test_a_clock_that_jumps_by_years_leaves_an_order_by_what_runs() -> None:
    for written in (0.0, NOW + 1e9):
        stored = Stored(encode({"b": {"": 100.0}}, written, FairOrder()))
        assert Case(*WAITING, runs("a", gpus=8), stored=stored).order() == ["b1", "a1"]


def test_switched_off_and_on_again_it_begins_from_what_is_written() -> None:
    case = Case(*WAITING, runs("a"))
    case.order()
    on, case.policy = case.policy, Policy()
    assert case.order() == ["a1", "b1"]
    assert case.metric("topogate_fair_used_ratio", "a") is None
    case.policy = on
    assert case.order() == ["b1", "a1"]
    assert case.stored.reads == 2


@pytest.mark.promise("O77", "S36")
def test_each_gang_sees_how_its_own_account_stands_and_nobody_who_the_others_are() -> None:
    case = Case(*WAITING, runs("a"), fair=FairOrder(weights={"b": 3.0}))
    case.order()
    case.clock.now = HOUR
    case.sentences_of_the_order()
    sentences = dict(case.hooks.sentences)
    assert len(sentences) == 2
    first, second = (next(text for text in sentences.values() if f"order: {name} " in text) for name in "ba")
    assert (
        first == "fair order: b has used 0% of the recent GPU time, and is due 75% (weight 3); it comes first"
    )
    assert second == (
        "fair order: a has used 100% of the recent GPU time, and is due 25% (weight 1); "
        "gangs of others, which have used less for their weight, come first"
    )


def test_a_sentence_stays_for_a_while_so_that_it_is_not_written_in_each_pass() -> None:
    case = Case(*WAITING, runs("a"))
    case.sentences_of_the_order()
    before = dict(case.hooks.sentences)
    case.clock.now = 30.0
    case.order()
    assert case.hooks.sentences == before
    case.clock.now = 100.0
    case.order()
    assert case.hooks.sentences != before


@pytest.mark.promise("O74")
def test_a_gang_that_has_waited_for_the_longest_time_comes_first_and_has_a_sentence() -> None:
    case = Case(*WAITING, runs("a", gpus=8))
    case.sentences_of_the_order()
    case.clock.now = 12 * HOUR
    case.cluster.pods.append(pod("b2", "b", metadata={"creationTimestamp": "2027-01-15T07:00:00Z"}))
    case.causes = {key: Cause.INSUFFICIENT_CAPACITY for key in case.causes if key.name == "a1"}
    assert case.order()[0] == "a1"
    assert any("waited so long that it comes first" in text for text in case.hooks.sentences.values())


@pytest.mark.promise("O200")
def test_the_metrics_show_use_and_share_of_a_bounded_number_of_accounts() -> None:
    crowd = [pod("w", f"n{number:03}") for number in range(100)]
    case = Case(*crowd, runs("n099"))
    case.order()
    case.clock.now = 60.0
    case.order()
    assert case.metric("topogate_fair_used_ratio", "n099") == 1
    assert case.metric("topogate_fair_due_ratio", "n099") == pytest.approx(0.01)
    assert case.metric("topogate_fair_due_ratio", OTHER) == pytest.approx((100 - MOST_ACCOUNTS) / 100)


@pytest.mark.promise("O79")
@pytest.mark.parametrize(("took", "due_in"), [(0.1, 5.0), (1.0, 10.0)])
def test_counting_of_use_takes_a_fiftieth_of_the_time_and_is_deferred_for_10_s_at_most(
    took: float, due_in: float
) -> None:
    case = Case(*WAITING)
    view, cpu = case.view(), iter((0.0, took))
    gangs = gather(view.gated, view.others, lambda _: OwnerFacts())
    given = HookInput(view, policy=case.policy, gangs=gangs, cpu_seconds=lambda: next(cpu))
    _, memory = FAIR_ORDER.order_gangs(given, FairMemory())
    assert memory.due_at == pytest.approx(view.now.seconds + due_in)
