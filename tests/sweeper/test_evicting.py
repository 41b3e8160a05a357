"""How evictions are carried out: a pass ends between gangs, or where one of them cannot go on in time."""

from dataclasses import replace
from typing import Any, cast

import msgspec
import pytest

from labeler.contract.event_reasons import EventReason
from tests.sweeper.applies import Applies
from tests.sweeper.clock import Clock
from tests.sweeper.evictions import BOTH_WAYS, Slow
from tests.sweeper.pods import job_pod
from webhook.configuration.settings import Settings
from webhook.kube.client import ApiError
from webhook.kube.paths import pod_path
from webhook.sweeper.context import Pass, Retries
from webhook.sweeper.decide.orders import NO_HURRY, Done, Eviction, EvictionCause, Orders, Warn
from webhook.sweeper.decide.retries import FIRST_SECONDS, RetryTable, Wait, Write
from webhook.sweeper.metrics import Metrics
from webhook.sweeper.observe.view import View
from webhook.sweeper.sweep import SOON_SECONDS


def apply(api: Slow, *, for_others: bool = True) -> Done:
    """Evict two gangs of three pods, in a pass of two seconds."""
    pods = [job_pod(number, job) for job in ("a", "b") for number in range(3)]
    orders = Orders(evictions=tuple(Eviction(pod, "why", "", True, for_others) for pod in pods))
    surroundings = Pass(api, cast(Any, None), Settings(pass_seconds=2), clock=api.clock)
    applier = Applies(surroundings)
    done = applier.apply(orders, View([], pods, {}, {}))
    applier.close()
    return done


def test_a_pass_whose_time_is_over_ends_between_gangs_not_inside_one() -> None:
    api = Slow(Clock())
    done = apply(api)
    assert api.evicted == ["a-0", "a-1", "a-2"]
    assert done.failed, "the next pass goes on with what is left"


def test_no_gang_is_begun_in_the_moment_in_which_the_time_of_a_pass_is_over() -> None:
    api, pods = Slow(Clock()), [job_pod(0, job) for job in "abc"]
    orders = Orders(evictions=tuple(Eviction(pod, "why", "", True, True) for pod in pods))
    applier = Applies(Pass(api, cast(Any, None), Settings(pass_seconds=2), clock=api.clock))
    applier.apply(orders, View([], pods, {}, {}))
    applier.close()
    assert api.evicted == ["a-0", "b-0"]


@pytest.mark.promise("O184")
def test_pods_are_preempted_by_the_eviction_api_with_their_own_grace_periods() -> None:
    api = Slow(Clock())
    apply(api)
    act, body = api.sent[0]
    assert act == "POST /api/v1/namespaces/ns/pods/a-0/eviction"
    assert body["kind"] == "Eviction"
    assert body["metadata"] == {"name": "a-0", "namespace": "ns"}
    assert body["deleteOptions"].keys() == {"preconditions"}
    assert body["deleteOptions"]["preconditions"]["uid"] == "ns-a-0"


@pytest.mark.parametrize(
    ("cause", "reason"),
    [(EvictionCause.MOVED, EventReason.GANG_MOVED), (EvictionCause.PREEMPTED, EventReason.PREEMPTED)],
)
def test_the_event_of_an_evicted_pod_states_whether_it_is_moved(
    cause: EvictionCause, reason: EventReason
) -> None:
    pod = job_pod(0, "a")
    applier = Applies(Pass(Slow(Clock()), cast(Any, None), Settings()))
    done = applier.apply(
        Orders(evictions=(Eviction(pod, cause, "for b", True, True),)), View([], [pod], {}, {})
    )
    applier.close()
    assert done.warnings == (Warn(pod, reason, "for b"),)


def test_the_gang_that_waits_has_an_event_of_its_own_for_a_gang_that_is_moved_for_it() -> None:
    pods, waiting = [job_pod(number, "a") for number in range(2)], job_pod(0, "b")
    orders = [Eviction(pod, EvictionCause.MOVED, "for b", True, True, (waiting,)) for pod in pods]
    orders[0] = replace(orders[0], for_waiting="a is moved")
    applier = Applies(Pass(Slow(Clock()), cast(Any, None), Settings()))
    done = applier.apply(Orders(evictions=tuple(orders)), View([], pods, {}, {}))
    applier.close()
    of_moved = [Warn(pod, EventReason.GANG_MOVED, "for b") for pod in pods]
    assert done.warnings == (of_moved[0], Warn(waiting, EventReason.GANG_MOVED, "a is moved"), of_moved[1])


@BOTH_WAYS
def test_a_pass_whose_time_is_over_ends_with_the_first_that_is_refused(for_others: bool) -> None:
    api = Slow(Clock(), refuses=True)
    done = apply(api, for_others=for_others)
    assert api.evicted == ["a-0", "a-1"]
    assert done.again_seconds == FIRST_SECONDS
    names = [order.pod.metadata.name for order in done.deferred]
    assert names[-4:] == ["a-2", "b-0", "b-1", "b-2"], "what was not tried stays due"


