"""What the API server itself refuses: one test for each forbidden act, and for what must stay allowed."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml

from hack.local.cluster import Cluster, ClusterError
from labeler.contract import keys
from tests.admission.harness import (
    MANIFESTS,
    ROOT,
    WEBHOOKS,
    Webhook,
    create,
    gpu_pod,
    install,
    install_classes,
    running,
)
from tests.admission.shapes import owned
from tests.support import create_namespace, delete
from webhook.kube.client import JSON_PATCH, STRATEGIC_MERGE_PATCH, ApiError
from webhook.kube.objects import Pod
from webhook.policy.reference import DEFAULT_EXCLUDED_NAMESPACES
from webhook.sweeper.apply.patches import release_patch

SWEEPER: Final = "system:serviceaccount:topogate-system:sweeper"
OTHER_GATE: Final = "kueue.x-k8s.io/admission"
IMPATIENT: Final = [
    {
        "key": f"node.kubernetes.io/{trouble}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 1,
    }
    for trouble in ("not-ready", "unreachable")
]
"""The tolerations that every pod gets, with another time: the one change of them that is possible."""
OWNER: Final = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "name": "j",
    "uid": "3f1e6f0c-0000-4000-8000-000000000000",
}
NOTHING_ELSE: Final = "of a pod the topogate sweeper may change the affinity"
STRICT: Final = ROOT / "manifests" / "overlays" / "strict"


def apply(cluster: Cluster, path: Path) -> None:
    cluster.kubectl("apply", "-f", str(path))


def patch(cluster: Cluster, namespace: str, name: str, change: Any, *, user: str | None = None) -> None:
    """Change a pod as an administrator, or as this user; a list is a JSON patch. Raises ClusterError with the
    refusal.
    """
    form = JSON_PATCH if isinstance(change, list) else STRATEGIC_MERGE_PATCH
    _ask(cluster, user, "PATCH", namespace, name, body=change, content_type=form)


def remove(cluster: Cluster, namespace: str, name: str, *, user: str | None = None) -> None:
    """Delete a pod as an administrator, or as this user. Raises ClusterError with the refusal."""
    _ask(cluster, user, "DELETE", namespace, name)


def _ask(cluster: Cluster, user: str | None, method: str, namespace: str, name: str, **options: Any) -> None:
    api = cluster.api().acting_as(user) if user else cluster.api()
    try:
        api.request(method, f"/api/v1/namespaces/{namespace}/pods/{name}", timeout_seconds=60, **options)
    except ApiError as error:
        raise ClusterError(error.message) from error


def without(*gates: str) -> dict[str, Any]:
    return {"spec": {"schedulingGates": [{"$patch": "delete", "name": gate} for gate in gates]}}


@pytest.fixture(scope="module")
def guarded(module_cluster: Cluster) -> Cluster:
    """The shipped guards, and a sweeper that may patch pods."""
    apply(module_cluster, MANIFESTS / "guards.yaml")
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "test-sweeper"},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "patch", "update", "delete"]}],
    }
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "test-sweeper"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "test-sweeper"},
        "subjects": [{"kind": "User", "name": SWEEPER}],
    }
    module_cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all([role, binding]))
    namespace = create_namespace(module_cluster)

    def is_enforced() -> bool:
        """Each of them by itself: the API server takes up one policy after the other."""
        name = create(module_cluster.api(), namespace, gated(""))["metadata"]["name"]
        marked = gated("")
        marked["metadata"]["annotations"][keys.GAS_TIMESTAMP_ANNOTATION] = "1"
        return (
            is_refused(lambda: patch(module_cluster, namespace, name, without(keys.GATE)))
            and is_refused(lambda: create(module_cluster.api(), namespace, marked))
            and is_refused(lambda: remove(module_cluster, namespace, name, user=SWEEPER))
        )

    module_cluster.wait_for("the guards to be enforced", is_enforced)
    return module_cluster


def is_refused(act: Callable[[], object]) -> bool:
    try:
        act()
    except (ApiError, ClusterError):
        return True
    return False


def gated(name: str, *gates: str) -> dict[str, Any]:
    pod = gpu_pod(name)
    pod["spec"]["schedulingGates"] = [{"name": gate} for gate in (gates or (keys.GATE,))]
    pod["spec"]["initContainers"] = [{"name": "init", "image": "i"}]
    pod["metadata"]["annotations"] = {**pod["metadata"].get("annotations", {}), "theirs": "as it was"}
    return pod


@pytest.fixture
def pod(guarded: Cluster, namespace: str) -> tuple[str, str]:
    """A pod with our gate and another's: its namespace and name."""
    create(guarded.api(), namespace, gated("p", OTHER_GATE, keys.GATE))
    return namespace, "p"


