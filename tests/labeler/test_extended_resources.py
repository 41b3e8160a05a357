"""Cards as extended resources of the Node, with the component's role and policy on a real API server."""

import os
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hack.local.cluster import Cluster
from labeler.api import NodeApiError
from labeler.contract import keys
from labeler.facts import Facts, Gpu
from labeler.labels import Wanted, wanted
from labeler.publisher import NodePublisher
from labeler.resources import ResourcePublisher, resource_changes
from tests.labeler.installed import NAMESPACE, ROOT, Installed, install

LEVELS = keys.PRERELEASE_TOPOLOGY
CARDS = tuple(Gpu(n, "intel", tiles=2, memory_bytes=48 << 30) for n in range(8))
COUNTED = {keys.MILLICORES: "8000", keys.MEMORY_MAX: str(8 * (48 << 30)), keys.TILES: "16"}


def test_capacity_gets_all_three_resources() -> None:
    assert resource_changes({"cpu": "8"}, wanted(Facts(gpus=CARDS), LEVELS).labels) == COUNTED


def test_a_node_without_usable_cards_loses_them_all() -> None:
    skipped = wanted(Facts(gpus=(Gpu(0, "intel", skipped="why"),)), LEVELS).labels
    assert skipped == {keys.TILES: "0"}
    assert resource_changes({**COUNTED, "cpu": "8"}, skipped) == dict.fromkeys(COUNTED)


@given(st.sampled_from(["", "Ki", "Mi", "Gi", "Ti", "k", "M", "G", "T"]), st.integers(1, 1000))
def test_an_amount_is_the_same_however_the_server_writes_it(unit: str, number: int) -> None:
    factors = {"": 1} | {f"{p}i": 1024**n for n, p in enumerate("KMGT", 1)} | {"k": 1000}
    factors |= {p: 1000**n for n, p in enumerate("MGT", 2)}
    labels = {key: str(number * factors[unit]) for key in COUNTED}
    capacity = dict.fromkeys(COUNTED, f"{number}{unit}")
    assert resource_changes(capacity, labels) == {}
    assert resource_changes(capacity, {**labels, keys.TILES: "7.5"}) == {keys.TILES: "7.5"}


@pytest.fixture(scope="module")
def installed(module_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("extended")
    done = install(module_cluster, folder, node_count=1)
    _apply_component(module_cluster, folder)
    api = done.node_api("n0")

    def in_force() -> bool:
        try:
            # Another amount each time: what an older policy let through once would be no change later,
            # and a change of nothing is never refused.
            amount = str(time.monotonic_ns())
            api.patch({"status": {"capacity": {"example.com/gold": amount}}}, "status")
        except NodeApiError as error:
            return "capacity of gpu.intel.com" in str(error)
        return False

    module_cluster.wait_for("the wider role and policy to be in force", in_force)
    undo = {"status": {"capacity": {"example.com/gold": None}}}
    module_cluster.api().request(
        "PATCH", "/api/v1/nodes/n0/status", body=undo, content_type="application/merge-patch+json"
    )
    return done


def _apply_component(cluster: Cluster, folder: Path) -> None:
    relative = os.path.relpath(ROOT / "manifests", folder)
    (folder / "kustomization.yaml").write_text(
        f"resources: [{relative}/base/labeler.yaml, {relative}/base/labeler-policy.yaml]\n"
        f"components: [{relative}/components/labeler-extended-resources]\n"
    )
    built = cluster.kubectl("kustomize", "--load-restrictor=LoadRestrictionsNone", str(folder)).stdout
    cluster.kubectl("apply", "-f", "-", stdin=built)
    # The labeler's pods are replaced, and a token bound to a deleted one is good for nothing.
    cluster.kubectl("rollout", "status", "daemonset/labeler", f"--namespace={NAMESPACE}", "--timeout=60s")


def publish(installed: Installed, want: Wanted) -> int:
    """Publish; returns the number of writes."""
    api = installed.node_api("n0")
    written: list[object] = []
    send = api.patch

    def patch(body: Mapping[str, object], subresource: str = "") -> None:
        written.append(body)
        send(body, subresource)

    with pytest.MonkeyPatch.context() as replaced:
        replaced.setattr(api, "patch", patch)
        ResourcePublisher(api, NodePublisher(api, LEVELS)).publish(want)
    return len(written)


@pytest.mark.promise("O33")
def test_cards_become_resources_that_are_removed_with_them(installed: Installed) -> None:
    want = wanted(Facts(gpus=CARDS), LEVELS)
    assert publish(installed, want) == 2
    capacity = installed.node("n0")["status"]["capacity"]
    assert resource_changes(capacity, COUNTED) == {}
    assert publish(installed, want) == 0
    assert publish(installed, wanted(Facts(gpus=()), LEVELS)) == 2
    node = installed.node("n0")
    assert not set(COUNTED) & (set(node["status"]["capacity"]) | set(node["metadata"]["labels"]))


@pytest.mark.parametrize(
    "status",
    [
        {"capacity": {"cpu": "1000"}},
        {"capacity": {"pods": None}},
        {"allocatable": {"gpu.intel.com/tiles": "9"}},
        {"conditions": [{"type": "Ready", "status": "False"}]},
        {"addresses": [{"type": "InternalIP", "address": "10.9.9.9"}]},
    ],
    ids=["another resource", "remove a resource", "allocatable", "conditions", "addresses"],
)
def test_nothing_else_of_the_status_may_be_changed(installed: Installed, status: dict[str, object]) -> None:
    with pytest.raises(NodeApiError, match="a labeler may"):
        installed.node_api("n0").patch({"status": status}, "status")


def test_labels_through_the_status_must_have_the_same_prefixes(installed: Installed) -> None:
    with pytest.raises(NodeApiError, match="may only change labels under"):
        installed.node_api("n0").patch({"metadata": {"labels": {"example.com/a": "b"}}}, "status")