class Crowd:
    """Gangs of one pod each that are evicted one by one, in passes of two seconds."""

    def __init__(self, *names: str, for_others: bool) -> None:
        self.api = Slow(Clock(), refuses=True)
        self._pods = [job_pod(0, name) for name in names]
        self._orders = Orders(
            evictions=tuple(Eviction(pod, "why", "", True, for_others) for pod in self._pods)
        )
        settings = Settings(pass_seconds=2, interval_seconds=30)
        surroundings = Pass(self.api, cast(Any, None), settings, clock=self.api.clock)
        self._applier = Applies(surroundings)

    def one_pass(self) -> tuple[list[str], float]:
        """Whom it asks for, and when the next one is due."""
        self.api.evicted.clear()
        done = self._applier.apply(self._orders, View([], self._pods, {}, {}))
        assert all(order in done.deferred for order in self._orders.evictions if order not in done.evicted)
        return list(self.api.evicted), SOON_SECONDS if done.failed else done.again_seconds

    def wait(self, seconds: float) -> None:
        self.api.clock.now += seconds


@BOTH_WAYS
def test_passes_whose_time_ends_without_an_eviction_are_due_less_and_less_often(for_others: bool) -> None:
    crowd = Crowd(*map(str, range(100)), for_others=for_others)
    due = []
    for _ in range(6):
        due.append(crowd.one_pass()[1])
        crowd.wait(due[-1])
    assert due == [1, 2, 4, 8, 16, 30]
    crowd.api.refuses = False
    assert crowd.one_pass()[1] == SOON_SECONDS
    crowd.api.refuses = True
    assert crowd.one_pass()[1] == FIRST_SECONDS


@BOTH_WAYS
def test_after_a_pass_that_ran_out_of_time_without_an_eviction_no_other_spends_its_own_on_them(
    for_others: bool,
) -> None:
    crowd = Crowd("a", "b", "c", for_others=for_others)
    crowd.one_pass()
    crowd.wait(0.75)
    assert crowd.one_pass() == ([], 0.25)


@BOTH_WAYS
def test_those_for_which_a_pass_had_no_time_come_before_those_that_took_it(for_others: bool) -> None:
    crowd = Crowd("a", "b", "c", for_others=for_others)
    assert crowd.one_pass()[0] == ["a-0", "b-0"]
    crowd.wait(10)
    assert crowd.one_pass()[0] == ["c-0", "a-0"]
    crowd.wait(10)
    assert crowd.one_pass()[0] == ["b-0", "c-0"]


KEY = (Write.EVICTION, "pod")
TRANSIENT = (0, 401, 408, 429, 500, 503)


def evicted(*answers: int, for_others: bool = False) -> list[Done]:
    """What becomes of one eviction that is answered so, tried whenever a pass is due for it."""
    api, pod = Slow(Clock(), refuses=True), job_pod(0, "a")
    orders = Orders(evictions=(Eviction(pod, "why", "", True, for_others),))
    surroundings = Pass(api, cast(Any, None), Settings(pass_seconds=9, interval_seconds=30), clock=api.clock)
    applier = Applies(surroundings)
    done: list[Done] = []
    for api.status in answers:
        done.append(applier.apply(orders, View([], [pod], {}, {})))
        if done[-1].again_seconds != NO_HURRY:
            api.clock.now += done[-1].again_seconds
    applier.close()
    return done


@BOTH_WAYS
@pytest.mark.parametrize("status", TRANSIENT)
def test_an_eviction_that_meets_a_transient_answer_stays_due_and_makes_a_pass_due_soon(
    status: int, for_others: bool
) -> None:
    (done,) = evicted(status, for_others=for_others)
    assert [order.pod.metadata.name for order in done.deferred] == ["a-0"]
    assert done.again_seconds == FIRST_SECONDS


@pytest.mark.parametrize("status", [403, 422])
def test_a_deletion_that_is_refused_for_good_makes_no_pass_due(status: int) -> None:
    (done,) = evicted(status)
    assert (done.deferred, done.failed, done.again_seconds) == ((), False, NO_HURRY)
    assert [order.pod.metadata.name for order in done.denied] == ["a-0"]


def test_the_deletion_of_a_pod_that_is_written_all_the_time_is_denied_and_stays_due() -> None:
    pod = job_pod(0, "a")

    class Written(Slow):
        def request(self, method: str, path: str, *, body: Any = None, **_: Any) -> bytes:
            if method == "DELETE":
                self.sent.append((method, body["preconditions"]))
                raise ApiError(409, "Conflict", "the object has been modified")
            assert (method, path) == ("GET", pod_path(pod))
            return msgspec.json.encode(
                {"metadata": {"uid": pod.metadata.uid, "resourceVersion": "9"}, "spec": {}}
            )

    api = Written(Clock())
    applier = Applies(Pass(api, cast(Any, None), Settings(), clock=api.clock))
    order = Eviction(pod, "why", "")
    done = applier.apply(Orders(evictions=(order,)), View([], [pod], {}, {}))
    applier.close()
    assert (done.denied, done.deferred, done.again_seconds) == ((order,), (order,), FIRST_SECONDS)
    assert len(api.sent) == 3


