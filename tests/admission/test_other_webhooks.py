"""Webhooks before and after topogate's: a pod is managed by topogate, or nothing of topogate is on it."""

import copy
import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hack.local.cluster import Cluster
from labeler.contract import keys
from tests.admission import shapes
from tests.admission.harness import Webhook, create, gpu_pod
from tests.admission.neighbour import Neighbour, installed
from tests.admission.reviews import POLICY, applied, decided, pods
from tests.support import delete
from webhook.admission.decide import DENIED, LEFT_ALONE
from webhook.admission.injection import NOTE_PATH
from webhook.kube.client import APPLY_PATCH, Api
from webhook.workloads import marks

Pod = dict[str, Any]
Change = Callable[[Pod], None]
PRODUCT: Final = "nvidia.com/gpu.product"
BINDING: Final = replace(POLICY, binds_by_pod_group=True, adopts_native_gangs=False)
POLICIES: Final = {"adopt": POLICY, "bind": BINDING}


# --- what another webhook may do -----------------------------------------------------------------------


def in_spec(**members: Any) -> Change:
    """Set these members of the spec, or remove those that are None."""

    def change(pod: Pod) -> None:
        pod["spec"] = {k: v for k, v in {**pod["spec"], **members}.items() if v is not None}

    return change


def annotate(key: str, value: str | None) -> Change:
    def change(pod: Pod) -> None:
        there = {**(pod["metadata"].get("annotations") or {}), key: value}
        pod["metadata"]["annotations"] = {k: v for k, v in there.items() if v is not None}

    return change


def select(key: str, value: str | None) -> Change:
    def change(pod: Pod) -> None:
        there = {**(pod["spec"].get("nodeSelector") or {}), key: value}
        pod["spec"]["nodeSelector"] = {k: v for k, v in there.items() if v is not None}

    return change


def ask(resources: Mapping[str, str]) -> Change:
    """Give each container these limits and requests, and nothing else."""

    def change(pod: Pod) -> None:
        asked = {"limits": dict(resources), "requests": dict(resources)}
        containers = pod["spec"]["containers"] or [{"name": "added"}]
        pod["spec"]["containers"] = [{**each, "resources": asked} for each in containers]

    return change


def add_gates(*names: str) -> Change:
    def change(pod: Pod) -> None:
        there = pod["spec"].get("schedulingGates") or []
        others = [each for each in there if each["name"] not in names]
        pod["spec"]["schedulingGates"] = [*others, *({"name": name} for name in names)]

    return change


def remove_gates_of_others(pod: Pod) -> None:
    there = pod["spec"].get("schedulingGates") or []
    pod["spec"]["schedulingGates"] = [each for each in there if each["name"] == keys.GATE]


def remove_topogates_gate(pod: Pod) -> None:
    there = pod["spec"].get("schedulingGates") or []
    pod["spec"]["schedulingGates"] = [each for each in there if each["name"] != keys.GATE]


def add_container(*, gpus: str = "0") -> Change:
    """As an injector of sidecars does."""

    def change(pod: Pod) -> None:
        limits = {"cpu": "1", **({"nvidia.com/gpu": gpus} if gpus != "0" else {})}
        side = {"name": "side", "image": "x", "resources": {"limits": limits}}
        others = [each for each in pod["spec"]["containers"] if each["name"] != "side"]
        pod["spec"]["containers"] = [side, *others]

    return change


def own_by(kind: str) -> Change:
    def change(pod: Pod) -> None:
        reference = {"apiVersion": "v1", "kind": kind, "name": "o", "uid": "u", "controller": True}
        pod["metadata"]["ownerReferences"] = [reference]

    return change


def label_as_jobset(pod: Pod) -> None:
    pod["metadata"]["labels"] = {**(pod["metadata"].get("labels") or {}), marks.JOBSET_NAME_LABEL: "train"}


