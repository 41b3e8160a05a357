"""Another writer of the labeler's labels: reported while it lasts, and answered less and less often."""

from itertools import pairwise

import pytest

from labeler.contention import LONGEST_PAUSE_SECONDS, SETTLED_SECONDS, Contention
from labeler.contract.event_reasons import EventReason
from labeler.health import Health
from labeler.labels import Wanted
from labeler.main import metrics_of
from labeler.publisher import NodePublisher
from tests.labeler.played_node import PlayedNode

RACK, HOST = "topology.gke.io/rack", "topology.gke.io/host"
LEVELS = ("topology.gke.io/cluster", RACK, HOST)
WANT = Wanted({RACK: "r", HOST: "h"}, {})


class Scene:
    """A node, a publisher and a clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.node = PlayedNode()
        self.contention = Contention(lambda: self.now)
        self.publisher = NodePublisher(self.node, LEVELS, self.contention)  # type: ignore[arg-type]
        self.publish()

    def publish(self, want: Wanted = WANT) -> None:
        self.publisher.publish(want)

    def fight(self, minutes: int, value: str = "theirs") -> list[int]:
        """The other writer changes a label whenever it is ours; the minutes in which it was written again."""
        written = []
        for minute in range(minutes):
            self.node.labels[RACK] = value
            self.publish()
            if self.node.labels[RACK] == "r":
                written.append(minute)
            self.now += 60
        return written


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_label_that_another_writer_changes_once_is_written_again_at_once_with_an_event(
    scene: Scene,
) -> None:
    scene.node.managed = [
        {"manager": "topogate-labeler", "fieldsV1": {"f:metadata": {"f:labels": {f"f:{RACK}": {}}}}},
        {"manager": "kubectl-label", "fieldsV1": {"f:metadata": {"f:labels": {f"f:{RACK}": {}}}}},
    ]
    assert scene.fight(1) == [0]
    ((reason, text),) = scene.node.events
    assert reason == EventReason.LABEL_CONTESTED
    assert (
        f"label {RACK}, which the labeler writes as 'r', was set to 'theirs' by 'kubectl-label' (once)"
        in text
    )


@pytest.mark.promise("O309")
def test_a_writer_that_does_not_stop_is_answered_less_and_less_often_with_an_event_each_time(
    scene: Scene,
) -> None:
    written = scene.fight(300)
    pauses = [later - earlier for earlier, later in pairwise(written)]
    assert pauses[:6] == [2, 3, 5, 9, 17, 33]
    assert max(pauses) == LONGEST_PAUSE_SECONDS // 60 + 1
    assert len(scene.node.events) - len(written) in (0, 1)  # the last one may still be waited for


def test_other_labels_are_written_meanwhile(scene: Scene) -> None:
    scene.fight(3)
    scene.node.labels[RACK] = "theirs"
    scene.publish(Wanted({RACK: "r", HOST: "moved"}, {}))
    assert (scene.node.labels[RACK], scene.node.labels[HOST]) == ("theirs", "moved")


def test_a_label_that_is_removed_is_reported_as_well(scene: Scene) -> None:
    del scene.node.labels[RACK]
    scene.publish()
    assert scene.node.labels[RACK] == "r"
    assert "was removed by another writer" in scene.node.events[0][1]


def test_a_change_of_what_is_wanted_is_no_contention(scene: Scene) -> None:
    scene.publish(Wanted({RACK: "new", HOST: "h"}, {}))
    scene.publish(Wanted({RACK: "newer", HOST: "h"}, {}))
    assert (scene.node.events, scene.contention.contested) == ([], 0)


@pytest.mark.promise("O309")
def test_the_metrics_show_it_while_it_lasts(scene: Scene) -> None:
    health = Health(60.0, metrics=metrics_of(scene.contention))
    assert "topogate_labeler_contested_labels 0.0\n" in health.answer("/metrics")[1]
    scene.fight(3)
    text = health.answer("/metrics")[1]
    assert "topogate_labeler_contested_labels 1.0\n" in text
    assert "topogate_labeler_label_losses_total 2.0\n" in text
    scene.now += LONGEST_PAUSE_SECONDS
    scene.publish()
    scene.now += SETTLED_SECONDS + 1
    scene.publish()
    assert "topogate_labeler_contested_labels 0.0\n" in health.answer("/metrics")[1]


def test_an_event_that_is_not_taken_keeps_no_label_from_the_node(scene: Scene) -> None:
    scene.node.takes_events = False
    assert scene.fight(1) == [0]


def test_a_patch_names_the_node_that_was_read_so_that_no_other_of_its_name_is_written(scene: Scene) -> None:
    scene.node.uid = "first"
    scene.publish(Wanted({RACK: "other", HOST: "h"}, {}))
    assert scene.node.bodies[-1] == {"metadata": {"labels": {RACK: "other"}, "uid": "first"}}


def test_another_writer_is_noticed_where_the_labeler_found_the_node_as_it_should_be() -> None:
    node = PlayedNode()
    publisher = NodePublisher(node, LEVELS)  # type: ignore[arg-type]
    publisher.publish(WANT)
    restarted = NodePublisher(node, LEVELS)  # type: ignore[arg-type]
    restarted.publish(WANT)
    node.labels[RACK] = "theirs"
    restarted.publish(WANT)
    assert len(node.bodies) == 2
    assert [reason for reason, _ in node.events] == [EventReason.LABEL_CONTESTED]
