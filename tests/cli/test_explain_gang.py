"""topogate explain on what `topogate gangs` prints: each gang by its kind and name, in either case."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from labeler.contract import keys
from tests.cli.unusual_server import Answer, Server, serving
from webhook.cli import main
from webhook.workloads import marks

META: Final = {"namespace": "default", "resourceVersion": "1", "creationTimestamp": "2026-11-22T00:00:00Z"}
GPU: Final = {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}
EMPTY: Final[Answer] = (200, {"metadata": {}, "items": []})
DELETED: Final[dict[str, Any]] = {"deletionTimestamp": "2026-11-23T00:00:00Z"}
GATES: Final = ({"name": keys.GATE},)
COLLECTIONS: Final = ("/nodes", "/placements", "/events", "/namespaces", "/gputasks", "/jobs")

Run = Callable[..., tuple[int, str, str]]


def pod(
    name: str,
    gang: str = "",
    gates: tuple[dict[str, str], ...] = GATES,
    labels: dict[str, str] | None = None,
    **metadata: Any,
) -> dict[str, Any]:
    annotations = {keys.GANG_ANNOTATION: gang, keys.GANG_SIZE_ANNOTATION: "2"} if gang else {}
    own = {**META, "name": name, "uid": name, "annotations": annotations, "labels": labels or {}}
    return {"metadata": own | metadata, "spec": {**GPU, "schedulingGates": list(gates)}}


def owned(version: str, kind: str, name: str) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "name": name, "uid": name, "controller": True}


JOB_POD: Final = pod(
    "t0-0", ownerReferences=[owned("batch/v1", "Job", "t0")], labels={marks.JOB_NAME_LABEL: "t0"}
)
TASK_JOB: Final = {
    "metadata": {
        **META,
        "name": "t0",
        "uid": "t0",
        "ownerReferences": [owned("falldio.com/v1", "GPUTask", "t0")],
    },
    "spec": {"template": {"spec": GPU}},
    "status": {},
}


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(pods: list[dict[str, Any]], *words: str, **more: Answer) -> tuple[int, str, str]:
        listed = (200, {"metadata": {}, "items": pods})
        answers = {"/jobs/t0": (200, TASK_JOB), "/pods": listed, "/apis": (200, {"groups": []})}
        server = Server({**answers, **dict.fromkeys(COLLECTIONS, EMPTY)})
        with serving(server, tmp_path) as kubeconfig:
            status = main.main([*words, "--kubeconfig", str(kubeconfig)])
        out, err = capsys.readouterr()
        return status, out, err

    return run


@pytest.mark.parametrize(
    "waiting",
    [
        pod("held", "rec"),
        pod("held", "team/rec"),
        pod("held", labels={marks.KUEUE_GROUP_LABEL: "k"}),
        pod("held", ownerReferences=[owned("batch.volcano.sh/v1alpha1", "Job", "vj")]),
        pod("held"),
    ],
    ids=[
        "by annotation",
        "with a slash",
        "of a pod group",
        "of a Job that is not Kubernetes' own",
        "of one pod",
    ],
)
def test_each_name_that_the_list_of_gangs_prints_is_explained(run: Run, waiting: dict[str, Any]) -> None:
    shown = run([waiting], "gangs")[1].splitlines()[1].split()[1]
    written = run([waiting], "gangs", "-o", "name")[1].strip()
    assert shown.lower() == written.lower()
    for name in (shown, written):
        status, out, err = run([waiting], "explain", name)
        assert (status, err) == (0, "")
        assert out.startswith(f"Pod default/held waits for topogate, in the gang {shown}.\n")


def test_of_a_gang_the_pod_is_explained_that_waits(run: Run) -> None:
    pods = [pod("other", "big", ()), pod("started", "rec", ()), pod("held", "rec")]
    assert run(pods, "explain", "Gang/rec")[1].startswith("Pod default/held waits for topogate")
    status, _, err = run(pods, "explain", "Gang/recs")
    assert (status, err) == (
        1,
        "topogate explain: there is no gang Gang/recs in namespace default: `topogate gangs` lists them\n",
    )


def test_the_job_of_a_task_is_explained_as_the_list_of_gangs_prints_it(run: Run) -> None:
    assert run([JOB_POD], "gangs", "-o", "name")[1] == "job/t0\n"
    status, out, err = run([JOB_POD], "explain", "job/t0")
    assert (status, err) == (0, "")
    assert out.startswith(
        "Job default/t0 is Waiting.\n0 of 1 workers have a node.\n"
        "Pod default/t0-0 waits for topogate, in the gang Job/t0.\n"
    )


def test_a_pod_that_is_being_deleted_is_skipped_for_its_successor(run: Run) -> None:
    pods = [pod("a", "rec", **DELETED), pod("b", "rec")]
    assert run(pods, "explain", "Gang/rec")[1].startswith("Pod default/b waits for topogate")


@pytest.mark.parametrize("name", ["Gang/rec", "pod/a"])
def test_a_pod_that_is_being_deleted_is_reported_as_that(run: Run, name: str) -> None:
    status, out, err = run([pod("a", "rec", **DELETED)], "explain", name)
    sentence = "topogate explain: pod a in namespace default is being deleted, so it is not placed\n"
    assert (status, out, err) == (1, "", sentence)