OTHER_CLASS: Final = in_spec(
    priorityClassName="house-class", priority=77, preemptionPolicy="PreemptLowerPriority"
)
CHANGES: Final[dict[str, Change]] = {
    "another scheduler": in_spec(schedulerName="volcano"),
    "a served scheduler": in_spec(schedulerName="default-scheduler"),
    "no scheduler": in_spec(schedulerName=None),
    "a PodGroup": in_spec(schedulingGroup={"podGroupName": "g"}),
    "a group of an unknown kind": in_spec(schedulingGroup={"otherName": "g"}),
    "a node": in_spec(nodeName="n"),
    "no node": in_spec(nodeName=None),
    "a class": OTHER_CLASS,
    "no class": in_spec(priorityClassName=None, priority=0, preemptionPolicy="PreemptLowerPriority"),
    "a GPU": ask({"nvidia.com/gpu": "1"}),
    "more GPUs": ask({"nvidia.com/gpu": "8"}),
    "a part of a GPU": ask({"nvidia.com/mig-1g": "1"}),
    "a sidecar": add_container(),
    "a sidecar with a GPU": add_container(gpus="1"),
    "no GPU": ask({"cpu": "1"}),
    "opted out": annotate(keys.INJECT_ANNOTATION, keys.INJECT_NO),
    "not opted out": annotate(keys.INJECT_ANNOTATION, None),
    "a model": annotate(keys.GPU_MODEL_ANNOTATION, "H100"),
    "another model": annotate(keys.GPU_MODEL_ANNOTATION, "RTX 4090"),
    "no model": annotate(keys.GPU_MODEL_ANNOTATION, None),
    "a tier": annotate(keys.PRIORITY_ANNOTATION, "low"),
    "a higher tier": annotate(keys.PRIORITY_ANNOTATION, "high"),
    "no tier": annotate(keys.PRIORITY_ANNOTATION, None),
    "a gang": annotate(keys.GANG_ANNOTATION, "train"),
    "a mirror pod": annotate(keys.MIRROR_POD_ANNOTATION, "x"),
    "a label of nodes": select("zone", "a"),
    "a product": select(PRODUCT, "theirs"),
    "no product": select(PRODUCT, None),
    "Kueue's topology": add_gates(marks.KUEUE_TOPOLOGY_GATE),
    "Kueue's admission": add_gates(marks.KUEUE_ADMISSION_GATE),
    "a gate of others": add_gates("example.com/quota"),
    "no gate of others": remove_gates_of_others,
    "a DaemonSet": own_by("DaemonSet"),
    "a Job": own_by("Job"),
    "a JobSet": label_as_jobset,
}


# --- the decision, and what it leaves --------------------------------------------------------------------


def stored(pod: Pod) -> Pod:
    """A pod without what the API server does not store, or fills itself; gates are a set."""
    spec = {key: value for key, value in pod["spec"].items() if value not in (None, "", [], {})}
    gates = sorted(each["name"] for each in spec.pop("schedulingGates", []))
    metadata = {
        key: value
        for key, value in pod["metadata"].items()
        if key not in ("uid", "managedFields") and value not in (None, [], {})
    }
    return {"metadata": metadata, "spec": spec, "gates": gates}


def changed(pod: Pod, *changes: Change) -> Pod:
    pod = copy.deepcopy(pod)
    for change in changes:
        change(pod)
    return pod


def asked_for(model: str, tier: str) -> Pod:
    """A GPU pod that gets a gate, a selector and a class, as the API server sends it."""
    pod = gpu_pod(annotations={keys.GPU_MODEL_ANNOTATION: model, keys.PRIORITY_ANNOTATION: tier})
    ask({"nvidia.com/gpu": "1"})(pod)
    pod["spec"] |= {
        "priorityClassName": "house-default",
        "priority": 5,
        "preemptionPolicy": "PreemptLowerPriority",
    }
    return pod


@pytest.mark.promise("O336")
@settings(max_examples=400, deadline=None, derandomize=True)
@given(
    pod=pods | st.just(asked_for("H100", "high")),
    rounds=st.lists(st.lists(st.sampled_from(sorted(CHANGES)), max_size=3), min_size=2, max_size=4),
)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_pod_ends_as_if_topogate_had_been_called_once_after_all_others(
    policy: str, pod: Pod, rounds: list[list[str]]
) -> None:
    for namespace in ("open", "capped", "steered"):
        by_others = pod
        result = pod
        for names in rounds:
            changes = [CHANGES[name] for name in names]
            by_others, result = changed(by_others, *changes), changed(result, *changes)
            decision = decided(result, namespace, policy=POLICIES[policy])
            once = decided(by_others, namespace, policy=POLICIES[policy])
            assert (decision.outcome == DENIED) == (once.outcome == DENIED)
            if decision.outcome == DENIED:
                break
            result = applied(result, decision)
            assert stored(result) == stored(applied(by_others, once))


LEAVING: Final = {
    "another scheduler": "other-scheduler",
    "a group of an unknown kind": "scheduling-group",
    "a node": "node-name-set",
    "opted out": "opted-out",
    "a mirror pod": "mirror-pod",
    "Kueue's topology": "kueue-topology",
    "a DaemonSet": "daemonset",
}
"""The changes after which topogate leaves a pod alone, and the reason."""


