"""topogate simulate on what a gang without a place would preempt: as the sweeper decides, or nothing."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec import structs

from labeler.contract import keys
from tests.cli import explanations
from tests.cli.simulations import (
    WORKER,
    cluster,
    job,
    node,
    owner,
    replicated,
    simulated,
    template,
)
from webhook.cli import simulate
from webhook.configuration.settings import Settings
from webhook.inquiry.rehearsal import rehearse_manifest
from webhook.inquiry.simulation import place_each, read_manifest, shipped_rules
from webhook.sweeper.decide.preemption import VictimSearch

URGENT: Final = {keys.PRIORITY_ANNOTATION: "high"}
NOTE: Final = (
    "in the place of 1 pod of lower priority, which it may preempt: n/p. Preemption is not simulated.\n"
)

Simulated = Callable[..., str]


@pytest.fixture
def printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Simulated:
    def printed(there: object, manifest: object) -> str:
        assert simulated(tmp_path, there, manifest) == 1
        return capsys.readouterr().out

    return printed


def pod(
    namespace: str = "n", gpus: int = 8, on: str = "b", resource: str = "nvidia.com/gpu", **spec: Any
) -> dict[str, Any]:
    resources = {"requests": {resource: str(gpus)} if gpus else {"cpu": "1"}}
    metadata = {"name": "p", "namespace": namespace}
    containers = [{"name": "c", "resources": resources}]
    return {"kind": "Pod", "metadata": metadata, "spec": {"nodeName": on, "containers": containers, **spec}}


def of_daemon_set() -> dict[str, Any]:
    """As its controller creates it: pinned to its node."""
    field = {"key": "metadata.name", "operator": "In", "values": ["b"]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    made = pod(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}})
    made["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": True}
    ]
    return made


def asking(resource: str, amount: int) -> dict[str, Any]:
    made = job(1, **URGENT)
    made["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] = {resource: amount}
    return made


def sets_with_own_levels() -> dict[str, Any]:
    levels = {"a": "block", "b": "host"}
    bodies = {
        name: template(WORKER, **URGENT, **{keys.REQUIRED_TOPOLOGY_ANNOTATION: level})
        for name, level in levels.items()
    }
    jobs = [replicated(name, 1, 1, body) for name, body in bodies.items()]
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", **owner("JobSet", {"replicatedJobs": jobs})}


ROOMY: Final = node("b", "b0", 8)
CARDS: Final = node("b", "b0", 8, **{keys.I915: "1", "labels": {keys.GPU_NUMBERS_LABEL: "0"}})
NEVER: Final = {
    "kind": "PriorityClass",
    "metadata": {"name": "gpu-high-priority"},
    "value": 100,
    "preemptionPolicy": "Never",
}
WITHOUT_GPUS: Final = node("x", "b0", 0)


def test_a_pod_with_a_lower_priority_is_named(printed: Simulated) -> None:
    assert printed(cluster(ROOMY, pod()), job(2, **URGENT)).endswith(f"\nIt would fit {NOTE}")


def test_pods_of_files_without_uids_are_counted_one_by_one(printed: Simulated) -> None:
    other = pod(gpus=4)
    other["metadata"]["name"] = "q"
    named = "2 pods of lower priority, which it may preempt: n/p, n/q."
    assert named in printed(cluster(ROOMY, pod(gpus=4), other), job(2, **URGENT))


@pytest.mark.promise("O199")
@pytest.mark.parametrize(
    ("there", "manifest"),
    [
        ([ROOMY, pod(priority=2_000_000)], job(2, **URGENT)),
        ([ROOMY, of_daemon_set()], job(2, **URGENT)),
        ([ROOMY, pod("kube-system")], job(2, **URGENT)),
        ([ROOMY, pod(), WITHOUT_GPUS], job(3, **URGENT)),
        ([node("b", "b0", 4), WITHOUT_GPUS, pod(gpus=0, on="x")], job(2, **URGENT)),
        ([ROOMY, pod()], asking("nvidia.com/gpu", 9)),
        ([CARDS, pod(gpus=1, resource=keys.I915)], asking(keys.I915, 1)),
        ([ROOMY, node("c", "b0", 8), pod()], sets_with_own_levels()),
        ([ROOMY, pod(), NEVER], job(2, **URGENT)),
    ],
    ids=[
        "of a higher priority",
        "of a DaemonSet",
        "of the system",
        "too few GPUs",
        "CPU-only on a node without GPUs",
        "more GPUs than a node has",
        "Intel cards",
        "pod sets with own levels",
        "never preempts",
    ],
)
def test_no_pod_is_named_where_the_sweeper_evicts_none(
    printed: Simulated, there: list[dict[str, Any]], manifest: dict[str, Any]
) -> None:
    assert "preempt" not in printed(cluster(*there), manifest)


def test_the_first_of_replicas_without_a_place_gets_the_sentence(printed: Simulated) -> None:
    spec = {"replicas": 2, "selector": {}, "template": job(1, **URGENT)["spec"]["template"]}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}
    text = printed(cluster(ROOMY, pod()), deployment)
    assert text.startswith("2 of 2 replicas of d have no place. ")
    assert text.endswith(f"\nThe first of them would fit {NOTE}")


def test_a_victim_may_be_as_important_as_the_gangs_cpu_only_pods(printed: Simulated) -> None:
    launcher = template({"limits": {"cpu": 1}})
    workers = replicated("workers", 1, 1, template(WORKER, **URGENT))
    jobs = [replicated("launcher", 1, 1, launcher), workers]
    manifest = {"apiVersion": "jobset.x-k8s.io/v1alpha2", **owner("JobSet", {"replicatedJobs": jobs})}
    assert NOTE in printed(cluster(ROOMY, pod(priority=50)), manifest)


@pytest.mark.parametrize("priority", [0, 2_000_000], ids=["lower", "higher"])
def test_a_gang_is_a_victim_only_if_all_its_pods_have_a_lower_priority(tmp_path: Path, priority: int) -> None:
    """Gangs that run are known from the cluster's Placements, which files do not have."""
    names = [each.name for each in explanations.GRID]
    specs = [{"node_name": name, "priority": 0, "scheduling_gates": ()} for name in names]
    specs[0]["priority"] = priority
    running = [
        structs.replace(each, spec=structs.replace(each.spec, **spec))
        for each, spec in zip(explanations.job_pods(4), specs, strict=True)
    ]
    planned = [
        {"name": each.metadata.name, "uid": each.metadata.uid, "node": each.spec.node_name}
        for each in running
    ]
    reading = explanations.with_placement(explanations.cluster(running), running[0], pods=planned)
    file = tmp_path / "job.json"
    file.write_text(json.dumps(job(1, **URGENT)))
    manifest = read_manifest(file, shipped_rules(), "")
    scene = rehearse_manifest(reading, manifest, Settings())
    (placed,) = place_each(scene)
    note = simulate.VictimNotes(scene.settings.options).note(placed)
    named = "It would fit in the place of 4 pods of lower priority, which it may preempt: "
    assert note.startswith(named) if not priority else note == ""


def test_gangs_that_ask_the_same_are_searched_for_once(
    printed: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    searches, find = [], VictimSearch.find

    def counting(search: VictimSearch, *asked: Any) -> Any:
        if search.settings.preempt:  # of the note; the steps that place the gangs preempt nobody
            searches.append(search)
        return find(search, *asked)

    monkeypatch.setattr(VictimSearch, "find", counting)
    assert printed(cluster(ROOMY, pod()), two_jobs()).count(NOTE) == 2
    assert len(searches) == 1


def test_the_search_ends_at_one_work_budget_for_all_gangs(
    printed: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Enough steps for the victims of the first gang."""
    monkeypatch.setattr(simulate, "QUESTIONS", 180 / Settings().options.bound)
    text = printed(cluster(ROOMY, pod()), two_jobs(1))
    cut = "Which pods it may preempt is not known: the search ended at its work budget.\n"
    assert (text.count(NOTE), text.count(cut)) == (1, 1)


def two_jobs(of_second: int = 2) -> dict[str, Any]:
    first, second = job(2, **URGENT), job(of_second, **URGENT)
    second["metadata"]["name"] = "eval"
    return {"kind": "List", "apiVersion": "v1", "items": [first, second]}
