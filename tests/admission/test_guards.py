"""What the API server itself refuses: one test for each forbidden act, and for what must stay allowed."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
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
from webhook.policy.values import DEFAULT_EXCLUDED_NAMESPACES
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
NOTHING_ELSE: Final = "the topogate sweeper may only change the affinity of a pod"
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


@pytest.fixture(scope="module")
def namespace(guarded: Cluster) -> str:
    """One for all tests, whose pods have names of their own."""
    return create_namespace(guarded)


@pytest.fixture
def pod(guarded: Cluster, namespace: str) -> tuple[str, str]:
    """A pod with our gate and another's: its namespace and name."""
    return namespace, created(guarded, namespace, gated("", OTHER_GATE, keys.GATE))


def created(cluster: Cluster, namespace: str, body: dict[str, Any]) -> str:
    """Create a pod; returns its name."""
    return str(create(cluster.api(), namespace, body)["metadata"]["name"])


def allowed(acts: Mapping[str, Callable[[], object]], words: str) -> dict[str, str]:
    """By name the acts that are not refused with these words, and the message that they get instead."""
    wrong = {}
    for name, act in acts.items():
        try:
            act()
            wrong[name] = "allowed"
        except (ApiError, ClusterError) as error:
            if words not in str(error):
                wrong[name] = str(error)
    return wrong


def gates_of(cluster: Cluster, pod: tuple[str, str]) -> list[str]:
    stored = cluster.api().json("GET", f"/api/v1/namespaces/{pod[0]}/pods/{pod[1]}")
    return [gate["name"] for gate in stored["spec"].get("schedulingGates", [])]


@pytest.mark.promise("S29")
def test_not_even_an_administrator_removes_our_gate(guarded: Cluster, pod: tuple[str, str]) -> None:
    own = (pod[0], created(guarded, pod[0], gated("", keys.GATE_PREFIX + "mine")))
    acts = {
        "one": partial(patch, guarded, *pod, without(keys.GATE)),
        "all": partial(patch, guarded, *pod, {"spec": {"schedulingGates": None}}),
        "one of our prefix": partial(patch, guarded, *own, without(keys.GATE_PREFIX + "mine")),
    }
    assert allowed(acts, "only the topogate sweeper removes") == {}
    assert gates_of(guarded, pod) == [OTHER_GATE, keys.GATE]


@pytest.mark.promise("O220")
def test_the_sweeper_removes_our_gate_and_pins_the_pod(guarded: Cluster, pod: tuple[str, str]) -> None:
    change = {**without(keys.GATE), "metadata": {"annotations": {"gas-ts": "1"}}}
    pin = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [pin]}}
    change["spec"]["affinity"] = {"nodeAffinity": required}
    patch(guarded, *pod, change, user=SWEEPER)
    assert gates_of(guarded, pod) == [OTHER_GATE]


@pytest.mark.promise("S30")
def test_nobody_creates_a_pod_with_the_annotation_of_allocated_cards(
    guarded: Cluster, namespace: str
) -> None:
    def copied(key: str) -> dict[str, Any]:
        body = gated("")
        body["metadata"]["annotations"][key] = "card0"
        return body

    acts = {
        key: partial(create, guarded.api(), namespace, copied(key), dry_run=True)
        for key in keys.GAS_ANNOTATIONS
    }
    assert allowed(acts, "remove gas-ts, gas-container-cards") == {}


@pytest.mark.promise("S30")
def test_nobody_else_changes_the_cards_of_a_pod_not_even_of_one_that_ends(
    guarded: Cluster, namespace: str
) -> None:
    """A pod that is being deleted runs until its grace period is over, with the cards that it was given."""
    body = gpu_pod()
    body["metadata"]["finalizers"] = ["example.com/hold"]
    name = created(guarded, namespace, body)
    given = {"metadata": {"annotations": dict.fromkeys(keys.GAS_ANNOTATIONS, "card0")}}
    patch(guarded, namespace, name, given, user=SWEEPER)
    acts = {
        f"{key}: {value}": partial(
            patch, guarded, namespace, name, {"metadata": {"annotations": {key: value}}}
        )
        for key in keys.GAS_ANNOTATIONS
        for value in ("card1", None)
    }
    assert allowed(acts, "only the topogate sweeper writes gas-ts") == {}
    remove(guarded, namespace, name)
    assert allowed(acts, "only the topogate sweeper writes gas-ts") == {}
    patch(guarded, namespace, name, {"metadata": {"finalizers": None}})


