"""Which owners make gangs: the table of the docs, and what the code makes of pods of such owners."""

import re
from typing import Any

import pytest

from hack.local.build import ROOT
from tests.sweeper.pods import decode, pod_json
from tests.workloads.owner_cases import CASES
from webhook.kube.objects import OwnerReference, Pod
from webhook.sweeper.observe.membership import key_of, unknown_owner
from webhook.workloads.kinds import LOOSE_OWNERS, WORKLOADS, LooseOwner, Workload
from webhook.workloads.owners import NAME, RECREATING, Makes, OwnerRules

PAGE = (ROOT / "docs/users/owners.md").read_text()
ROWS = {
    name: (pods, size, minimum)
    for name, pods, size, minimum in re.findall(
        r"^\| `([\w.-]+)` \| ([^|]+) \| *([^|]*?) *\| *([^|]*?) *\|$", PAGE, re.MULTILINE
    )
}


def owned(name: str, **labels: str) -> Pod:
    """A pod of such an owner, "Kind.group"."""
    kind, _, group = name.partition(".")
    version = f"{group}/v1" if group else "v1"
    owner = {"apiVersion": version, "kind": kind, "name": "o", "uid": "uid-o", "controller": True}
    return decode(pod_json(metadata={"ownerReferences": [owner], "labels": labels}))


@pytest.mark.promise("R230")
def test_the_docs_have_a_row_for_each_kind_that_is_known_and_no_other() -> None:
    known = [each.owner_name for each in WORKLOADS] + [each.name for each in LOOSE_OWNERS]
    assert sorted(ROWS) == sorted(known)


@pytest.mark.promise("R230")
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda each: each.owner_name)
def test_the_docs_list_which_gangs_have_a_minimum(workload: Workload[Any]) -> None:
    pods, size, minimum = ROWS[workload.owner_name]
    assert pods.startswith("one gang")
    assert size
    declares = [each.minimum for each in CASES.values() if each.owner == workload.name]
    assert (minimum != "all") == any(declares)


@pytest.mark.promise("R230")
@pytest.mark.parametrize("loose", LOOSE_OWNERS, ids=lambda each: each.name)
def test_pods_of_a_loose_owner_do_not_wait_for_one_another(loose: LooseOwner) -> None:
    assert ROWS[loose.name] == ("one by one", "", "")
    assert key_of(owned(loose.name)).name == "p"


@pytest.mark.promise("R230")
@pytest.mark.parametrize(
    "name",
    [
        "ReplicaSet.apps",  # of KServe, Knative, Seldon Core, NIMService, KAITO, AIBrix and Dynamo
        "flyteworkflow.flyte.lyft.com",  # as Flyte writes it
        "SparkApplication.spark.apache.org",
        "SparkApplication.sparkoperator.k8s.io",
        "DaemonSet.apps.kruise.io",
    ],
)
def test_pods_of_owners_behind_well_known_controllers_do_not_wait_for_one_another(name: str) -> None:
    assert key_of(owned(name)).kind == "Pod"


@pytest.mark.parametrize("name", ["Workflow.example.com", "CloneSet.apps", "Flow.example.com", "Thing"])
def test_pods_of_an_owner_that_nobody_knows_are_one_gang(name: str) -> None:
    pod, rules = owned(name), OwnerRules()
    key = key_of(pod)
    assert (key.kind, key.name) == (name.partition(".")[0], "o")
    assert unknown_owner(pod, key, rules) == name


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda each: each.owner_name)
def test_no_owner_of_gangs_is_unknown(workload: Workload[Any]) -> None:
    pod, rules = owned(f"{workload.kind}.{workload.group}"), OwnerRules()
    assert unknown_owner(pod, key_of(pod), rules) == ""


def test_whoever_is_named_loose_makes_loose_pods_whatever_their_labels_are() -> None:
    rules = OwnerRules(loose_owners=frozenset({"Flow.example.com", "Job.batch"}))
    assert key_of(owned("Flow.example.com"), rules).kind == "Pod"
    assert key_of(owned("Flow.example.org"), rules).kind == "Flow"
    job = owned("Job.batch", **{"batch.kubernetes.io/job-name": "j"})
    assert (key_of(job).kind, key_of(job, rules).kind) == ("Job", "Pod")


def test_whoever_is_named_makes_a_gang_though_known_to_be_loose() -> None:
    rules = OwnerRules(gang_owners=frozenset({"Workflow.argoproj.io", "Flow.example.com"}))
    for name in rules.gang_owners:
        pod = owned(name)
        assert key_of(pod, rules).kind == name.partition(".")[0]
        assert unknown_owner(pod, key_of(pod, rules), rules) == ""


def test_labels_of_the_operator_s_choice_count_for_owners_that_nobody_names() -> None:
    labels = {"release": "r"}
    named = OwnerRules(("release",), gang_owners=frozenset({"Flow.example.com"}))
    assert key_of(owned("Flow.example.com", **labels), OwnerRules(("release",))).kind == "Group"
    assert key_of(owned("Flow.example.com", **labels), named).kind == "Flow"


@pytest.mark.parametrize("name", sorted(RECREATING))
def test_owners_are_named_equally_in_all_settings(name: str) -> None:
    assert NAME.fullmatch(name)
    kind, _, group = name.partition(".")
    owner = OwnerReference(api_version=f"{group}/v1" if group else "v1", kind=kind)
    assert owner.kind_and_group == name
    assert OwnerRules(loose_owners=frozenset({name})).makes(owner) is Makes.LOOSE
