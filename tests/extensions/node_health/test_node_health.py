"""What of failing nodes is saved in the API server, and reported."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from labeler.contract.event_reasons import EventReason
from tests.extensions.made import none_failed
from tests.extensions.node_health.failing import clock_time, ended, exited, proven
from tests.sweeper.cluster import Nodes, Placing
from webhook.configuration.settings import BadNodes, Settings
from webhook.extensions.node_health import node_health
from webhook.extensions.node_health.avoided_nodes import NAME, avoided, encoded, failures_in
from webhook.extensions.node_health.failing_nodes import Failures, FailureState, GangFailure
from webhook.extensions.node_health.node_health import NODE_HEALTH, WRITE_SECONDS, HealthMemory
from webhook.extensions.node_health.pod_failures import seconds_of
from webhook.kube.client import ApiError
from webhook.kube.objects import Node, Pod
from webhook.kube.state_config_map import path_of
from webhook.sweeper.context import Pass, Silent
from webhook.sweeper.decide.node_rules import nodes_of
from webhook.sweeper.extension import Switch
from webhook.sweeper.extension_objects import MISSING_SECONDS
from webhook.sweeper.hooks import ExtensionHooks
from webhook.sweeper.metrics import Metrics
from webhook.sweeper.observe.view import Moment

NOW = float(seconds_of(clock_time(3000)) or 0)
SETTINGS = Settings(bad_nodes=BadNodes(failures=2))


class OneConfigMap:
    """The boundary to the API server: one ConfigMap, with the server's rule of versions, or an error."""

    def __init__(self, data: dict[str, str] | None = None) -> None:
        self.data = data or {}
        self.version = 1
        self.fault: ApiError | None = None
        self.writes = 0

    def json(self, method: str, path: str, **request: Any) -> dict[str, Any]:
        assert path == path_of(NAME)
        if self.fault is not None:
            raise self.fault
        if method == "PATCH":
            if request["body"]["metadata"]["resourceVersion"] != str(self.version):
                raise ApiError(409, "Conflict", "changed meanwhile")
            self.data = {**self.data, **request["body"]["data"]}
            self.version += 1
            self.writes += 1
        return {"metadata": {"resourceVersion": str(self.version)}, "data": self.data}


class Listener(Silent):
    """Collects the Events of nodes."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []

    def announce_on_node(self, node: Node, reason: EventReason, note: str) -> None:
        assert note
        self.events.append((node.metadata.name, reason))


class Cache:
    """Hands over failed pods."""

    def __init__(self, *pods: Pod) -> None:
        self.pods = list(pods)

    def take_failed(self) -> list[Pod]:
        taken, self.pods = self.pods, []
        return taken

    def namespace_labels(self) -> None:
        return None

    def served(self) -> dict[str, str]:
        return {}


class Life:
    """One leader's life beside an API server that stays."""

    def __init__(self, api: OneConfigMap, cluster: Nodes, *failed: Pod) -> None:
        self.cluster = Placing(cluster, SETTINGS)
        self.listener = Listener()
        self.metrics = Metrics()
        self.cache = Cache(*failed)
        fake_api: Any = api
        fake_cache: Any = self.cache
        surroundings = Pass(
            fake_api, fake_cache, SETTINGS, self.metrics, self.listener, clock=self.cluster.clock,
            extensions=(Switch(lambda *_: True, lambda: NODE_HEALTH),),
        )  # fmt: skip
        self.hooks = ExtensionHooks(surroundings)

    def step(self) -> Failures:
        self.cluster.clock.now += WRITE_SECONDS
        view = replace(
            self.cluster.view(), now=Moment(self.cluster.clock(), datetime.fromtimestamp(NOW, UTC))
        )
        view = self.hooks.begin(view, self.hooks.memories)
        self.hooks.on_failed(self.cache.take_failed())
        self.hooks.exclude((), view)
        self.hooks.after_pass(view, none_failed(self.hooks))
        return self.health.failures

    @property
    def health(self) -> HealthMemory:
        found = self.hooks.memories[NODE_HEALTH.name]
        assert isinstance(found, HealthMemory)
        return found

    def know(self, *failures: GangFailure) -> None:
        """These are its failures from now on."""
        self.hooks.memories = {NODE_HEALTH.name: replace(self.health, failures=failures)}


TWO: Failures = tuple(proven("n0", gang=f"g-{name}", namespace=name, at=int(NOW) - 10) for name in "ab")


def failed(name: str = "p") -> Pod:
    return ended(name, "n0", status={"phase": "Failed", "containerStatuses": [exited(1, 50)]})


