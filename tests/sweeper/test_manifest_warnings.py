"""What admission warns of is reported to the gang's owner, each sentence once."""

import pytest

from labeler.contract import keys
from tests.sweeper.pods import decode, job_pod, pod_json
from webhook.kube.objects import Pod
from webhook.policy.values import Policy
from webhook.sweeper.decide.admission_followup import MOST_WARNINGS, WarningsOf, warn_of_manifests
from webhook.sweeper.observe.gangs import OwnerFacts, PodGang, gather
from webhook.workloads import marks

OURS = keys.TOPOGATE_PREFIX
SPELLED = f'"{OURS}gangsize" has no effect; did you mean {OURS}gang-size?'


class Scene:
    """Warnings of one pass after the other."""

    def __init__(self, policy: Policy | None) -> None:
        self.events: list[tuple[str, str, str]] = []
        self.policy = policy
        self.given: WarningsOf = {}

    def warn(self, *gangs: PodGang) -> None:
        """A pass over these gangs."""
        warnings, self.given = warn_of_manifests(gangs, self.policy, self.given)
        assert all(each.reason.is_warning for each in warnings)
        self.events += [(each.pod.metadata.name, each.reason, each.note) for each in warnings]


@pytest.fixture
def scene() -> Scene:
    return Scene(Policy())


def member(index: int, annotations: dict[str, str], labels: dict[str, str] | None = None) -> Pod:
    plain = job_pod(index).metadata
    return job_pod(index, labels={**plain.labels, **(labels or {})}, annotations=annotations)


def gang_of(*pods: Pod) -> PodGang:
    (gang,) = gather(pods, [], lambda _: OwnerFacts(len(pods)))
    return gang


@pytest.mark.promise("O363")
def test_the_meaning_of_a_misspelled_key_is_reported_once(scene: Scene) -> None:
    gang = gang_of(*(member(index, {f"{OURS}gangsize": "4"}) for index in range(3)))
    for _ in range(3):
        scene.warn(gang)
    (given,) = scene.events
    assert given[1:] == ("ManifestWarning", SPELLED)


def test_mistakes_of_pods_that_come_later_are_reported_then(scene: Scene) -> None:
    first = member(0, {f"{OURS}gangsize": "4"})
    scene.warn(gang_of(first))
    scene.warn(gang_of(first, member(1, {f"{OURS}gangsize": "4", f"{OURS}required-topology": "rack"})))
    assert [note for _, _, note in scene.events] == [
        SPELLED,
        f'{OURS}required-topology: no level "rack"; known: block, subblock, host and node',
    ]


def test_a_gang_whose_every_pod_has_another_mistake_gets_a_bounded_number_of_events(scene: Scene) -> None:
    """Else one gang fills the queue of Events for everybody, and what is remembered of it grows for ever."""
    pods = [
        member(index, {f"{OURS}required-topology": f"rack-{index}"}) for index in range(3 * MOST_WARNINGS)
    ]
    for count in (MOST_WARNINGS - 2, 2 * MOST_WARNINGS, 3 * MOST_WARNINGS):
        scene.warn(gang_of(*pods[:count]))
    assert len(scene.events) == MOST_WARNINGS
    assert [len(given.sentences) for given in scene.given.values()] == [MOST_WARNINGS]


def test_a_gang_of_the_same_name_that_comes_later_is_warned_again(scene: Scene) -> None:
    gang = gang_of(member(0, {f"{OURS}gangsize": "4"}))
    scene.warn(gang)
    scene.warn()
    scene.warn(gang)
    assert len(scene.events) == 2


@pytest.mark.parametrize(
    "gang",
    [
        gang_of(member(0, {f"{OURS}required-topology": "block"})),
        gang_of(decode(pod_json("bare", metadata={"annotations": {f"{OURS}gangsize": "4"}}))),
        gang_of(member(0, dict.fromkeys(marks.TOPOLOGY_REQUESTS, "x"), {"kueue.x-k8s.io/podset": "main"})),
    ],
    ids=["nothing wrong", "no controller: its author was warned", "Kueue reads its own"],
)
def test_no_event_warns_of(scene: Scene, gang: PodGang) -> None:
    scene.warn(gang)
    assert scene.events == []


def test_without_a_policy_nothing_is_reported_until_there_is_one(scene: Scene) -> None:
    gang = gang_of(member(0, {f"{OURS}required-topology": "rack"}))
    scene.policy = None
    scene.warn(gang)
    assert scene.events == []
    scene.policy = Policy(topology_levels=("rack",))
    scene.warn(gang)
    assert scene.events == [], "the level is the policy's"


def test_topology_requests_of_others_are_reported_with_ours(scene: Scene) -> None:
    requests = {
        "volcano.sh/network-topology-mode": "soft",
        "kai.scheduler/topology-required-placement": "a.b/c",
    }
    scene.warn(gang_of(member(0, requests)))
    ((_, _, note),) = scene.events
    assert note == (
        f"kai.scheduler/topology-required-placement is not read: write {keys.REQUIRED_TOPOLOGY_ANNOTATION}; "
        f"volcano.sh/network-topology-mode is not read: write {keys.PREFERRED_TOPOLOGY_ANNOTATION}"
    )
