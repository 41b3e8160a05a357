"""PodGroups with a topology key of their own below a CompositePodGroup with a coarser one."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import pytest

from tests.extensions.native_groups import BLOCK, HOST, RACK, WHOLE, composite, group, pods
from tests.sweeper.cluster import Nodes, gpu_pod
from webhook.configuration.settings import Settings
from webhook.extensions.native_gangs.adopt import complete_gangs
from webhook.extensions.native_gangs.group_constraints import COMPOSITES
from webhook.extensions.native_gangs.own_pod_groups import GROUPS
from webhook.kube.objects import Pod
from webhook.placement import NoFit, PlacementError
from webhook.sweeper.decide.asking import ask
from webhook.sweeper.decide.gang_question import question
from webhook.sweeper.extension import GangsInput
from webhook.sweeper.observe.gangs import OwnerFacts, PodGang, gather
from webhook.sweeper.observe.membership import DomainRequest
from webhook.sweeper.observe.snapshotter import Snapshotter
from webhook.sweeper.observe.view import View
from webhook.workloads.composite_groups import CompositeGroup, roots_of
from webhook.workloads.native_gangs import NativePodGroup

TWO: Final = {"g": group(2, RACK, **WHOLE), "h": group(1, RACK, **WHOLE)}
"""Of which each needs a rack."""
ROOT: Final = {"whole": composite(1, BLOCK)}


class Scene:
    """Two blocks of three racks of two nodes for one pod each: n0 to n5, n6 to n11. busy: some of these."""

    def __init__(
        self,
        *members: Pod,
        busy: str = "",
        groups: Mapping[str, NativePodGroup] = TWO,
        composites: Mapping[str, CompositeGroup] = ROOT,
    ) -> None:
        others = [gpu_pod(f"busy-{name}", node=name) for name in busy.split()]
        cluster = Nodes(12, *members, *others)
        for number in range(12):
            labels = {BLOCK: f"b{number // 6}", RACK: f"r{number // 2}", HOST: f"h{number}"}
            cluster.label(f"n{number}", labels)
        there = {f"in/{name}": each for name, each in groups.items()}
        above = {f"in/{name}": each for name, each in composites.items()}
        cluster.roots = roots_of(there, above)
        self.snapshotter = Snapshotter(cluster, Settings())
        self.view: View = replace(self.snapshotter.view(), objects={GROUPS: there, COMPOSITES: above})

    @property
    def gang(self) -> PodGang:
        view = self.view
        found = gather(view.gated, view.mates, lambda _: OwnerFacts(None), view.gang_of)
        (gang,) = complete_gangs(GangsInput(found, view, Settings()))
        return gang

    def places(self) -> dict[str, str]:
        """The node of each waiting pod, {} where there is no place."""
        gang, view = self.gang, self.view
        asked = question(gang, gang.gated, view.placed_on(gang.pods), is_ours=lambda _: True)
        answer = ask(asked, self.snapshotter.snapshot(view), Settings().options)
        if isinstance(answer, NoFit):
            return {}
        return {placed.member: placed.node for placed in answer.placed}


def rack(node: str) -> int:
    return int(node[1:]) // 2


def block(node: str) -> int:
    return int(node[1:]) // 6


@pytest.mark.promise("R299")
@pytest.mark.parametrize("busy", ["", "n0 n2 n4", "n1 n3 n5 n6", "n6 n7 n0 n2", "n0 n2 n4 n9 n10 n11"])
def test_each_group_is_in_one_rack_and_all_are_in_one_block(busy: str) -> None:
    """Where the first block has three free nodes in three racks, it lies best but for the racks."""
    found = Scene(*pods(2, "g"), *pods(1, "h"), busy=busy).places()
    assert (set(found), len(set(found.values()))) == ({"g-0", "g-1", "h-0"}, 3)
    assert len({rack(found[name]) for name in ("g-0", "g-1")}) == 1
    assert len(set(map(block, found.values()))) == 1


@pytest.mark.promise("R299")
def test_a_gang_whose_racks_are_free_in_different_blocks_waits() -> None:
    """Each block has four free nodes; only one pair of them is in one rack, and two are needed."""
    groups = {"g": group(2, RACK, **WHOLE), "h": group(2, RACK, **WHOLE)}
    busy = "n3 n5 n9 n11"
    assert Scene(*pods(2, "g"), *pods(2, "h"), busy=busy, groups=groups).places() == {}


def test_a_group_whose_gang_has_begun_is_in_the_block_of_the_others() -> None:
    one = Scene(*pods(1, "h", node="n7"), *pods(2, "g")).places()
    assert set(map(block, one.values())) == {1}
    assert Scene(*pods(1, "h", node="n7"), *pods(2, "g"), busy="n8 n10").places() == {}


def test_groups_without_a_key_of_their_own_are_anywhere_in_the_block() -> None:
    groups = {"g": group(2, RACK, **WHOLE), "h": group(2, **WHOLE)}
    found = Scene(*pods(2, "g"), *pods(2, "h"), groups=groups, busy="n0 n2").places()
    assert len(set(map(block, found.values()))) == 1
    assert rack(found["g-0"]) == rack(found["g-1"])


def test_a_third_level_within_the_second_is_not_placed_and_named() -> None:
    groups = {"g": group(2, HOST, parentCompositePodGroupName="part"), "h": group(1, **WHOLE)}
    composites = {"whole": composite(1, BLOCK), "part": composite(1, RACK, parent="whole")}
    gang = Scene(*pods(2, "g"), *pods(1, "h"), groups=groups, composites=composites).gang
    expected = "CompositePodGroup part requires one subblock, and PodGroup g within it one host"
    assert expected in gang.fault


def test_claims_of_domains_are_refused_beside_nested_levels() -> None:
    gang = Scene(*pods(2, "g"), *pods(1, "h")).gang
    claim = DomainRequest("block", "job")
    claimed = replace(gang, parts=tuple(replace(part, request=claim) for part in gang.parts))
    with pytest.raises(
        PlacementError, match="within one block, which cannot be combined with exclusive domains"
    ):
        question(claimed, gang.gated, {})