@BOTH_WAYS
def test_an_eviction_that_is_deferred_for_ever_makes_fewer_and_fewer_passes_due(for_others: bool) -> None:
    due = [done.again_seconds for done in evicted(*8 * [429], for_others=for_others)]
    assert due == [1, 2, 4, 8, 16, 30, 30, 30]


def test_an_eviction_for_others_that_is_refused_for_good_is_asked_for_less_and_less_often() -> None:
    """A policy that refuses it may change, and the plan that it is for waits."""
    due = [done.again_seconds for done in evicted(*6 * [403], for_others=True)]
    assert due == [1, 2, 4, 8, 16, 30]


@pytest.mark.parametrize("status", [404, 409], ids=["is gone", "was replaced"])
def test_an_eviction_of_a_pod_that_is_no_longer_there_is_over(status: int) -> None:
    *_, over, later = evicted(429, 429, status, 429, for_others=True)
    assert over == Done()
    assert later.again_seconds == FIRST_SECONDS, "what is over waits for as little as at first"


def test_a_try_in_a_pass_that_came_for_something_else_makes_the_wait_no_longer() -> None:
    table = RetryTable({KEY: Wait(1, 1)})
    assert table.wait_after(KEY, 0.25, 30) == (Wait(1, 1), False)
    assert table.wait_after(KEY, 1, 30) == (Wait(2, 3), True)


@pytest.mark.parametrize(("asked", "seconds"), [(0.5, 1), (7, 7), (3600, 30)])
def test_a_write_waits_as_long_as_the_api_server_asks_but_no_longer_than_at_most(
    asked: float, seconds: float
) -> None:
    wait, _ = RetryTable().wait_after(KEY, 100, 30, asked)
    assert wait == Wait(1, 100 + seconds)
    assert RetryTable({KEY: wait}).wait_after(KEY, wait.until, 30)[0].seconds == 2


@pytest.mark.parametrize("end", ["it succeeded", "nobody tried for long"])
def test_what_failed_once_and_is_over_waits_for_as_little_as_at_first(end: str) -> None:
    clock = Clock()
    surroundings = Pass(cast(Any, None), cast(Any, None), Settings(interval_seconds=30), clock=clock)
    retries = Retries(surroundings, RetryTable())
    for clock.now in (0, 1, 3):
        retries.failed(KEY)
    if end == "it succeeded":
        retries.over(KEY)
    else:
        clock.now = 100
        retries = Retries(surroundings, retries.table)
    assert retries.failed(KEY).seconds == FIRST_SECONDS


@pytest.mark.parametrize(
    ("status", "outcome"), [(200, "evicted"), (429, "refused"), (403, "failed"), (500, "failed")]
)
def test_each_eviction_is_counted_by_its_cause_and_outcome(status: int, outcome: str) -> None:
    metrics = Metrics()
    order = Eviction(job_pod(0, "a"), "preempted", "why", True, for_others=True)
    api = Slow(Clock(), refuses=status != 200, status=status, seconds=0)
    applier = Applies(Pass(api, cast(Any, None), Settings(), metrics, clock=api.clock))
    applier.apply(Orders(evictions=(order,)), View([], [order.pod], {}, {}))
    applier.close()
    (family,) = metrics.evictions.collect()
    counted = [sample for sample in family.samples if sample.name.endswith("_total")]
    assert [(each.labels, each.value) for each in counted] == [
        ({"cause": "preempted", "outcome": outcome}, 1)
    ]


@pytest.mark.promise("R122", "S14")
def test_each_deletion_is_counted_by_its_cause_and_has_an_event_of_its_pod() -> None:
    api, metrics = Slow(Clock(), seconds=0), Metrics()
    pods = [job_pod(number, "a") for number in range(3)]
    causes = ["not-bound", "node-gone", "not-bound"]
    orders = tuple(Eviction(pod, cause, "why") for pod, cause in zip(pods, causes, strict=True))
    surroundings = Pass(api, cast(Any, None), Settings(), metrics, clock=api.clock)
    applier = Applies(surroundings)
    done = applier.apply(Orders(evictions=orders), View([], pods, {}, {}))
    applier.close()
    assert len(api.evicted) == 3
    assert [(warn.pod, warn.reason, warn.note) for warn in done.warnings if isinstance(warn, Warn)] == [
        (order.pod, "Evicted", order.description) for order in orders
    ]
    counts = {cause: metrics.repairs.labels(cause)._value.get() for cause in set(causes)}
    assert counts == {"not-bound": 2, "node-gone": 1}
