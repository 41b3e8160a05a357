"""Turns written into plans: into which, what of them changes, and when nothing is written."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from labeler.contract import keys
from tests.sweeper.test_defects import Never
from tests.sweeper.turns import FIRST_STAMP, WELL, cluster
from webhook.kube.objects import Metadata
from webhook.kube.placements import Placement, PlacementSpec
from webhook.kube.planned import PlannedPod
from webhook.sweeper.apply.release import Release
from webhook.sweeper.apply.turn_writer import TurnWriter
from webhook.sweeper.context import Pass
from webhook.sweeper.observe.view import View
from webhook.sweeper.settings import Settings

UID = "uid-a-0"


class Scene:
    """A pod of namespace "a" that goes out of line, and the plans that a test gives."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self.server, planned = cluster(lambda *_: WELL, "a")
        self.entry = planned[UID]
        turn = {keys.TURN_ANNOTATION: str(FIRST_STAMP - 10**10)}
        self.ahead = msgspec.structs.replace(self.entry, annotations=self.entry.annotations | turn)
        self.pool = pool
        self.sent: list[tuple[str, list[PlannedPod]]] = []
        self.told: list[Placement] = []

    def write(
        self, plans: Mapping[str, list[PlannedPod]], may_act: Callable[[], bool] = lambda: True
    ) -> list[Release]:
        found = {
            f"{namespace}/plan": Placement(
                Metadata(name="plan", namespace=namespace), PlacementSpec(pods=pods)
            )
            for namespace, pods in plans.items()
        }
        cache = cast(Any, SimpleNamespace(written=self.told.append))
        around = Pass(
            cast(Any, self),
            cache,
            Settings(),
            stopping=cast(Any, Never()),
            may_act=may_act,
            clock=self.server.clock,
        )
        pods = {pod.metadata.uid: pod for pod in self.server.pods(0)}
        return TurnWriter(around, self.pool).write({UID: self.ahead}, pods, View([], [], {}, found))

    def request(self, _: str, path: str, *, body: Any, **__: Any) -> bytes:
        namespace = path.split("/")[-3]
        pods = msgspec.convert(body["spec"]["pods"], list[PlannedPod])
        self.sent.append((namespace, pods))
        plan = Placement(Metadata(name="plan", namespace=namespace), PlacementSpec(pods=pods))
        return msgspec.json.encode(plan)


@pytest.fixture
def scene() -> Iterator[Scene]:
    with ThreadPoolExecutor(2) as pool:
        yield Scene(pool)


def test_a_turn_is_written_into_the_plan_of_the_pod_s_own_namespace_alone(scene: Scene) -> None:
    """Others may name the pod as well, in the same words."""
    assert scene.write({"a": [scene.entry], "b": [scene.entry]}) == []
    assert scene.sent == [("a", [scene.ahead])]
    assert [plan.spec.pods for plan in scene.told] == [[scene.ahead]], "the next pass knows it at once"


def test_what_else_a_plan_says_of_the_pod_stays_as_it_was(scene: Scene) -> None:
    elsewhere = msgspec.structs.replace(scene.entry, node="n1")
    scene.write({"a": [elsewhere, scene.entry]})
    assert scene.sent == [("a", [elsewhere, scene.ahead])]


def test_whose_plan_has_changed_stays_and_nothing_is_written(scene: Scene) -> None:
    (stays,) = scene.write({"a": [msgspec.structs.replace(scene.entry, node="n1")]})
    assert (stays.planned, stays.is_tried, scene.sent) == (scene.ahead, False, [])


def test_who_leads_no_more_writes_nothing(scene: Scene) -> None:
    (stays,) = scene.write({"a": [scene.entry]}, may_act=lambda: False)
    assert (stays.planned, stays.is_tried, scene.sent) == (scene.ahead, False, [])