@pytest.mark.promise("O132", "O148")
def test_what_one_life_has_seen_the_next_one_knows() -> None:
    api = OneConfigMap()
    seen = Life(api, Nodes(2), failed()).step()
    assert len(seen) == 1
    assert Life(api, Nodes(2)).step() == seen


def test_nothing_is_written_as_long_as_nothing_fails() -> None:
    api = OneConfigMap()
    life = Life(api, Nodes(2))
    for _ in range(3):
        life.step()
    assert api.writes == 0


def test_what_has_not_changed_is_not_written_again() -> None:
    api = OneConfigMap()
    life = Life(api, Nodes(2), failed())
    for _ in range(3):
        life.step()
    assert api.writes == 1


def test_failed_pods_are_taken_in_once_the_api_server_answers() -> None:
    api = OneConfigMap()
    api.fault = ApiError(0, "Away", "no answer")
    life = Life(api, Nodes(2), failed())
    assert life.step() == ()
    api.fault = None
    assert len(life.step()) == 1


@pytest.mark.promise("O148")
@pytest.mark.parametrize("status", [403, 404])
def test_where_nothing_can_be_stored_everything_works_without(status: int) -> None:
    api = OneConfigMap()
    api.fault = ApiError(status, "No", "no such thing for you")
    life = Life(api, Nodes(2), failed())
    assert len(life.step()) == 1
    assert len(life.step()) == 1


def life_whose_record_is_removed() -> tuple[Life, OneConfigMap, Failures]:
    """It has read two failures and heard of a third; with all three."""
    api = OneConfigMap({"failures": encoded(TWO)})
    life = Life(api, Nodes(2))
    assert life.step() == TWO
    api.fault = ApiError(404, "NotFound", "no such thing")
    life.cache.pods.append(failed())
    known = life.step()
    assert len(known) == 3
    return life, api, known


def test_what_is_known_outlives_that_it_is_removed_and_is_written_once_it_is_there_again() -> None:
    life, api, known = life_whose_record_is_removed()
    assert life.step() == known
    api.fault, api.data, api.version = None, {}, 1
    life.cluster.clock.now += MISSING_SECONDS
    life.step()
    assert life.step() == known
    life.step()
    assert failures_in(api.data) == known
    assert Life(api, Nodes(2)).step() == known


def test_what_is_known_outlives_that_a_write_finds_it_removed_and_the_next_read_finds_a_new_one() -> None:
    """As where an upgrade removes and recreates it."""
    life, api, known = life_whose_record_is_removed()
    api.fault, api.data, api.version = None, {}, 1
    for _ in range(2):
        assert life.step() == known
    assert failures_in(api.data) == known


def test_what_is_known_outlives_that_the_api_server_is_away_while_it_is_removed() -> None:
    api = OneConfigMap()
    api.fault = ApiError(404, "NotFound", "no such thing")
    life = Life(api, Nodes(2), failed())
    known = life.step()
    assert len(known) == 1
    life.cluster.clock.now += MISSING_SECONDS
    life.step()
    api.fault = ApiError(0, "Away", "no answer")
    life.cluster.clock.now += MISSING_SECONDS
    life.step()
    api.fault = None
    for _ in range(2):
        assert life.step() == known


def test_what_an_operator_put_in_the_place_of_what_was_removed_counts() -> None:
    api = OneConfigMap()
    api.fault = ApiError(404, "NotFound", "no such thing")
    life = Life(api, Nodes(2), failed())
    assert len(life.step()) == 1
    api.fault, api.data = None, {"failures": encoded(TWO)}
    life.cluster.clock.now += MISSING_SECONDS
    life.step()
    assert life.step() == TWO


@pytest.mark.promise("O148")
def test_what_an_operator_has_emptied_meanwhile_is_forgotten() -> None:
    api = OneConfigMap({"failures": encoded(TWO)})
    life = Life(api, Nodes(2))
    assert life.step() == TWO
    api.data, api.version = {}, api.version + 1
    life.cache.pods.append(failed())
    life.step()
    assert life.step() == ()


@pytest.mark.promise("O145")
def test_an_event_on_the_node_reports_once_that_it_is_avoided_and_once_that_it_is_used_again() -> None:
    api = OneConfigMap({"failures": encoded(TWO[:1])})
    life = Life(api, Nodes(2))
    life.step()
    assert life.listener.events == []
    life.know(*TWO)
    life.step()
    life.step()
    assert life.listener.events == [("n0", "NodeAvoided")]
    assert Life(api, Nodes(2)).step() == TWO  # a leader that follows
    again = Life(api, Nodes(2))
    again.step()
    assert again.listener.events == []
    life.know()
    life.step()
    assert life.listener.events == [("n0", "NodeAvoided"), ("n0", "NodeRecovered")]