@pytest.mark.promise("O336")
@pytest.mark.parametrize("name", LEAVING)
def test_nothing_of_topogate_stays_on_a_pod_that_a_later_webhook_gives_to_others(name: str) -> None:
    pod = asked_for("H100", "high")
    managed = applied(pod, decided(pod))
    assert managed["spec"]["nodeSelector"][PRODUCT] == shapes.H100[PRODUCT]
    assert managed["spec"]["priorityClassName"] == "gpu-high-priority"
    later = changed(managed, CHANGES[name])
    decision = decided(later)
    assert (decision.outcome, decision.reason) == (LEFT_ALONE, LEAVING[name])
    result = applied(later, decision)
    assert stored(result) == stored(changed(pod, CHANGES[name]))
    assert "uid" not in result["metadata"]


@pytest.mark.parametrize("policy", ["PreemptLowerPriority", None])
@pytest.mark.parametrize("value", ["that of topogate's class", "none"])
@pytest.mark.parametrize(
    ("name", "expected"), [("house-class", 77), ("gpu-low-priority", 1), (None, 5), ("house-default", 5)]
)
def test_a_class_that_a_later_webhook_sets_alone_never_keeps_the_value_of_topogates_class(
    name: str | None, expected: int, value: str, policy: str | None
) -> None:
    """The API server stores what the last call leaves: a pod of class low would preempt as one of high."""
    pod = asked_for("H100", "high")
    managed = applied(pod, decided(pod))
    left = managed["spec"]["priority"] if value != "none" else None
    own = in_spec(priorityClassName=name, priority=left, preemptionPolicy=policy)
    later = changed(managed, own, annotate(keys.PRIORITY_ANNOTATION, None))
    result = applied(later, decided(later))["spec"]
    assert (result["priority"], result["preemptionPolicy"]) == (expected, "PreemptLowerPriority")


def without_note(pod: Pod) -> None:
    pod["metadata"].pop("uid", None)


@pytest.mark.parametrize("name", LEAVING)
def test_nothing_of_topogate_stays_though_the_later_webhook_drops_the_note(name: str) -> None:
    """It replaces the metadata, say; then what topogate would put on the pod is taken off."""
    pod = asked_for("H100", "high")
    later = changed(applied(pod, decided(pod)), CHANGES[name], without_note)
    assert stored(applied(later, decided(later))) == stored(changed(pod, CHANGES[name]))


def test_a_cpu_only_member_that_is_given_to_others_keeps_the_class_of_its_author() -> None:
    """It got the gate alone, so it has no note; its namespace's default tier has the same class."""
    container = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
    spec = {"containers": [container], "priorityClassName": "gpu-medium-priority", "priority": 10}
    pod = {"metadata": {"name": "l", "labels": {"jobset.sigs.k8s.io/jobset-name": "js"}}, "spec": spec}
    managed = applied(pod, decided(pod, "capped"))
    assert managed["spec"]["schedulingGates"]
    later = changed(managed, CHANGES["another scheduler"])
    result = applied(later, decided(later, "capped"))["spec"]
    assert (result["priorityClassName"], result["priority"]) == ("gpu-medium-priority", 10)
    assert not result["schedulingGates"]


def written(*fields: str, gate: str = "") -> Change:
    """The API server lists these fields of the spec, and this gate, as the author's."""

    def change(pod: Pod) -> None:
        listed: Pod = {f"f:{name}": {} for name in fields}
        if gate:
            listed["f:schedulingGates"] = {".": {}, f'k:{{"name":"{gate}"}}': {".": {}, "f:name": {}}}
        own = {"f:spec": listed}
        manager = {"manager": "kubectl-create", "operation": "Update", "fieldsV1": own}
        pod["metadata"]["managedFields"] = [manager]

    return change


@pytest.mark.promise("I8")
def test_what_its_author_wrote_stays_on_a_pod_with_topogates_gate_that_is_given_to_others() -> None:
    """It lacks a note, since topogate was never called for it, or since another webhook drops the note."""
    pod = gpu_pod(annotations={keys.GPU_MODEL_ANNOTATION: "H100", keys.PRIORITY_ANNOTATION: "low"})
    pod["spec"] |= {"nodeSelector": dict(shapes.H100), "priorityClassName": "gpu-low-priority"}
    changes = add_gates(keys.GATE), CHANGES["another scheduler"]
    for fields in (("nodeSelector",), ("priorityClassName",), ("nodeSelector", "priorityClassName")):
        given_away = changed(pod, *changes, written(*fields, gate=keys.GATE))
        result = applied(given_away, decided(given_away))["spec"]
        assert bool(result.get("nodeSelector")) == ("nodeSelector" in fields)
        is_there = result.get("priorityClassName") == "gpu-low-priority"
        assert is_there == ("priorityClassName" in fields)