def gates_of(cluster: Cluster, pod: tuple[str, str]) -> list[str]:
    stored = cluster.api().json("GET", f"/api/v1/namespaces/{pod[0]}/pods/{pod[1]}")
    return [gate["name"] for gate in stored["spec"].get("schedulingGates", [])]


@pytest.mark.parametrize(
    "change", [without(keys.GATE), {"spec": {"schedulingGates": None}}], ids=["one", "all"]
)
def test_not_even_an_administrator_removes_our_gate(
    guarded: Cluster, pod: tuple[str, str], change: Any
) -> None:
    with pytest.raises(ClusterError, match="only the topogate sweeper removes"):
        patch(guarded, *pod, change)
    assert gates_of(guarded, pod) == [OTHER_GATE, keys.GATE]


def test_a_gate_that_only_shares_our_prefix_is_guarded_too(guarded: Cluster, namespace: str) -> None:
    create(guarded.api(), namespace, gated("own", keys.GATE_PREFIX + "mine"))
    with pytest.raises(ClusterError, match="only the topogate sweeper removes"):
        patch(guarded, namespace, "own", without(keys.GATE_PREFIX + "mine"))


def test_the_sweeper_removes_our_gate_and_pins_the_pod(guarded: Cluster, pod: tuple[str, str]) -> None:
    change = {**without(keys.GATE), "metadata": {"annotations": {"gas-ts": "1"}}}
    pin = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [pin]}}
    change["spec"]["affinity"] = {"nodeAffinity": required}
    patch(guarded, *pod, change, user=SWEEPER)
    assert gates_of(guarded, pod) == [OTHER_GATE]


@pytest.mark.parametrize("key", keys.GAS_ANNOTATIONS)
def test_nobody_creates_a_pod_with_the_annotation_of_allocated_cards(
    guarded: Cluster, namespace: str, key: str
) -> None:
    body = gated("copied")
    body["metadata"]["annotations"][key] = "card0"
    with pytest.raises(ApiError, match="remove gas-ts, gas-container-cards") as caught:
        create(guarded.api(), namespace, body)
    assert caught.value.status == 403


@pytest.mark.parametrize("key", keys.GAS_ANNOTATIONS)
@pytest.mark.parametrize("value", ["card1", None], ids=["rewritten", "removed"])
def test_nobody_else_changes_the_cards_of_a_pod_not_even_of_one_that_ends(
    guarded: Cluster, namespace: str, key: str, value: str | None
) -> None:
    """A pod that is being deleted runs until its grace period is over, with the cards that it was given."""
    body = gpu_pod("p")
    body["metadata"]["finalizers"] = ["example.com/hold"]
    create(guarded.api(), namespace, body)
    patch(guarded, namespace, "p", {"metadata": {"annotations": {key: "card0"}}}, user=SWEEPER)
    stolen = {"metadata": {"annotations": {key: value}}}
    with pytest.raises(ClusterError, match="only the topogate sweeper writes gas-ts"):
        patch(guarded, namespace, "p", stolen)
    remove(guarded, namespace, "p")
    with pytest.raises(ClusterError, match="only the topogate sweeper writes gas-ts"):
        patch(guarded, namespace, "p", stolen)
    patch(guarded, namespace, "p", {"metadata": {"finalizers": None}})


