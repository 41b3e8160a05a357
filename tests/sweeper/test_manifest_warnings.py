"""What admission warns of is told to the gang's owner, each sentence once."""

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


class Room:
    """Warnings of one pass after the other."""

    def __init__(self, policy: Policy | None) -> None:
        self.said: list[tuple[str, str, str]] = []
        self.policy = policy
        self.told: WarningsOf = {}

    def tell(self, *gangs: PodGang) -> None:
        """A pass over these gangs."""
        warnings, self.told = warn_of_manifests(gangs, self.policy, self.told)
        assert all(each.reason.is_warning for each in warnings)
        self.said += [(each.pod.metadata.name, each.reason, each.note) for each in warnings]


@pytest.fixture
def room() -> Room:
    return Room(Policy())


def member(index: int, annotations: dict[str, str], labels: dict[str, str] | None = None) -> Pod:
    plain = job_pod(index).metadata
    return job_pod(index, labels={**plain.labels, **(labels or {})}, annotations=annotations)


def gang_of(*pods: Pod) -> PodGang:
    (gang,) = gather(pods, [], lambda _: OwnerFacts(len(pods)))
    return gang


def test_what_a_misspelled_key_means_is_said_once(room: Room) -> None:
    gang = gang_of(*(member(index, {f"{OURS}gangsize": "4"}) for index in range(3)))
    for _ in range(3):
        room.tell(gang)
    (told,) = room.said
    assert told[1:] == ("ManifestWarning", SPELLED)


def test_what_pods_say_that_come_later_is_said_then(room: Room) -> None:
    first = member(0, {f"{OURS}gangsize": "4"})
    room.tell(gang_of(first))
    room.tell(gang_of(first, member(1, {f"{OURS}gangsize": "4", f"{OURS}required-topology": "rack"})))
    assert [note for _, _, note in room.said] == [
        SPELLED,
        f'{OURS}required-topology: no level "rack"; known: block, subblock and host',
    ]


def test_a_gang_whose_every_pod_says_something_else_is_told_so_much_and_no_more(room: Room) -> None:
    """Else one gang fills the queue of Events for everybody, and what is remembered of it grows for ever."""
    pods = [
        member(index, {f"{OURS}required-topology": f"rack-{index}"}) for index in range(3 * MOST_WARNINGS)
    ]
    for count in (MOST_WARNINGS - 2, 2 * MOST_WARNINGS, 3 * MOST_WARNINGS):
        room.tell(gang_of(*pods[:count]))
    assert len(room.said) == MOST_WARNINGS
    assert [len(told.sentences) for told in room.told.values()] == [MOST_WARNINGS]


def test_a_gang_of_the_same_name_that_comes_later_is_told_again(room: Room) -> None:
    gang = gang_of(member(0, {f"{OURS}gangsize": "4"}))
    room.tell(gang)
    room.tell()
    room.tell(gang)
    assert len(room.said) == 2


@pytest.mark.parametrize(
    "gang",
    [
        gang_of(member(0, {f"{OURS}required-topology": "block"})),
        gang_of(decode(pod_json("bare", metadata={"annotations": {f"{OURS}gangsize": "4"}}))),
        gang_of(member(0, dict.fromkeys(marks.TOPOLOGY_REQUESTS, "x"), {"kueue.x-k8s.io/podset": "main"})),
    ],
    ids=["nothing wrong", "no controller: its author was warned", "Kueue reads its own"],
)
def test_nothing_is_said_of(room: Room, gang: PodGang) -> None:
    room.tell(gang)
    assert room.said == []


def test_without_a_policy_nothing_is_said_until_there_is_one(room: Room) -> None:
    gang = gang_of(member(0, {f"{OURS}required-topology": "rack"}))
    room.policy = None
    room.tell(gang)
    assert room.said == []
    room.policy = Policy(topology_levels=("rack",))
    room.tell(gang)
    assert room.said == [], "the level is the policy's"


def test_topology_requests_of_others_are_told_with_ours(room: Room) -> None:
    requests = {
        "volcano.sh/network-topology-mode": "soft",
        "kai.scheduler/topology-required-placement": "a.b/c",
    }
    room.tell(gang_of(member(0, requests)))
    ((_, _, note),) = room.said
    assert note == (
        f"kai.scheduler/topology-required-placement is not read: write {keys.REQUIRED_TOPOLOGY_ANNOTATION}; "
        f"volcano.sh/network-topology-mode is not read: write {keys.PREFERRED_TOPOLOGY_ANNOTATION}"
    )