def wants_topogates_values(pod: Pod) -> None:
    """The selector and the class that topogate would choose too, each in its field."""
    low = {"priorityClassName": "gpu-low-priority", "priority": 1, "preemptionPolicy": "PreemptLowerPriority"}
    pod["spec"] |= {"nodeSelector": dict(shapes.H100), **low}


def of_its_controller(*fields: str) -> Pod:
    """A GPU pod of a Job, whose managedFields topogate empties; these fields are listed as the Job's."""
    pod = changed(asked_for("H100", "low"), own_by("Job"), written("containers", *fields))
    pod["metadata"]["managedFields"][0]["manager"] = "kube-controller-manager"
    return pod


def of_its_author(**members: Any) -> Pod:
    """A GPU pod without controller, so that it keeps its managedFields, with these members of its author."""
    return changed(asked_for("H100", "low"), in_spec(**members), written("containers", *members))


BEFORE: Final[dict[str, Pod]] = {
    "the author": changed(of_its_controller("nodeSelector", "priorityClassName"), wants_topogates_values),
    "an earlier webhook": changed(of_its_controller(), wants_topogates_values),
    "an earlier webhook, on a pod without owner": changed(asked_for("H100", "low"), wants_topogates_values),
    "each a part": changed(of_its_controller("nodeSelector"), wants_topogates_values),
    "an author with another selector": of_its_author(nodeSelector={"zone": "a"}),
    "an author with one of two labels": of_its_author(nodeSelector={PRODUCT: shapes.H100[PRODUCT]}),
    "an author with both labels": of_its_author(nodeSelector={**shapes.H100, "zone": "a"}),
    "an author with another class": of_its_author(
        priorityClassName="house-class", priority=77, preemptionPolicy="PreemptLowerPriority"
    ),
    "an author with a gate": changed(
        of_its_author(nodeSelector={"zone": "a"}), add_gates("x/y"), written("nodeSelector", gate="x/y")
    ),
}
"""Pods that have what topogate would put there, by who wrote it."""


@pytest.mark.promise("I8")
@pytest.mark.parametrize("writer", BEFORE)
@pytest.mark.parametrize("name", LEAVING)
def test_what_others_wrote_before_stays_though_a_later_webhook_drops_the_note(name: str, writer: str) -> None:
    """Also where topogate's first call empties the list of what the author wrote."""
    pod = BEFORE[writer]
    managed = applied(pod, decided(pod))
    assert not decided(managed).operations
    later = changed(managed, CHANGES[name], without_note)
    assert stored(applied(later, decided(later))) == stored(changed(pod, CHANGES[name]))


def without_managed_fields(pod: Pod) -> None:
    pod["metadata"].pop("managedFields", None)


@pytest.mark.parametrize("drops_gate", [False, True])
def test_a_webhook_that_drops_all_evidence_leaves_what_topogate_is_known_to_have_gated(
    drops_gate: bool,
) -> None:
    """One request, whoever wrote the values: only the gate shows that topogate was called before."""
    gates = [remove_topogates_gate] if drops_gate else []
    drops = (CHANGES["another scheduler"], without_note, without_managed_fields, *gates)
    histories = [
        changed(applied(pod, decided(pod)), *drops)
        for pod in (
            changed(asked_for("H100", "low")),
            changed(asked_for("H100", "low"), wants_topogates_values),
        )
    ]
    assert histories[0] == histories[1]
    result = applied(histories[0], decided(histories[0]))["spec"]
    was_left = result["nodeSelector"] == shapes.H100 and result["priorityClassName"] == "gpu-low-priority"
    assert was_left == drops_gate


def test_a_pod_has_no_managed_fields_where_only_topogate_chooses_its_class() -> None:
    pod = of_its_controller()
    assert applied(pod, decided(pod))["metadata"]["managedFields"] == []
    later = changed(applied(pod, decided(pod)), without_note)
    assert applied(later, decided(later))["metadata"]["managedFields"] == []