# --- pods as large as they can be ------------------------------------------------------------------------


def many_gates(count: int, prefix: str) -> dict[str, Any]:
    body = gated("many", *(f"{prefix}{number}" for number in range(count)))
    body["metadata"]["finalizers"] = ["example.com/hold"]
    return body


def test_a_pod_with_hundreds_of_our_gates_is_refused_when_it_is_created(
    guarded: Cluster, namespace: str
) -> None:
    with pytest.raises(ApiError, match="may have 64 schedulingGates in all"):
        create(guarded.api(), namespace, many_gates(800, keys.GATE_PREFIX))
    with pytest.raises(ApiError, match="may have 64 schedulingGates in all"):
        create(guarded.api(), namespace, gated("mixed", keys.GATE, *(f"a.io/{n}" for n in range(64))))


def test_a_pod_with_as_many_gates_of_ours_as_are_allowed_is_guarded_released_and_deleted(
    guarded: Cluster, namespace: str
) -> None:
    stored = create(guarded.api(), namespace, many_gates(64, keys.GATE_PREFIX))
    patch(guarded, namespace, "many", {"metadata": {"labels": {"a": "b"}}})
    with pytest.raises(ClusterError, match="only the topogate sweeper removes"):
        patch(guarded, namespace, "many", without(keys.GATE_PREFIX + "7"))
    change = release_patch(msgspec.convert(stored, Pod), "n", {keys.GAS_TIMESTAMP_ANNOTATION: "1"})
    patch(guarded, namespace, "many", change, user=SWEEPER)
    assert gates_of(guarded, (namespace, "many")) == []
    patch(guarded, namespace, "many", {"metadata": {"finalizers": None}})


@pytest.mark.parametrize("count", [800, 5_000])
def test_thousands_of_gates_of_others_are_none_of_our_business(
    guarded: Cluster, namespace: str, count: int
) -> None:
    create(guarded.api(), namespace, many_gates(count, "a.io/"))
    patch(guarded, namespace, "many", {"metadata": {"labels": {"a": "b"}}})
    patch(guarded, namespace, "many", without("a.io/7"))
    remove(guarded, namespace, "many")
    patch(guarded, namespace, "many", {"metadata": {"finalizers": None}})


def test_a_pod_of_ten_thousand_annotations_is_changed_and_released(guarded: Cluster, namespace: str) -> None:
    body = gated("wide")
    body["metadata"]["annotations"] = {f"a{number}": "" for number in range(10_000)}
    stored = create(guarded.api(), namespace, body)
    patch(guarded, namespace, "wide", {"metadata": {"labels": {"a": "b"}}})
    change = release_patch(msgspec.convert(stored, Pod), "n", {keys.GAS_TIMESTAMP_ANNOTATION: "1"})
    patch(guarded, namespace, "wide", change, user=SWEEPER)


def test_anyone_may_remove_the_gates_of_a_pod_that_is_being_deleted(guarded: Cluster, namespace: str) -> None:
    create(guarded.api(), namespace, {**gated("p"), "metadata": {"name": "p", "finalizers": ["a.io/hold"]}})
    remove(guarded, namespace, "p")
    patch(guarded, namespace, "p", without(keys.GATE))
    patch(guarded, namespace, "p", {"metadata": {"finalizers": None}})


# --- what the sweeper may delete --------------------------------------------------------------------------

PIN: Final = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
            ]
        }
    }
}


def test_the_sweeper_deletes_a_pod_that_it_has_released(guarded: Cluster, namespace: str) -> None:
    stored = create(guarded.api(), namespace, gated("p"))
    change = release_patch(msgspec.convert(stored, Pod), "n", {})
    patch(guarded, namespace, "p", change, user=SWEEPER)
    remove(guarded, namespace, "p", user=SWEEPER)