def sample(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


@pytest.mark.promise("O145")
def test_metrics_count_avoided_nodes_by_model_and_name_each() -> None:
    life = Life(OneConfigMap({"failures": encoded(TWO)}), Nodes(2))
    life.step()
    named = {"node": "n0", "cause": "exit status 1"}
    assert sample(life.metrics, "topogate_avoided_nodes", model="") == 1
    assert sample(life.metrics, "topogate_avoided_node_info", **named) == 1
    life.know()
    life.step()
    assert sample(life.metrics, "topogate_avoided_nodes", model="") is None
    assert sample(life.metrics, "topogate_avoided_node_info", **named) is None


def test_people_read_which_nodes_are_avoided_by_whom_and_why() -> None:
    api = OneConfigMap({"failures": encoded(TWO)})
    Life(api, Nodes(2)).step()
    (stored,) = json.loads(api.data["avoided"])
    assert (stored["node"], stored["by"]) == ("n0", "*")
    assert stored["gangs"] == 2
    assert avoided(api.data)[0].cause == "exit status 1"


def test_failures_are_read_as_they_were_written() -> None:
    failures = (*TWO, proven("n1", gang="g", namespace="c", state=FailureState.CLEARED))
    assert failures_in({"failures": encoded(failures)}) == failures


@pytest.mark.parametrize("text", ["", "no json", '[{"namespace": 1}]', "{}"])
def test_what_cannot_be_read_is_begun_again(text: str) -> None:
    assert failures_in({"failures": text}) == ()


EXTREMES = [-(2**63), -1, 10**12, 2**63 - 1]


@pytest.mark.parametrize("field", ["created", "at", "ran", "gpus"])
def test_failures_with_times_and_counts_that_no_sweeper_writes_are_left_out(field: str) -> None:
    """A time beyond year 9999 cannot be shown, and a later one would count for ever."""
    for value in EXTREMES:
        wrong = proven("n1", gang="g", namespace="c")
        stored = encoded((*TWO, replace(wrong, **{field: value})))  # type: ignore[arg-type]
        assert failures_in({"failures": stored}, NOW) == TWO


def test_failures_without_pods_or_with_huge_texts_are_left_out() -> None:
    wrong = proven("n1", gang="g", namespace="c")
    for each in (
        replace(wrong, pods=()),
        replace(wrong, cause="x" * 1000),
        replace(wrong, namespace="n" * 254),
    ):
        assert failures_in({"failures": encoded((*TWO, each))}, NOW) == TWO


@pytest.mark.parametrize("value", EXTREMES)
def test_an_avoided_node_whose_time_cannot_be_shown_is_left_out(value: int) -> None:
    one = {"node": "n0", "by": "*", "model": "", "gangs": 1, "cause": "x", "last": 1, "until": 2}
    for field in ("last", "until"):
        assert avoided({"avoided": json.dumps([one, one | {field: value}])}) == avoided(
            {"avoided": json.dumps([one])}
        )


def test_all_that_is_stored_fits_into_one_object() -> None:
    """The API server takes 1 MiB of a ConfigMap."""
    name = "x" * 253
    one = proven(name, gang="0" * 12, namespace="n" * 63, at=int(NOW))
    both = tuple((f"{'0' * 36}", name) for _ in range(2))
    text = encoded((replace(one, pods=both),) * 1000)
    assert len(text) < 1_000_000


def test_a_refused_write_is_tried_again() -> None:
    api = OneConfigMap()
    life = Life(api, Nodes(2))
    life.step()
    api.fault = ApiError(500, "Internal", "later")
    life.cache.pods.append(failed())
    known = life.step()
    assert not api.data
    api.fault = None
    life.step()
    assert failures_in(api.data) == known


def test_after_a_defect_no_gang_is_placed_on_a_node_that_was_excluded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    life = Life(OneConfigMap({"failures": encoded(TWO)}), Nodes(2))
    life.step()
    assert nodes_of(life.hooks.node_rules.rules) == {"n0"}
    monkeypatch.setattr(node_health, "failing_nodes", lambda *_: 1 / 0)
    life.step()
    assert nodes_of(life.hooks.node_rules.rules) == {"n0"}
    assert "exclusions_reused name=node_health nodes=1" in caplog.text