@pytest.mark.promise("I8")
def test_a_class_of_an_earlier_webhook_stays_where_the_api_server_added_the_gate() -> None:
    """A policy of the API server acts before all webhooks, and leaves an empty note with the gate."""
    pod = changed(of_its_controller(), wants_topogates_values, CHANGES["another scheduler"])
    gated = changed(pod, add_gates(keys.GATE))
    gated["metadata"]["uid"] = f"{keys.INJECTION_NOTE}:{{}}"
    assert stored(applied(gated, decided(gated))) == stored(pod)


@pytest.mark.parametrize("fields", [{"f:spec": 5}, [], "x", {"f:spec": None}])
def test_unreadable_managed_fields_of_another_webhook_stop_no_pod(fields: Any) -> None:
    pod = changed(asked_for("H100", "high"), add_gates(keys.GATE), CHANGES["another scheduler"])
    pod["metadata"]["managedFields"] = [{"operation": "Update", "fieldsV1": fields}]
    assert decided(pod).outcome == LEFT_ALONE


def test_a_pod_stays_as_it_is_managed_though_a_later_webhook_drops_the_note() -> None:
    pod = asked_for("H100", "high")
    managed = applied(pod, decided(pod))
    later = changed(managed, without_note)
    assert stored(applied(later, decided(later))) == stored(managed)


def test_nothing_of_topogate_stays_on_a_pod_whose_gpus_a_later_webhook_removes() -> None:
    pod = gpu_pod()
    managed = applied(pod, decided(pod, "steered"))
    assert managed["spec"]["nodeSelector"] == shapes.RTX
    later = changed(managed, CHANGES["no GPU"])
    decision = decided(later, "steered")
    assert decision.reason == "no-gpu"
    assert stored(applied(later, decision)) == stored(changed(pod, CHANGES["no GPU"]))


def test_the_gate_that_the_api_server_added_comes_off_a_pod_that_an_earlier_webhook_gave_to_others() -> None:
    """A MutatingAdmissionPolicy, as the component in-process-gate has, acts before all webhooks."""
    pod = changed(gpu_pod(), add_gates("example.com/quota", keys.GATE), CHANGES["another scheduler"])
    result = applied(pod, decided(pod))
    assert result["spec"]["schedulingGates"] == [{"name": "example.com/quota"}]


@pytest.mark.promise("I8")
def test_a_selector_and_a_class_of_the_author_stay_on_a_pod_that_is_given_to_others() -> None:
    pod = gpu_pod(annotations={keys.GPU_MODEL_ANNOTATION: "H100"})
    pod["spec"] |= {"nodeSelector": {PRODUCT: shapes.H100[PRODUCT]}, "priorityClassName": "gpu-low-priority"}
    later = changed(applied(pod, decided(pod)), CHANGES["another scheduler"])
    result = applied(later, decided(later))
    assert result["spec"]["nodeSelector"] == {PRODUCT: shapes.H100[PRODUCT]}
    assert result["spec"]["priorityClassName"] == "gpu-low-priority"


def test_a_class_that_topogate_gave_comes_off_though_the_classes_are_not_known_by_then() -> None:
    pod = asked_for("H100", "high")
    later = changed(applied(pod, decided(pod)), CHANGES["opted out"])
    result = applied(later, decided(later, classes={}))
    assert stored(result) == stored(changed(pod, CHANGES["opted out"]))


@pytest.mark.parametrize("text", ["topogate.io/injected:", "topogate.io/injected:[1]", "0-1-2", "\x00{"])
def test_a_note_that_is_none_is_ignored(text: str) -> None:
    pod = asked_for("H100", "high")
    pod["metadata"]["uid"] = text
    assert stored(applied(pod, decided(pod))) == stored(
        applied(asked_for("H100", "high"), decided(asked_for("H100", "high")))
    )


def test_a_plain_gpu_pod_gets_no_note() -> None:
    assert NOTE_PATH not in {each.path for each in decided(gpu_pod()).operations}


RULES: Final = (
    "topogate leaves pods",
    "topogate neither gates nor places pods",
    "topogate places pods",
    f"{keys.PRIORITY_ANNOTATION} is ignored for pods",
    f"{keys.GANG_ANNOTATION} needs",
)