# --- pods as large as they can be ------------------------------------------------------------------------


def many_gates(count: int, prefix: str) -> dict[str, Any]:
    body = gated("", *(f"{prefix}{number}" for number in range(count)))
    body["metadata"]["finalizers"] = ["example.com/hold"]
    return body


@pytest.mark.promise("S29")
def test_a_pod_with_hundreds_of_our_gates_is_refused_when_it_is_created(
    guarded: Cluster, namespace: str
) -> None:
    with pytest.raises(ApiError, match="may have at most 64 schedulingGates"):
        create(guarded.api(), namespace, many_gates(800, keys.GATE_PREFIX))
    with pytest.raises(ApiError, match="may have at most 64 schedulingGates"):
        create(guarded.api(), namespace, gated("", keys.GATE, *(f"a.io/{n}" for n in range(64))))


@pytest.mark.promise("S29")
def test_a_pod_with_as_many_gates_of_ours_as_are_allowed_is_guarded_released_and_deleted(
    guarded: Cluster, namespace: str
) -> None:
    stored = create(guarded.api(), namespace, many_gates(64, keys.GATE_PREFIX))
    name = stored["metadata"]["name"]
    patch(guarded, namespace, name, {"metadata": {"labels": {"a": "b"}}})
    with pytest.raises(ClusterError, match="only the topogate sweeper removes"):
        patch(guarded, namespace, name, without(keys.GATE_PREFIX + "7"))
    change = release_patch(msgspec.convert(stored, Pod), "n", {keys.GAS_TIMESTAMP_ANNOTATION: "1"})
    patch(guarded, namespace, name, change, user=SWEEPER)
    assert gates_of(guarded, (namespace, name)) == []
    patch(guarded, namespace, name, {"metadata": {"finalizers": None}})


def test_a_thousand_gates_of_others_are_none_of_our_business(guarded: Cluster, namespace: str) -> None:
    name = created(guarded, namespace, many_gates(1_000, "a.io/"))
    patch(guarded, namespace, name, {"metadata": {"labels": {"a": "b"}}})
    patch(guarded, namespace, name, without("a.io/7"))
    remove(guarded, namespace, name)
    patch(guarded, namespace, name, {"metadata": {"finalizers": None}})


def test_a_pod_of_ten_thousand_annotations_is_changed_and_released(guarded: Cluster, namespace: str) -> None:
    body = gated("")
    body["metadata"]["annotations"] = {f"a{number}": "" for number in range(10_000)}
    stored = create(guarded.api(), namespace, body)
    name = stored["metadata"]["name"]
    patch(guarded, namespace, name, {"metadata": {"labels": {"a": "b"}}})
    change = release_patch(msgspec.convert(stored, Pod), "n", {keys.GAS_TIMESTAMP_ANNOTATION: "1"})
    patch(guarded, namespace, name, change, user=SWEEPER)


@pytest.mark.promise("S44")
def test_anyone_may_remove_the_gates_of_a_pod_that_is_being_deleted(guarded: Cluster, namespace: str) -> None:
    body = gated("")
    body["metadata"]["finalizers"] = ["a.io/hold"]
    name = created(guarded, namespace, body)
    remove(guarded, namespace, name)
    patch(guarded, namespace, name, without(keys.GATE))
    patch(guarded, namespace, name, {"metadata": {"finalizers": None}})


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


@pytest.mark.promise("S14")
def test_the_sweeper_deletes_a_pod_that_it_has_released(guarded: Cluster, namespace: str) -> None:
    stored = create(guarded.api(), namespace, gated(""))
    name = stored["metadata"]["name"]
    patch(guarded, namespace, name, release_patch(msgspec.convert(stored, Pod), "n", {}), user=SWEEPER)
    remove(guarded, namespace, name, user=SWEEPER)


