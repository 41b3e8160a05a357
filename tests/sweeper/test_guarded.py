"""A defect in one phase of a pass keeps no other from its work."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from tests.scheduling.shelf import Shelf
from tests.sweeper.cluster import Nodes, gpu_pod
from tests.sweeper.edits import NoneFailed, Stored, defects_of
from tests.sweeper.empty_api import Empty
from webhook.configuration.settings import Avoid, BadNodes, Settings
from webhook.kube.collection import Listing
from webhook.policy.values import Policy
from webhook.scheduling import antiaffinity, convert, pod_mix
from webhook.sweeper import decision, pass_measurements, sweep
from webhook.sweeper.context import Pass
from webhook.sweeper.decide.ungated_pods import UngatedPods
from webhook.sweeper.observe import lost_owners, owner_existence, snapshotter
from webhook.sweeper.observe.cache import ClusterCache
from webhook.sweeper.repair.repair import RepairMemory
from webhook.sweeper.report import Reporter
from webhook.sweeper.sweep import SOON_SECONDS, Sweeper

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def failing(*_: Any, **__: Any) -> None:
    raise RuntimeError("a defect")


@pytest.mark.parametrize("broken", [(decision, "remembered"), (RepairMemory, "of")], ids=["placer", "repair"])
def test_what_cannot_be_remembered_keeps_no_step_from_its_work(
    broken: tuple[object, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else every gated pod of the cluster would wait, pass after pass."""
    api = Empty()
    cache = ClusterCache(api)
    sweeper = Sweeper(Pass(api, cache, Settings(bad_nodes=BadNodes(Avoid.OFF))))
    done: list[str] = []

    def noting(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any, **named: Any) -> Any:
            done.append(name)
            return real(*args, **named)

        return noted

    for kind, name in ((decision, "roll_back"), (Reporter, "report")):
        monkeypatch.setattr(kind, name, noting(name, getattr(kind, name)))
    try:
        assert sweeper.sweep() > SOON_SECONDS, "nothing is wrong"
        done.clear()
        monkeypatch.setattr(*broken, failing)
        assert sweeper.sweep() == SOON_SECONDS
    finally:
        sweeper.close()
        cache.stop()
    assert done == ["roll_back", "report"]


MERELY_HELPS: Final = {
    "the mix of pods": (pod_mix, "mix_of"),
    "the pods of the mix": (pod_mix, "counts_of"),
    "the count of unbound pods": (sweep, "count_unbound"),
    "the sums of GPUs": (pass_measurements, "take_stock"),
    "the time that gangs waited": (pass_measurements.PassMeasurements, "on_result"),
    "the pods that admission missed": (UngatedPods, "by_cause"),
    "an Event": (Reporter, "_announce"),
    "the status of Placements": (Reporter, "report"),
}


@pytest.mark.parametrize("broken", MERELY_HELPS.values(), ids=MERELY_HELPS)
def test_a_defect_in_a_preference_a_measurement_or_a_report_keeps_no_gang_from_its_place(
    broken: tuple[object, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    api, cache = Stored(), NoneFailed(Empty())
    cache.pods._replace(Listing("1", {"ns/wait": gpu_pod("wait")}))
    cache.nodes._replace(Listing("1", Nodes(2).nodes))
    surroundings = Pass(api, cache, Settings(settle_seconds=0, reserve_seconds=0), policy=Policy)
    cache.namespace_labels = lambda: {"ns": {}}  # type: ignore[method-assign]
    sweeper = Sweeper(surroundings)
    monkeypatch.setattr(*broken, failing)
    assert defects_of(sweeper, cache, passes=1), "the defect is in the log"
    assert any("/pods/wait" in each for each in api.writes)


ABOUT_ONE: Final = {
    "what a running pod uses": (convert, "usage_of", False),
    "the place of a node": (snapshotter, "node_of", True),
    "the rules of a pod": (antiaffinity, "terms_of", True),
    "the volumes of pods": (snapshotter, "volume_counts", False),
    "the owner of a waiting pod": (owner_existence, "lost_by", False),
    "which pods have one owner": (lost_owners, "lost_by", True),
}
"""By the subject: what fails about the pod bad or the node n0, and whether bad is still released."""


@pytest.mark.parametrize(("module", "name", "is_released"), ABOUT_ONE.values(), ids=ABOUT_ONE)
def test_a_defect_with_one_object_stops_the_gangs_of_no_other(
    module: Any, name: str, is_released: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An OverflowError, say; a value that cannot be read is a ValueError, and has a sentence."""
    real = getattr(module, name)

    def fails(*given: Any, **named: Any) -> Any:
        subject = getattr(given[0], "metadata", None)
        if subject is None or subject.name in ("bad", "n0"):
            raise OverflowError("a defect")
        return real(*given, **named)

    shelf, api, cache = Shelf(), Stored(), NoneFailed(Empty())
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": shelf.wait("c", by="disks.example.com")}}]
    cache.storage = lambda is_wanted: shelf.storage  # type: ignore[method-assign]
    away = {"podAntiAffinity": {REQUIRED: [{"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}]}}
    bad = gpu_pod("bad", affinity=away, volumes=volumes, node="n0" if name == "usage_of" else "")
    cache.pods._replace(Listing("1", {f"ns/{pod.metadata.name}": pod for pod in (bad, gpu_pod("wait"))}))
    nodes = Nodes(3)
    for each in list(nodes.nodes):
        nodes.label(each, {"kubernetes.io/hostname": each})
    cache.nodes._replace(Listing("1", nodes.nodes))
    sweeper = Sweeper(Pass(api, cache, Settings(settle_seconds=0, reserve_seconds=0)))
    monkeypatch.setattr(module, name, fails)
    assert defects_of(sweeper, cache), "the defect is in the log"
    assert any("/pods/wait" in each for each in api.writes)
    assert any("/pods/bad" in each for each in api.writes) == is_released