@pytest.mark.promise("O336")
def test_no_warning_speaks_of_what_a_later_webhook_can_change() -> None:
    """The API server passes on the warnings of both calls: so each is a rule that stays true."""
    warnings = set[str]()
    pod = gpu_pod(annotations={keys.PRIORITY_ANNOTATION: "low"})
    for before in CHANGES.values():
        first = changed(pod, before)
        decision = decided(first)
        warnings.update(decision.warnings)
        if decision.outcome != DENIED:
            again = (changed(applied(first, decision), after) for after in CHANGES.values())
            warnings.update(warning for each in again for warning in decided(each).warnings)
    assert [each for each in warnings if not each.startswith(RULES)] == []


# --- on the real API server ------------------------------------------------------------------------------


def name_class(pod: Pod) -> None:
    """As a policy engine does, which leaves the value to the API server."""
    if pod["spec"].get("priorityClassName") != "house-class":
        in_spec(priorityClassName="house-class", priority=None, preemptionPolicy=None)(pod)


AT_WORK: Final = {**CHANGES, "a class by its name": name_class}


def as_patch(*changes: Change) -> Callable[[Pod], list[dict[str, Any]]]:
    """The behaviour of a webhook that makes these changes."""

    def behave(pod: Pod) -> list[dict[str, Any]]:
        result = changed(pod, *changes)
        return [
            {"op": "add", "path": f"/{part}", "value": result[part]}
            for part in ("metadata", "spec")
            if result[part] != pod[part]
        ]

    return behave


def asked() -> Pod:
    return gpu_pod(annotations={keys.GPU_MODEL_ANNOTATION: "H100", keys.PRIORITY_ANNOTATION: "medium"})


def of_topogate(pod: Pod) -> tuple[list[str], str, str]:
    """The gates, the product and the class of a pod."""
    spec = pod["spec"]
    gates = sorted(each["name"] for each in spec.get("schedulingGates", []))
    return gates, spec.get("nodeSelector", {}).get(PRODUCT, ""), spec.get("priorityClassName", "")


CLASSES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"


@pytest.fixture
def values(module_cluster: Cluster) -> Iterator[Mapping[str, int]]:
    """The values of all PriorityClasses, with a class of the house."""
    api = module_cluster.api()
    api.request("POST", CLASSES, body={"metadata": {"name": "house-class"}, "value": 77})
    yield {each["metadata"]["name"]: each["value"] for each in api.json("GET", CLASSES)["items"]}
    delete(api, f"{CLASSES}/house-class")


Stored = tuple[list[str], str, str]
"""See of_topogate."""

H100: Final = shapes.H100[PRODUCT]
NOTHING: Final[Stored] = ([], "", "")
MANAGED: Final[Stored] = ([keys.GATE], H100, "gpu-medium-priority")
GATED: Final[Stored] = ([keys.GATE], "", "")

IN_ANY_ORDER: Final[dict[str, tuple[Pod, Stored]]] = {
    "another scheduler": (asked(), NOTHING),
    "a served scheduler": (changed(asked(), CHANGES["another scheduler"]), MANAGED),
    "a PodGroup": (asked(), MANAGED),
    "opted out": (asked(), NOTHING),
    "a node": (asked(), NOTHING),
    # The model that the author asks for makes it a pod to place, also without a GPU.
    "no GPU": (asked(), MANAGED),
    "more GPUs": (asked(), MANAGED),
    "a part of a GPU": (asked(), MANAGED),
    "a sidecar": (asked(), MANAGED),
    "a sidecar with a GPU": (changed(asked(), CHANGES["no GPU"]), MANAGED),
    "a DaemonSet": (asked(), NOTHING),
    "Kueue's topology": (asked(), ([marks.KUEUE_TOPOLOGY_GATE], "", "")),
    "Kueue's admission": (asked(), (sorted([keys.GATE, marks.KUEUE_ADMISSION_GATE]), *MANAGED[1:])),
    "a gate of others": (asked(), (["example.com/quota", keys.GATE], *MANAGED[1:])),
    "a class by its name": (asked(), ([keys.GATE], H100, "house-class")),
    "a higher tier": (asked(), ([keys.GATE], H100, "gpu-high-priority")),
    "no tier": (asked(), ([keys.GATE], H100, "")),
    "a class": (asked(), ([keys.GATE], H100, "house-class")),
    "another model": (asked(), ([keys.GATE], shapes.RTX[PRODUCT], "gpu-medium-priority")),
    "no model": (asked(), ([keys.GATE], "", "gpu-medium-priority")),
}
"""By the change of the other webhook: the pod as its author wrote it, and what is stored."""


