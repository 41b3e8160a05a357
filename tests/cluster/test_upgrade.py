"""Two versions at once: gangs live through an upgrade from the previous version and through the way back."""

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from hack.local import nodes
from hack.local.build import ROOT
from hack.local.cluster import Cluster
from hack.local.install import SYSTEM, WEBHOOKS, Installation, facts_of, system_node
from labeler.contract import keys
from tests.cluster.jobs import create_job, create_task, gates
from tests.definitions import define, wait_served
from tests.support import audited, create_namespace, delete, register_nodes, wait_for_pods
from tests.sweeper.at_work import Pods, create_pod, named, run_all
from tests.sweeper.sets import lws_pod, make
from webhook.kube.client import JSON_PATCH, MERGE_PATCH
from webhook.workloads import marks

PREVIOUS: Final = "b387e82525a0833d8378b51de191986df0a58c8f"
"""The revision from which an upgrade, and to which the way back, is tried."""

GRID: Final = nodes.grid(nodes.Shape(nodes=22, blocks=2, subblocks=2, intel=2))
GPU: Final = "nvidia.com/gpu"
LEASE: Final = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/topogate-sweeper"
DEPLOYMENTS: Final = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments"
SHARE: Final = {keys.I915: 1, keys.MILLICORES: 300}
LABELLED: Final = [GRID[0], GRID[-1]]
"""Nodes of each kind on which labelers run."""

EVERY_OTHER_JOB: Final = f"int(object.metadata.?annotations[?'{marks.JOB_INDEX_KEY}'].orValue('0')) % 2 == 1"
QUIET_SECONDS: Final = 4.0
REFUSED: Final = re.compile(": (?!404|409)4..$")
"""A write whose answer is not that others were quicker; requests of a program that is killed end with 500."""


