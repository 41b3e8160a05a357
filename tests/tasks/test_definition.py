"""The definition of GPUTask on a real API server: what is understood, what is refused with the right
spelling, what may change, and what the server adds."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from hack.local.build import ROOT
from hack.local.cluster import Cluster
from tests.support import clean, create_namespace
from webhook.kube.client import APPLY_PATCH, MERGE_PATCH, Api, ApiError
from webhook.tasks import task_objects

SEED: Final = {
    "memory": "16gi", "cpu": "8", "gpu": "rtx4090", "gpu-amount": "1", "priority": "gpu-low-priority",
}  # fmt: skip
UNDERSTOOD: Final[list[dict[str, Any]]] = [
    {"memory": "16Gi"},  # a binary unit
    {"memory": "16G"},  # a decimal unit
    {"memory": "1.5gi"},  # a fraction
    {"memory": "16gb"},  # bytes spelt out
    {"memory": "16GiB"},  # binary bytes spelt out
    {"memory": 17179869184},  # bytes as a number
    {"cpu": 8},  # processors without quotation marks
    {"cpu": "500m"},  # thousandths of a processor
    {"cpu": "0.5"},  # half a processor
    {"gpu": "RTX 4090"},  # a model with a blank
    {"gpu-amount": 4},  # GPUs without quotation marks
    {"priority": "high"},  # a tier
    {},  # nothing at all
    {"template": {"spec": {"containers": [{"name": "c"}]}}},  # a template
]
NOT_UNDERSTOOD: Final[list[tuple[dict[str, Any], str]]] = [
    ({"memory": "16"}, "16Gi, 512Mi or 16G"),
    ({"memory": 16}, "16Gi, 512Mi or 16G"),
    ({"memory": "16m"}, "m is thousandths"),
    ({"memory": "sixteen"}, "16Gi, 512Mi or 16G"),
    ({"memory": "-1Gi"}, "16Gi, 512Mi or 16G"),
    ({"cpu": "8 cores"}, "'8', '0.5' or 500m"),
    ({"cpu": "-1"}, "'8', '0.5' or 500m"),
    ({"gpu": "!"}, "as rtx4090"),
    ({"gpu-amount": "0"}, "a job without GPUs is a Job"),
    ({"gpu-amount": "1.5"}, "a whole number of GPUs"),
    ({"gpu-amount": "two"}, "a whole number of GPUs"),
    ({"priority": "High"}, "in small letters: low, gpu-low-priority"),
    ({"workers": 0}, "greater than or equal to 1"),
    ({"env": [{"name": "A"}, {"name": "A"}]}, "Duplicate value"),
    ({"image": "x", "template": {"spec": {}}}, "belong in the first container of the template"),
    ({"topology": {"slice": "block"}}, "set both topology.slice"),
    ({"topology": {"slice": "block", "sliceSize": 2}, "workers": 3}, "a multiple of topology.sliceSize"),
    ({"restartPolicy": "Always"}, 'supported values: "Never", "OnFailure"'),
]
MAY_CHANGE: Final[list[dict[str, Any]]] = [
    {"suspend": True},
    {"priority": "high"},
    {"priority": None},
    {"activeDeadlineSeconds": 60},
    {"ttlSecondsAfterFinished": 60},
    {"attempt": 1},
    {"attempt": 1, "memory": "32gi", "image": "b", "workers": 2},
]
STAYS: Final[list[dict[str, Any]]] = [
    {"memory": "17gi"},
    {"memory": None},
    {"cpu": "9"},
    {"gpu": "a100"},
    {"gpu-amount": "2"},
    {"image": "b"},
    {"image": None},
    {"command": ["other"]},
    {"args": ["more"]},
    {"env": [{"name": "A", "value": "2"}]},
    {"workers": 2},
    {"restartPolicy": "OnFailure"},
    {"backoffLimit": 2},
    {"topology": {"required": "block"}},
]
_numbers = itertools.count()


class Tasks:
    """GPUTasks of one namespace, written by the administrator."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api = api
        self.namespace = namespace

    def dry_create(self, spec: dict[str, Any], name: str = "") -> str:
        """What the API server says against such a task, "" where it takes it; none is made."""
        return refusal(lambda: self.create(spec, name, dryRun="All"))

    def dry_change(self, name: str, spec: dict[str, Any]) -> str:
        """The same of a change."""
        return refusal(lambda: self.change(name, spec, dryRun="All"))

    def create(self, spec: dict[str, Any], name: str = "", **query: str) -> dict[str, Any]:
        name = name or f"t{next(_numbers)}"
        body = {
            "apiVersion": task_objects.GROUP_VERSION,
            "kind": task_objects.KIND,
            "metadata": {"name": name},
            "spec": spec,
        }
        return dict(self.api.json("POST", task_objects.path(self.namespace), body=body, query=query))

    def change(self, name: str, spec: dict[str, Any], **query: str) -> dict[str, Any]:
        body, path = {"spec": spec}, task_objects.path(self.namespace, name)
        return dict(self.api.json("PATCH", path, query=query, body=body, content_type=MERGE_PATCH))


def refusal(act: Callable[[], object]) -> str:
    """What the API server says against an act, "" where it takes it."""
    try:
        act()
    except ApiError as error:
        return error.message
    return ""