NOT_RELEASED: Final[dict[str, dict[str, Any]]] = {
    "never held": gpu_pod("never-held"),
    "still held": gated("still-held"),
    "pinned by its author and held": {
        "metadata": {"name": "pinned"},
        "spec": {**gated("")["spec"], "affinity": PIN},
    },
    "pinned by its DaemonSet": {
        "metadata": {"name": "of-daemonset", **owned("DaemonSet", "apps/v1")},
        "spec": {**gpu_pod()["spec"], "affinity": PIN},
    },
}


@pytest.mark.promise("S14")
def test_the_sweeper_deletes_no_pod_that_it_has_not_released(guarded: Cluster, namespace: str) -> None:
    with guarded.paused("kube-controller-manager"):  # the DaemonSet is not there
        names = {case: created(guarded, namespace, body) for case, body in NOT_RELEASED.items()}
        acts = {case: partial(remove, guarded, namespace, name, user=SWEEPER) for case, name in names.items()}
        assert allowed(acts, "may delete pods that it has released, and no others") == {}
        for name in names.values():
            remove(guarded, namespace, name)


def test_the_sweeper_adds_to_the_node_selector_of_a_pod_that_it_holds(
    guarded: Cluster, pod: tuple[str, str]
) -> None:
    patch(guarded, *pod, {"spec": {"nodeSelector": {"gpu.example.com/model": "x"}}}, user=SWEEPER)


def test_others_remove_their_own_gates_from_our_pods(guarded: Cluster, pod: tuple[str, str]) -> None:
    patch(guarded, *pod, without(OTHER_GATE))
    assert gates_of(guarded, pod) == [keys.GATE]


@pytest.mark.promise("S44")
def test_a_gated_pod_may_be_labelled_and_deleted_by_everyone(guarded: Cluster, pod: tuple[str, str]) -> None:
    patch(guarded, *pod, {"metadata": {"labels": {"a": "b"}}})
    remove(guarded, *pod)


UNCHANGED: Final[dict[str, Any]] = {
    "foreign gate": without(OTHER_GATE),
    "image": {"spec": {"containers": [{"name": "main", "image": "evil"}]}},
    "image of an init container": {"spec": {"initContainers": [{"name": "init", "image": "evil"}]}},
    "tolerations": {"spec": {"tolerations": IMPATIENT}},
    "deadline": {"spec": {"activeDeadlineSeconds": 1}},
    "labels": {"metadata": {"labels": {"a": "b"}}},
    "finalizers": {"metadata": {"finalizers": ["example.com/f"]}},
    "owners": {"metadata": {"ownerReferences": [OWNER]}},
    "an annotation added": {"metadata": {"annotations": {"topogate.io/inject": "false"}}},
    "an annotation changed": {"metadata": {"annotations": {"theirs": "changed"}}},
    "an annotation removed": {"metadata": {"annotations": {"theirs": None}}},
}
"""What the sweeper may not change of a pod."""


@pytest.mark.promise("S12")
def test_the_sweeper_may_not_change_anything_else_of_a_pod(guarded: Cluster, pod: tuple[str, str]) -> None:
    acts = {name: partial(patch, guarded, *pod, change, user=SWEEPER) for name, change in UNCHANGED.items()}
    assert allowed(acts, NOTHING_ELSE) == {}


def test_the_sweeper_takes_back_its_own_annotations(guarded: Cluster, pod: tuple[str, str]) -> None:
    for value in ("1", "2", None):
        change = {"metadata": {"annotations": {keys.GAS_TIMESTAMP_ANNOTATION: value}}}
        patch(guarded, *pod, change, user=SWEEPER)


# --- the overlay "strict" ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def opted_in(guarded: Cluster) -> str:
    return create_namespace(guarded, {keys.INJECTION_LABEL: keys.INJECTION_ENABLED})