@pytest.fixture
def previous(tmp_path: Path) -> Path:
    """A working tree of the previous version, without its history."""
    archive = tmp_path / "previous.tar"
    command = ["git", "-C", str(ROOT), "archive", f"--output={archive}", PREVIOUS]
    done = subprocess.run(
        [*command, "manifests", "webhook", "labeler", "pyproject.toml"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"the previous version, {PREVIOUS}, is not in this repository: {done.stderr.strip()}")
    tree = tmp_path / "previous"
    tree.mkdir()
    subprocess.run(["tar", "-xf", archive, "-C", tree], check=True)
    where = run_of(tree, sys.executable, "-P", "-c", "import webhook; print(*webhook.__path__)")
    assert where.strip() == str(tree / "webhook"), "programs take their modules from there"
    return tree


def run_of(tree: Path, *command: str) -> str:
    """What a command prints that takes topogate from a working tree."""
    environment = os.environ | {"PYTHONPATH": str(tree)}
    return subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout


@pytest.fixture
def versions(
    cluster: Cluster, previous: Path, defined: list[str]
) -> Iterator[tuple[Installation, Installation]]:
    """The previous version and the present one, of which nothing is there yet but nodes."""
    defined.append(define(cluster, "LeaderWorkerSet", "leaderworkerset.x-k8s.io", "v1"))
    wait_served(cluster, "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet")
    old = Installation(cluster, image_tag="previous", root=previous)
    new = Installation(cluster, image_tag="present")
    register_nodes(cluster, [system_node(), *GRID])
    try:
        yield old, new
    finally:
        old.stop()
        new.stop()


class Gangs:
    """Gangs that are under way while one version replaces another, in a namespace of their own."""

    def __init__(self, cluster: Cluster, pool: list[nodes.SimulatedNode]) -> None:
        """Two nodes are the pool: a gang of low priority fills them, and its budget lets nobody evict it."""
        self.cluster, self.api = cluster, cluster.api()
        self.namespace = create_namespace(cluster, {keys.INJECTION_LABEL: keys.INJECTION_ENABLED})
        self.runs: dict[str, int] = {}
        self._pool = {"pool": self.namespace}
        for node in pool:
            body = {"metadata": {"labels": self._pool}}
            self.api.request("PATCH", f"/api/v1/nodes/{node.name}", body=body, content_type=MERGE_PATCH)
        self.create("low", 2, {GPU: 8}, nodeSelector=self._pool, priorityClassName="gpu-low-priority")
        self._budgets = f"/apis/policy/v1/namespaces/{self.namespace}/poddisruptionbudgets"
        spec = {"minAvailable": 2, "selector": {"matchLabels": {marks.JOB_NAME_LABEL: "low"}}}
        self.api.request("POST", self._budgets, body={"metadata": {"name": "low"}, "spec": spec})

    def create(self, name: str, pods: int, limits: dict[str, Any], **spec: Any) -> None:
        create_job(self.api, self.namespace, name, pods, limits, **spec)
        self.runs[name] = pods

    def begin(self) -> None:
        """Until one waits for its later pods, one for its victims, and one is released in part."""
        template = {"size": 3, "workerTemplate": {"spec": lws_pod(1, 3)["spec"]}}
        spec = {"startupPolicy": "LeaderReady", "leaderWorkerTemplate": template}
        make(self.cluster, self.namespace, "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", spec)
        create_pod(self.api, self.namespace, "train-0", _ungated(lws_pod(0, 3)))
        self.runs["train"] = 1
        self.create("shares-first", 2, SHARE)
        create_task(self.api, self.namespace, "task-first")
        self.runs["task-first"] = 1
        self.all_run()
        self.create("high", 2, {GPU: 8}, nodeSelector=self._pool, priorityClassName="gpu-high-priority")
        self.cluster.wait_for(
            "a plan with victims", lambda: any(plan.get("victims") for plan in self.plans())
        )
        self.create("half", 24, {GPU: 1})
        self.wait(lambda pods: 0 < len(gates(named(pods, "half"))) < 24, "a gang that is released in part")

    def resume(self) -> None:
        """What they waited for comes, and new ones: all run that can, and a victim is evicted."""
        for index in (1, 2):
            create_pod(self.api, self.namespace, f"train-0-{index}", _ungated(lws_pod(index, 3)))
        delete(self.api, f"{self._budgets}/low")
        self.create("shares-last", 2, SHARE)
        create_task(self.api, self.namespace, "task-last")
        self.runs |= {"train": 3, "task-last": 1}
        del self.runs["low"]
        self.all_run()

    def evicted_waits(self) -> None:
        """The Job controller has recreated the pods of the evicted gang, some 10 s later: they are gated."""
        self.wait(lambda pods: len(gates(named(pods, "low"))) == 2, "the evicted gang to be gated")

    def end(self) -> None:
        """The gang that was evicted has its nodes again once the other is gone."""
        path = f"/apis/batch/v1/namespaces/{self.namespace}/jobs/high"
        self.api.request("DELETE", path, query={"propagationPolicy": "Background"})
        del self.runs["high"]
        self.runs["low"] = 2
        self.all_run()
        assert len(self.wait(bool, "pods")) == sum(self.runs.values())

    def all_run(self) -> dict[str, str]:
        """Wait for it; returns where each pod is, by its uid, which its plan says too."""
        for name, count in self.runs.items():
            self.wait(partial(run_all, prefix=name, count=count), f"{count} pods of {name} to run")
        pods = self.wait(bool, "pods")
        found = {
            pod["metadata"]["uid"]: pod["spec"]["nodeName"]
            for pod in pods
            # An evicted gang's plan may be gone before its pods are.
            if pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]
        }
        planned = {each["uid"]: each["node"] for plan in self.plans() for each in plan.get("pods", ())}
        without_plan = [
            pod["metadata"]["name"]
            for pod in pods
            if planned.get(pod["metadata"]["uid"]) != found.get(pod["metadata"]["uid"])
        ]
        assert found.items() <= planned.items(), without_plan
        return found

    def plans(self) -> list[dict[str, Any]]:
        path = f"/apis/topogate.io/v1alpha1/namespaces/{self.namespace}/placements"
        return [each["spec"] for each in self.api.json("GET", path)["items"]]

    def wait(self, condition: Callable[[Pods], bool], what: str) -> Pods:
        return wait_for_pods(self.cluster, self.namespace, condition, f"{what} in {self.namespace}")


def _ungated(body: dict[str, Any]) -> dict[str, Any]:
    """A pod before admission, which gives it its gate."""
    del body["spec"]["schedulingGates"]
    return body


@dataclass(frozen=True)
class ClusterLogs:
    """What has been logged in a cluster since a moment.

    Tests share the cluster: earlier ones have sent requests to be refused, and left their programs' logs.
    """

    cluster: Cluster
    audited_before: int
    sizes_before: dict[Path, int]

    @classmethod
    def begin(cls, cluster: Cluster) -> "ClusterLogs":
        """From now on."""
        sizes = {log: log.stat().st_size for log in _program_logs(cluster)}
        return cls(cluster, len(audited(cluster)), sizes)

    def writes(self) -> list[str]:
        """What topogate's accounts have written but for Leases, each with its answer."""
        return [
            f"{entry['verb']} {entry['requestURI']}: {entry.get('responseStatus', {}).get('code')}"
            for entry in audited(self.cluster)[self.audited_before :]
            if entry["user"].get("username", "").startswith("system:serviceaccount:topogate-")
            and entry["verb"] not in ("get", "list", "watch")
            and "/leases" not in entry["requestURI"]
        ]

    def errors(self) -> list[str]:
        """Lines of topogate's programs that report an error."""
        texts = (log.read_bytes()[self.sizes_before.get(log, 0) :] for log in _program_logs(self.cluster))
        return [
            line
            for text in texts
            for line in text.decode().splitlines()
            if " ERROR " in line or "Traceback" in line
        ]