@pytest.mark.promise("O336")
@pytest.mark.usefixtures("called_webhook")
def test_the_api_server_stores_the_same_pod_whichever_webhook_is_called_first(
    module_cluster: Cluster, opted_in: str, other: Neighbour, values: Mapping[str, int]
) -> None:
    found = {}
    for name, (written_pod, _) in IN_ANY_ORDER.items():
        other.behave = as_patch(AT_WORK[name])
        pod = create(module_cluster.api(), opted_in, written_pod)
        found[name] = of_topogate(pod)
        assert pod["spec"]["priority"] == values.get(found[name][2], 0)
        uuid.UUID(pod["metadata"]["uid"])
    assert found == {name: wanted for name, (_, wanted) in IN_ANY_ORDER.items()}


@pytest.mark.promise("O336")
@pytest.mark.usefixtures("called_webhook", "values")
def test_kubectl_shows_no_warning_that_the_stored_pod_contradicts(
    module_cluster: Cluster, opted_in: str, other: Neighbour
) -> None:
    shown = {}
    for name, (written_pod, _) in IN_ANY_ORDER.items():
        other.behave = as_patch(AT_WORK[name])
        body = json.dumps({"apiVersion": "v1", "kind": "Pod", **written_pod})
        result = module_cluster.kubectl("create", "-n", opted_in, "-f", "-", stdin=body)
        shown[name] = [line.removeprefix("Warning: ") for line in result.stderr.splitlines()]
    assert [line for lines in shown.values() for line in lines if not line.startswith(RULES)] == []
    neither = 'topogate neither gates nor places pods with schedulerName "volcano"'
    assert shown["another scheduler"] == [neither]
    assert shown["a sidecar"] == []


BY_ORDER: Final[dict[str, tuple[Pod, Stored, Stored]]] = {
    # The API server calls topogate's webhook neither for these pods as they were written, nor later.
    "a GPU": (changed(gpu_pod(), CHANGES["no GPU"]), GATED, NOTHING),
    "not opted out": (changed(asked(), CHANGES["opted out"]), MANAGED, NOTHING),
    "no node": (changed(asked(), CHANGES["a node"]), MANAGED, NOTHING),
    # The other webhook is called once more after topogate's last call.
    "no class": (asked(), MANAGED, ([keys.GATE], H100, "")),
}
"""By the change of the other webhook: the pod as written, and what is stored if that one is called first, or
last."""


@pytest.mark.promise("O336")
@pytest.mark.usefixtures("called_webhook")
def test_a_change_of_which_topogate_is_not_called_leaves_a_pod_to_place_or_nothing_of_topogate(
    module_cluster: Cluster, opted_in: str, other: Neighbour
) -> None:
    found = {}
    for name, (written_pod, *_) in BY_ORDER.items():
        other.behave = as_patch(CHANGES[name])
        found[name] = of_topogate(create(module_cluster.api(), opted_in, written_pod))
    is_first = other.name < "topogate"
    assert found == {name: first if is_first else last for name, (_, first, last) in BY_ORDER.items()}


def without_gates(pod: Pod) -> None:
    pod["spec"].pop("schedulingGates", None)


@pytest.mark.parametrize("name", ["opted out", "a node"])
def test_nothing_stays_on_a_pod_of_which_a_later_webhook_removes_the_gate_too(
    module_cluster: Cluster, called_webhook: Webhook, opted_in: str, other: Neighbour, name: str
) -> None:
    """As one that sets spec.nodeName has to: the API server accepts no gate beside it."""
    other.behave = as_patch(CHANGES[name], without_gates)
    assert of_topogate(create(module_cluster.api(), opted_in, asked())) == ([], "", "")


@pytest.mark.parametrize("name", ["opted out", "another scheduler"])
def test_nothing_stays_on_a_pod_whose_metadata_a_later_webhook_replaces(
    module_cluster: Cluster, called_webhook: Webhook, opted_in: str, other: Neighbour, name: str
) -> None:
    other.behave = as_patch(CHANGES[name], without_note)
    assert of_topogate(create(module_cluster.api(), opted_in, asked())) == ([], "", "")


def test_of_a_selector_only_what_its_author_wrote_stays_though_the_metadata_are_replaced(
    module_cluster: Cluster, called_webhook: Webhook, opted_in: str, other: Neighbour
) -> None:
    other.behave = as_patch(CHANGES["another scheduler"], without_note)
    product = {PRODUCT: shapes.H100[PRODUCT]}
    for own in ({"zone": "a"}, {**product, "zone": "a"}, product):
        pod = create(module_cluster.api(), opted_in, changed(asked(), in_spec(nodeSelector=own)))
        assert pod["spec"]["nodeSelector"] == own
        assert of_topogate(pod)[::2] == ([], "")