@pytest.fixture(scope="module")
def strict(
    guarded: Cluster, opted_in: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Cluster, Webhook]]:
    """Fail closed: the overlay's policy; the webhook is not even configured until a test does so."""
    apply(guarded, STRICT / "gate-required.yaml")
    install_classes(guarded)
    enforced = partial(create, guarded.api(), opted_in, gpu_pod(), dry_run=True)
    guarded.wait_for("the overlay to be enforced", lambda: is_refused(enforced))
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


@pytest.mark.promise("S34")
def test_under_strict_a_gpu_pod_without_our_gate_is_refused(
    strict: tuple[Cluster, Webhook], opted_in: str
) -> None:
    acts = {
        case: partial(create, strict[0].api(), opted_in, body, dry_run=True) for case, body in REFUSED.items()
    }
    assert allowed(acts, "must carry the gate") == {}


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


def test_under_strict_other_pods_are_created(
    strict: tuple[Cluster, Webhook], opted_in: str, namespace: str
) -> None:
    for body in ALLOWED.values():
        create(strict[0].api(), opted_in, body, dry_run=True)
    create(strict[0].api(), namespace, gpu_pod("p"), dry_run=True)  # it has not opted in


def overlaid(cluster: Cluster) -> dict[str, Any]:
    """The webhook of the overlay's configuration."""
    objects = yaml.safe_load_all(cluster.kubectl("kustomize", str(STRICT)).stdout)
    (config,) = [each for each in objects if each["kind"] == "MutatingWebhookConfiguration"]
    (hook,) = config["webhooks"]
    return dict(hook)


@pytest.mark.promise("S34")
def test_under_strict_gpu_pods_come_through_the_webhook_and_only_they_are_refused_while_it_is_down(
    strict: tuple[Cluster, Webhook], opted_in: str
) -> None:
    cluster, webhook = strict
    install(cluster, webhook, failurePolicy=overlaid(cluster)["failurePolicy"])
    try_out = partial(create, cluster.api(), opted_in, dry_run=True)
    try:
        assert try_out(gpu_pod("p"))["spec"]["schedulingGates"] == [{"name": keys.GATE}]
        webhook.stop()
        assert allowed({"a gpu": partial(try_out, gpu_pod("p"))}, "must carry the gate") == {}
        try_out(ALLOWED["no gpu"])
        assert try_out(gated("by-hand"))["spec"]["schedulingGates"] == [{"name": keys.GATE}]
    finally:
        delete(cluster.api(), f"{WEBHOOKS}/topogate")


# --- the manifests as a whole --------------------------------------------------------------------------


def test_the_code_leaves_alone_the_same_namespaces_as_the_configuration() -> None:
    (hook,) = yaml.safe_load((MANIFESTS / "webhook-configuration.yaml").read_text())["webhooks"]
    (excluded,) = hook["namespaceSelector"]["matchExpressions"]
    assert sorted(excluded["values"]) == sorted(DEFAULT_EXCLUDED_NAMESPACES)


def test_the_api_server_takes_the_manifests_without_a_warning(module_cluster: Cluster) -> None:
    """Warnings name what the namespace's Pod Security level would refuse, and deprecated fields."""
    files = (
        "webhook.yaml",
        "certificates.yaml",
        "webhook-configuration.yaml",
        "configuration.yaml",
        "guards.yaml",
    )
    objects = [each for file in files for each in yaml.safe_load_all((MANIFESTS / file).read_text())]
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


@pytest.mark.promise("S34")
def test_the_overlay_strict_builds_and_denies(module_cluster: Cluster) -> None:
    objects = list(yaml.safe_load_all(module_cluster.kubectl("kustomize", str(STRICT)).stdout))
    bound = {
        each["spec"]["policyName"]: each["spec"]["validationActions"]
        for each in objects
        if each["kind"] == "ValidatingAdmissionPolicyBinding"
    }
    assert bound["topogate-gate-required"] == ["Deny"]
    assert overlaid(module_cluster)["failurePolicy"] == "Ignore"


@pytest.mark.promise("O179")
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