def _program_logs(cluster: Cluster) -> list[Path]:
    return sorted((cluster.folder / "logs").glob("topogate-*"))


def replace(source: Installation, target: Installation, gangs: Gangs, logs: ClusterLogs) -> None:
    """One version in the place of another, with both at once for a while, in which leaders are killed."""
    halt_rollouts(source)
    target.apply(facts_of(GRID))
    target.start()
    admit_by_both(source)
    if not leads(source):  # on a loaded machine it may have renewed its Lease too late
        let_lead(source, target)
    gangs.begin()
    killed = [source.programs[name] for name in ("sweeper", "tasks")]
    for program in killed:
        assert program.process is not None
        program.process.send(signal.SIGKILL)
    gangs.resume()
    for program in killed:
        program.start()
    for follows, ends in ((source, target), (target, source)):  # back, and forth again
        let_lead(follows, ends)
        gangs.create(f"by-{follows.image_tag}", 2, {GPU: 1})
        gangs.all_run()
    gangs.evicted_waits()
    check(logs, gangs)
    # A status that two disagree on is written for ever.
    target.cluster.wait_for(f"no write for {QUIET_SECONDS} s", partial(is_quiet, logs))
    with ThreadPoolExecutor() as pool:
        for shown in pool.map(partial(shown_gangs, gangs), (source, target)):
            assert {line.split()[1] for line in shown.splitlines() if "Waiting" in line} == {"Job/low"}
    admit_by_one(source)
    source.stop()
    end_rollouts(source)
    target.label(LABELLED)


def let_lead(follows: Installation, ends: Installation) -> None:
    """One version's sweeper leads instead of the other's, which waits from then on."""
    ends.programs["sweeper"].stop()
    ends.cluster.wait_for("the other version to lead", partial(leads, follows))
    ends.programs["sweeper"].start()


def is_quiet(logs: ClusterLogs) -> bool:
    """Whether topogate writes nothing for a while."""
    wrote = len(logs.writes())
    time.sleep(QUIET_SECONDS)
    return len(logs.writes()) == wrote


def shown_gangs(gangs: Gangs, version: Installation) -> str:
    """What `topogate gangs` of a version prints."""
    options = ("--kubeconfig", str(version.cluster.kubeconfig), "-n", gangs.namespace)
    return run_of(version.root, str(Path(sys.executable).parent / "topogate"), "gangs", *options)


def halt_rollouts(installation: Installation) -> None:
    """Rollouts that begin now stand still with a pod of each version."""
    for name in ("webhook", "sweeper", "tasks"):
        body = {"spec": {"minReadySeconds": 3000, "progressDeadlineSeconds": 3600}}
        installation.api.request("PATCH", f"{DEPLOYMENTS}/{name}", body=body, content_type=MERGE_PATCH)


def end_rollouts(installation: Installation) -> None:
    for name in ("webhook", "sweeper", "tasks"):
        body = {"spec": {"minReadySeconds": 0}}
        installation.api.request("PATCH", f"{DEPLOYMENTS}/{name}", body=body, content_type=MERGE_PATCH)
        installation.cluster.kubectl(
            "rollout", "status", f"deployment/{name}", "-n", SYSTEM, "--timeout=180s"
        )


def admit_by_both(other: Installation) -> None:
    """Pods of odd ranks are admitted by the other version's webhook: those of each gang by both."""
    (own,) = other.api.json("GET", WEBHOOKS)["webhooks"]
    url = {"url": f"https://127.0.0.1:{other.webhook_port}/mutate"}
    for_every_other_job = {**own, "name": "odd.topogate.io", "clientConfig": {**own["clientConfig"], **url}}
    conditions = own["matchConditions"]
    for_every_other_job["matchConditions"] = [*conditions, {"name": "odd", "expression": EVERY_OTHER_JOB}]
    own["matchConditions"] = [*conditions, {"name": "even", "expression": f"!({EVERY_OTHER_JOB})"}]
    _replace_webhooks(other, [own, for_every_other_job])


def admit_by_one(other: Installation) -> None:
    """Undo that. Both have changed pods by now."""
    notes = [note for entry in audited(other.cluster) for note in entry.get("annotations", {}).values()]
    for name in ("pods.topogate.io", "odd.topogate.io"):
        assert any(f'"webhook":"{name}","mutated":true' in note for note in notes)
    own, _ = other.api.json("GET", WEBHOOKS)["webhooks"]
    own["matchConditions"] = [each for each in own["matchConditions"] if each["name"] != "even"]
    _replace_webhooks(other, [own])