def of_a_controller(api: Api, namespace: str) -> Pod:
    """A pod with what topogate would choose too, of an object that is its controller."""
    maps = f"/api/v1/namespaces/{namespace}/configmaps"
    owner = api.json("POST", maps, body={"metadata": {"generateName": "owner-"}})["metadata"]
    pod = asked()
    pod["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": owner["name"], "uid": owner["uid"]}
        | {"controller": True}
    ]
    return pod


WANTED: Final = in_spec(
    nodeSelector={PRODUCT: shapes.H100[PRODUCT]}, priorityClassName="gpu-medium-priority", priority=None
)


@pytest.mark.promise("I8")
@pytest.mark.usefixtures("called_webhook")
def test_the_author_keeps_class_and_selector_though_topogate_empties_managed_fields(
    module_cluster: Cluster, opted_in: str, other: Neighbour
) -> None:
    api = module_cluster.api()
    pod = changed(of_a_controller(api, opted_in), WANTED)
    other.behave = as_patch(CHANGES["another scheduler"], without_note)
    found = of_topogate(create(api, opted_in, pod))
    assert found == ([], shapes.H100[PRODUCT], "gpu-medium-priority")


@pytest.fixture
def earlier(module_cluster: Cluster, opted_in: str) -> Iterator[Neighbour]:
    """A webhook before topogate's, which gives pods the selector and class that topogate would."""
    with installed(module_cluster, opted_in, "a-chooser") as made:
        value = module_cluster.api().json(
            "GET", "/apis/scheduling.k8s.io/v1/priorityclasses/gpu-medium-priority"
        )["value"]
        made.behave = as_patch(WANTED, in_spec(priority=value))
        yield made


@pytest.mark.promise("I8")
@pytest.mark.usefixtures("called_webhook", "earlier")
def test_the_api_server_accepts_the_list_of_what_an_earlier_webhook_wrote(
    module_cluster: Cluster, opted_in: str
) -> None:
    api = module_cluster.api()
    pod = create(api, opted_in, of_a_controller(api, opted_in))
    listed = {each["manager"]: each["fieldsV1"] for each in pod["metadata"]["managedFields"]}
    labels: Pod = {f"f:{PRODUCT}": {}}
    assert listed["before-topogate"] == {"f:spec": {"f:nodeSelector": labels, "f:priorityClassName": {}}}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"mine": "1"}}}
    path = f"/api/v1/namespaces/{opted_in}/pods/{pod['metadata']['name']}"
    api.request("PATCH", path, body=body, query={"fieldManager": "test"}, content_type=APPLY_PATCH)
    with installed(module_cluster, opted_in, "z-later") as later:
        later.behave = as_patch(CHANGES["another scheduler"], without_note)
        pod = create(api, opted_in, of_a_controller(api, opted_in))
    assert of_topogate(pod) == ([], shapes.H100[PRODUCT], "gpu-medium-priority")


@pytest.mark.promise("I8")
def test_the_api_server_lists_the_class_and_selector_that_the_author_wrote(
    module_cluster: Cluster, called_webhook: Webhook, opted_in: str
) -> None:
    """On a pod that its author has given to another scheduler, with topogate's own gate."""
    product = shapes.H100[PRODUCT]
    own = in_spec(nodeSelector={PRODUCT: product}, priorityClassName="gpu-medium-priority")
    pod = changed(asked(), own, add_gates(keys.GATE), CHANGES["another scheduler"])
    found = of_topogate(create(module_cluster.api(), opted_in, pod))
    assert found == ([], product, "gpu-medium-priority")


def test_a_pod_that_is_created_by_server_side_apply_gets_its_tier_and_a_uid_of_the_api_server(
    module_cluster: Cluster, called_webhook: Webhook, opted_in: str
) -> None:
    body = {"apiVersion": "v1", "kind": "Pod", **asked()}
    body["metadata"] = {**body["metadata"], "name": "applied", "generateName": None}
    path = f"/api/v1/namespaces/{opted_in}/pods/applied"
    query = {"fieldManager": "test"}
    api = module_cluster.api()
    api.request("PATCH", path, body=body, query=query, content_type=APPLY_PATCH)
    pod = api.json("GET", path)
    assert of_topogate(pod) == ([keys.GATE], shapes.H100[PRODUCT], "gpu-medium-priority")
    uuid.UUID(pod["metadata"]["uid"])