@pytest.mark.parametrize(
    "body",
    [
        gpu_pod("p"),
        gated("p"),
        {"metadata": {"name": "p"}, "spec": {**gated("p")["spec"], "affinity": PIN}},
        {
            "metadata": {"name": "p", **owned("DaemonSet", "apps/v1")},
            "spec": {**gpu_pod()["spec"], "affinity": PIN},
        },
    ],
    ids=["never held", "still held", "pinned by its author and held", "pinned by its DaemonSet"],
)
def test_the_sweeper_deletes_no_pod_that_it_has_not_released(
    guarded: Cluster, namespace: str, body: dict[str, Any]
) -> None:
    with guarded.paused("kube-controller-manager"):  # the DaemonSet is not there
        create(guarded.api(), namespace, body)
        with pytest.raises(ClusterError, match="may delete pods that it has released, and no others"):
            remove(guarded, namespace, "p", user=SWEEPER)
        remove(guarded, namespace, "p")


def test_the_sweeper_adds_to_the_node_selector_of_a_pod_that_it_holds(
    guarded: Cluster, pod: tuple[str, str]
) -> None:
    patch(guarded, *pod, {"spec": {"nodeSelector": {"gpu.example.com/model": "x"}}}, user=SWEEPER)


def test_others_remove_their_own_gates_from_our_pods(guarded: Cluster, pod: tuple[str, str]) -> None:
    patch(guarded, *pod, without(OTHER_GATE))
    assert gates_of(guarded, pod) == [keys.GATE]


def test_a_gated_pod_may_be_labelled_and_deleted_by_everyone(guarded: Cluster, pod: tuple[str, str]) -> None:
    patch(guarded, *pod, {"metadata": {"labels": {"a": "b"}}})
    remove(guarded, *pod)


def test_the_sweeper_may_not_remove_a_foreign_gate(guarded: Cluster, pod: tuple[str, str]) -> None:
    with pytest.raises(ClusterError, match=NOTHING_ELSE):
        patch(guarded, *pod, without(OTHER_GATE), user=SWEEPER)


@pytest.mark.parametrize("field", ["containers", "initContainers"])
def test_the_sweeper_may_not_change_an_image(guarded: Cluster, pod: tuple[str, str], field: str) -> None:
    name = {"containers": "main", "initContainers": "init"}[field]
    with pytest.raises(ClusterError, match=NOTHING_ELSE):
        patch(guarded, *pod, {"spec": {field: [{"name": name, "image": "evil"}]}}, user=SWEEPER)


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"tolerations": IMPATIENT}},
        {"spec": {"activeDeadlineSeconds": 1}},
        {"metadata": {"labels": {"a": "b"}}},
        {"metadata": {"finalizers": ["example.com/f"]}},
        {"metadata": {"ownerReferences": [OWNER]}},
        {"metadata": {"annotations": {"topogate.io/inject": "false"}}},
        {"metadata": {"annotations": {"theirs": "changed"}}},
        {"metadata": {"annotations": {"theirs": None}}},
    ],
    ids=[
        "tolerations",
        "deadline",
        "labels",
        "finalizers",
        "owners",
        "an annotation added",
        "an annotation changed",
        "an annotation removed",
    ],
)
def test_the_sweeper_may_not_change_anything_else_of_a_pod(
    guarded: Cluster, pod: tuple[str, str], change: Any
) -> None:
    with pytest.raises(ClusterError, match=NOTHING_ELSE):
        patch(guarded, *pod, change, user=SWEEPER)


@pytest.mark.parametrize("value", ["2", None], ids=["changed", "removed"])
def test_the_sweeper_takes_back_its_own_annotations(
    guarded: Cluster, pod: tuple[str, str], value: str | None
) -> None:
    patch(guarded, *pod, {"metadata": {"annotations": {keys.GAS_TIMESTAMP_ANNOTATION: "1"}}}, user=SWEEPER)
    change = {"metadata": {"annotations": {keys.GAS_TIMESTAMP_ANNOTATION: value}}}
    patch(guarded, *pod, change, user=SWEEPER)