def _replace_webhooks(installation: Installation, webhooks: list[dict[str, Any]]) -> None:
    body = [{"op": "replace", "path": "/webhooks", "value": webhooks}]
    installation.api.request("PATCH", WEBHOOKS, body=body, content_type=JSON_PATCH)


def leads(installation: Installation) -> bool:
    """Whether the sweeper of an installation holds the Lease."""
    process = installation.programs["sweeper"].process
    holder = installation.api.json("GET", LEASE)["spec"].get("holderIdentity") or ""
    return process is not None and holder.endswith(f"_{process.pid}")


def check(logs: ClusterLogs, *gangs: Gangs) -> None:
    """All run, nothing is booked twice, and nobody met an error."""
    for each in gangs:
        each.all_run()
    used = Counter[tuple[str, str]]()
    running = {"fieldSelector": "status.phase=Running"}
    for pod in logs.cluster.api().json("GET", "/api/v1/pods", query=running)["items"]:
        limits = pod["spec"]["containers"][0].get("resources", {}).get("limits", {})
        card = pod["metadata"].get("annotations", {}).get(keys.GAS_CARDS_ANNOTATION, "")
        used[pod["spec"]["nodeName"], GPU] += int(limits.get(GPU, 0))
        used[pod["spec"]["nodeName"], card] += int(limits.get(keys.MILLICORES, 0))
    assert max(count for (_, name), count in used.items() if name == GPU) <= 8
    assert max(count for (_, name), count in used.items() if name != GPU) <= 1000
    assert logs.errors() == []
    assert [write for write in logs.writes() if REFUSED.search(write)] == []


def labels(cluster: Cluster) -> dict[str, dict[str, str]]:
    return {
        node.name: cluster.api().json("GET", f"/api/v1/nodes/{node.name}")["metadata"]["labels"]
        for node in LABELLED
    }


@pytest.mark.promise("O327")
@pytest.mark.parametrize(
    "is_back",
    [
        pytest.param(False, id="upgrade"),
        pytest.param(
            True,
            id="way back",
            marks=pytest.mark.when_changed("labeler/contract", "manifests/base", "webhook/tasks"),
        ),
    ],
)
def test_live_gangs_end_whole_through_an_upgrade_and_a_rollback(
    versions: tuple[Installation, Installation], is_back: bool
) -> None:
    source, target = reversed(versions) if is_back else versions
    cluster = source.cluster
    source.apply(facts_of(GRID))
    source.start()
    logs = ClusterLogs.begin(cluster)
    source.label(LABELLED)
    live, settled = (Gangs(cluster, GRID[2 * number : 2 * number + 2]) for number in range(2))
    before, ran = labels(cluster), settled.all_run()

    replace(source, target, live, logs)
    live.end()
    check(logs, live, settled)
    assert settled.all_run() == ran, "whom one version placed the other leaves alone"
    first, last = (labels(cluster), before) if is_back else (before, labels(cluster))
    assert all(found.items() <= last[name].items() for name, found in first.items()), "the older one's labels"


def comparable(schema: Any, other: Any) -> Any:
    """A schema without the sentences for people, and without the fields that the other has not."""
    if isinstance(schema, list):
        beside = other if isinstance(other, list) and len(other) == len(schema) else [None] * len(schema)
        return [comparable(*each) for each in zip(schema, beside, strict=True)]
    if not isinstance(schema, dict):
        return schema
    others = other if isinstance(other, dict) else {}
    hidden = schema.get("properties", {}).keys() - others.get("properties", {}).keys()
    existing = {
        key: value
        for key, value in schema.items()
        if not (key in ("description", "message") and isinstance(value, str))
    }
    if "properties" in existing:
        existing["properties"] = {
            key: value for key, value in existing["properties"].items() if key not in hidden
        }
    return {key: comparable(value, others.get(key)) for key, value in existing.items()}


@pytest.mark.promise("O327")
@pytest.mark.parametrize("kind", ["placements", "gputasks"])
def test_objects_of_the_previous_version_are_valid_and_differ_by_new_fields_alone(
    previous: Path, kind: str
) -> None:
    file = f"manifests/base/{kind}.yaml"
    old, new = (
        next(yaml.safe_load_all((tree / file).read_text()))["spec"]["versions"] for tree in (previous, ROOT)
    )
    assert [each["name"] for each in new] == [each["name"] for each in old]
    assert comparable(new, old) == comparable(old, old)