@pytest.fixture(scope="module")
def tasks(module_cluster: Cluster) -> Iterator[Tasks]:
    file = ROOT / "manifests" / "base" / "gputasks.yaml"
    module_cluster.kubectl("apply", "--server-side", "-f", str(file))
    module_cluster.kubectl(
        "wait", "--for=condition=Established", "crd/gputasks.falldio.com", "--timeout=120s"
    )
    yield Tasks(module_cluster.api(), create_namespace(module_cluster))
    clean(module_cluster)


@pytest.mark.promise("R149")
def test_the_five_fields_are_accepted_as_they_have_always_been_written(tasks: Tasks) -> None:
    made = tasks.create(SEED)
    assert {name: made["spec"][name] for name in SEED} == SEED


def test_spellings_that_people_use_are_understood(tasks: Tasks) -> None:
    assert [(spec, message) for spec in UNDERSTOOD if (message := tasks.dry_create(spec))] == []


def test_what_is_not_understood_is_refused_with_what_to_write(tasks: Tasks) -> None:
    wrong = [
        (spec, message) for spec, words in NOT_UNDERSTOOD if words not in (message := tasks.dry_create(spec))
    ]
    assert wrong == []


def test_a_name_that_cannot_become_a_pods_is_refused(tasks: Tasks) -> None:
    words = "at most 50 of a-z, 0-9 and -, a letter first"
    names = ["0train", "train.one", "t" * 51]
    assert [name for name in names if words not in tasks.dry_create({}, name)] == []


def test_a_misspelt_field_is_refused_where_validation_is_strict(tasks: Tasks) -> None:
    with pytest.raises(ApiError, match=r'unknown field "spec\.gpuAmount"'):
        tasks.create({"gpuAmount": "1"}, fieldValidation="Strict")


def test_what_is_left_out_has_its_default(tasks: Tasks) -> None:
    made = tasks.create({})
    assert made["spec"] == {
        "gpu-amount": "1", "workers": 1, "suspend": False, "restartPolicy": "Never", "attempt": 0,
    }  # fmt: skip


def test_what_may_change_while_a_task_stands_does(tasks: Tasks) -> None:
    name = tasks.create({**SEED, "image": "a"})["metadata"]["name"]
    assert [(change, message) for change in MAY_CHANGE if (message := tasks.dry_change(name, change))] == []


def test_what_the_job_was_made_with_stays_unless_the_attempt_grows(tasks: Tasks) -> None:
    spec = {**SEED, "image": "a", "command": ["run"], "env": [{"name": "A", "value": "1"}]}
    name = tasks.create(spec)["metadata"]["name"]
    words = "to change other fields, raise attempt as well"
    wrong = [
        (change, message) for change in STAYS if words not in (message := tasks.dry_change(name, change))
    ]
    assert wrong == []


def test_a_template_stays_unless_the_attempt_grows(tasks: Tasks) -> None:
    spec = {"template": {"spec": {"containers": [{"name": "c", "image": "a"}]}}}
    name = tasks.create(spec)["metadata"]["name"]
    tasks.change(name, {"suspend": True})
    other = {"template": {"spec": {"containers": [{"name": "c", "image": "b"}]}}}
    with pytest.raises(ApiError, match="to change other fields, raise attempt as well"):
        tasks.change(name, other)
    tasks.change(name, {**other, "attempt": 1})


def test_the_attempt_only_grows(tasks: Tasks) -> None:
    name = tasks.create({"attempt": 2})["metadata"]["name"]
    with pytest.raises(ApiError, match="attempt can only be raised"):
        tasks.change(name, {"attempt": 1})


def test_server_side_apply_merges_variables_by_name(tasks: Tasks) -> None:
    name = f"t{next(_numbers)}"

    def apply(manager: str, variable: str) -> dict[str, Any]:
        body = {
            "apiVersion": task_objects.GROUP_VERSION,
            "kind": task_objects.KIND,
            "metadata": {"name": name},
            "spec": {"attempt": len(variable), "env": [{"name": variable, "value": "1"}]},
        }
        path = task_objects.path(tasks.namespace, name)
        query = {"fieldManager": manager, "force": "true"}
        return dict(tasks.api.json("PATCH", path, query=query, body=body, content_type=APPLY_PATCH))

    apply("one", "A")
    both = apply("two", "BB")
    assert [each["name"] for each in both["spec"]["env"]] == ["A", "BB"]


def test_kubectl_shows_and_explains_tasks(tasks: Tasks, control_plane: Cluster) -> None:
    tasks.create({**SEED, "gpu-amount": 4}, "shown")
    table = control_plane.kubectl("get", "gt", "shown", "-n", tasks.namespace).stdout.splitlines()
    assert table[0].split() == ["NAME", "GPU", "MODEL", "STATE", "NODE", "REASON", "AGE"]
    assert table[1].split()[:3] == ["shown", "4", "rtx4090"]
    every_field = control_plane.kubectl("explain", "gputask.spec", "--recursive").stdout
    assert "gpu-amount" in every_field
    for field in ("memory", "priority", "attempt", "suspend", "template"):
        explained = control_plane.kubectl("explain", f"gputask.spec.{field}").stdout
        assert len(explained.partition("DESCRIPTION:")[2].split()) > 5, field