# --- the overlay "strict" ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def strict(guarded: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Webhook]]:
    """Fail closed: the overlay's policy; the webhook is not even configured until a test does so."""
    apply(guarded, STRICT / "gate-required.yaml")
    install_classes(guarded)
    namespace = create_namespace(guarded, {keys.INJECTION_LABEL: keys.INJECTION_ENABLED})

    def is_enforced() -> bool:
        try:
            create(guarded.api(), namespace, gpu_pod())
        except ApiError:
            return True
        return False

    guarded.wait_for("the overlay to be enforced", is_enforced)
    with running(tmp_path_factory.mktemp("webhook"), guarded) as webhook:
        yield guarded, webhook


def of(**spec: Any) -> dict[str, Any]:
    made = gpu_pod("p")
    made["spec"] |= spec
    return made


LIMITED: Final = {"name": "x", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
REFUSED: Final = {
    "a gpu": gpu_pod("p"),
    "a mig profile": gpu_pod("p", resource="nvidia.com/mig-1g.10gb"),
    "an intel gpu": gpu_pod("p", resource=keys.XE),
    "a gpu in an init container": of(containers=[{"name": "c", "image": "x"}], initContainers=[LIMITED]),
    "somebody else's gate": of(schedulingGates=[{"name": OTHER_GATE}]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_under_strict_a_gpu_pod_without_our_gate_is_refused(
    strict: tuple[Cluster, Webhook], opted_in: str, case: str
) -> None:
    with pytest.raises(ApiError, match="must carry the gate") as caught:
        create(strict[0].api(), opted_in, REFUSED[case])
    assert caught.value.status == 403


ALLOWED: Final = {
    "no gpu": {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x"}]}},
    "zero gpus": of(containers=[{**LIMITED, "resources": {"limits": {"nvidia.com/gpu": "0"}}}]),
    "our gate": gated("p"),
    "opted out": gpu_pod("p", annotations={keys.INJECT_ANNOTATION: "false"}),
    "bound by its author": of(nodeName="n"),
    "a mirror pod": of(nodeName="n")
    | {"metadata": {"name": "p", "annotations": {keys.MIRROR_POD_ANNOTATION: "x"}}},
    "of a DaemonSet": {**gpu_pod("p"), "metadata": {"name": "p", **owned("DaemonSet", "apps/v1")}},
}


@pytest.mark.parametrize("case", ALLOWED)
def test_under_strict_other_pods_are_created(
    strict: tuple[Cluster, Webhook], opted_in: str, case: str
) -> None:
    create(strict[0].api(), opted_in, ALLOWED[case])


def test_under_strict_namespaces_that_have_not_opted_in_are_free(
    strict: tuple[Cluster, Webhook], namespace: str
) -> None:
    create(strict[0].api(), namespace, gpu_pod("p"))


def overlaid(cluster: Cluster) -> dict[str, Any]:
    """The webhook of the overlay's configuration."""
    objects = yaml.safe_load_all(cluster.kubectl("kustomize", str(STRICT)).stdout)
    (config,) = [each for each in objects if each["kind"] == "MutatingWebhookConfiguration"]
    (hook,) = config["webhooks"]
    return dict(hook)


@pytest.fixture
def called(strict: tuple[Cluster, Webhook]) -> Iterator[Webhook]:
    """The webhook, called as the overlay has it."""
    cluster, webhook = strict
    install(cluster, webhook, failurePolicy=overlaid(cluster)["failurePolicy"])
    try:
        yield webhook
    finally:
        delete(cluster.api(), f"{WEBHOOKS}/topogate")


@pytest.mark.usefixtures("called")
def test_under_strict_a_gpu_pod_comes_through_the_webhook(
    strict: tuple[Cluster, Webhook], opted_in: str
) -> None:
    stored = create(strict[0].api(), opted_in, gpu_pod("p"))
    assert stored["spec"]["schedulingGates"] == [{"name": keys.GATE}]


def test_under_strict_only_gpu_pods_are_refused_while_the_webhook_is_down(
    strict: tuple[Cluster, Webhook], opted_in: str, called: Webhook
) -> None:
    api = strict[0].api()
    called.stop()
    try:
        with pytest.raises(ApiError, match="must carry the gate"):
            create(api, opted_in, gpu_pod("p"))
        create(api, opted_in, {"metadata": {"name": "cpu"}, "spec": ALLOWED["no gpu"]["spec"]})
        assert create(api, opted_in, gated("by-hand"))["spec"]["schedulingGates"] == [{"name": keys.GATE}]
    finally:
        called.start()


# --- the manifests as a whole --------------------------------------------------------------------------


def test_the_code_leaves_alone_the_same_namespaces_as_the_configuration() -> None:
    (hook,) = yaml.safe_load((MANIFESTS / "webhook-configuration.yaml").read_text())["webhooks"]
    (excluded,) = hook["namespaceSelector"]["matchExpressions"]
    assert sorted(excluded["values"]) == sorted(DEFAULT_EXCLUDED_NAMESPACES)


@pytest.mark.parametrize(
    "file", ["webhook.yaml", "certificates.yaml", "webhook-configuration.yaml", "policy.yaml", "guards.yaml"]
)
def test_the_api_server_takes_the_manifest_without_a_warning(module_cluster: Cluster, file: str) -> None:
    """Warnings name what the namespace's Pod Security level would refuse, and deprecated fields."""
    objects = list(yaml.safe_load_all((MANIFESTS / file).read_text()))
    namespace = next(yaml.safe_load_all((MANIFESTS / "webhook.yaml").read_text()))
    module_cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(namespace))
    result = module_cluster.kubectl(
        "apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=yaml.safe_dump_all(objects)
    )
    assert "Warning" not in result.stderr


def test_a_webhook_pod_of_the_shipped_deployment_is_admitted_in_its_restricted_namespace(
    module_cluster: Cluster,
) -> None:
    objects = list(yaml.safe_load_all((MANIFESTS / "webhook.yaml").read_text()))
    module_cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(objects))
    api = module_cluster.api()

    def has_pods() -> bool:
        path = "/api/v1/namespaces/topogate-system/pods"
        query = {"labelSelector": "app.kubernetes.io/component=webhook"}
        return len(api.json("GET", path, query=query)["items"]) == 2

    module_cluster.wait_for("the Deployment's pods to be admitted", has_pods)


def test_the_overlay_strict_builds_and_denies(module_cluster: Cluster) -> None:
    objects = list(yaml.safe_load_all(module_cluster.kubectl("kustomize", str(STRICT)).stdout))
    bound = {
        each["spec"]["policyName"]: each["spec"]["validationActions"]
        for each in objects
        if each["kind"] == "ValidatingAdmissionPolicyBinding"
    }
    assert bound["topogate-gate-required"] == ["Deny"]
    assert overlaid(module_cluster)["failurePolicy"] == "Ignore"


def test_the_cert_manager_component_replaces_our_own_certificates(module_cluster: Cluster) -> None:
    overlay = ROOT / "manifests" / "overlays" / "cert-manager"
    built = module_cluster.kubectl("kustomize", str(overlay))
    objects = list(yaml.safe_load_all(built.stdout))
    assert not [each for each in objects if each["metadata"]["name"].startswith(("certs", "topogate-certs"))]
    (config,) = [each for each in objects if each["kind"] == "MutatingWebhookConfiguration"]
    assert config["metadata"]["annotations"] == {"cert-manager.io/inject-ca-from": "topogate-system/webhook"}
    (certificate,) = [
        each for each in objects if each["kind"] == "Certificate" and each["metadata"]["name"] == "webhook"
    ]
    (deployment,) = [
        each for each in objects if each["kind"] == "Deployment" and each["metadata"]["name"] == "webhook"
    ]
    volumes = deployment["spec"]["template"]["spec"]["volumes"]
    assert certificate["spec"]["secretName"] in [v.get("secret", {}).get("secretName") for v in volumes]
