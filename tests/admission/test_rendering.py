"""What the API server decides by itself, held to what `decide` decides: on the real one, over many pods."""

import copy
import fnmatch
import io
import json
import random
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hack.local.cluster import Cluster
from labeler.contract import keys
from tests.admission import shapes
from tests.admission.harness import MANIFESTS, WEBHOOKS, gpu_pod, install_classes
from tests.admission.neighbour import installed, neighbour
from tests.admission.shapes import SHAPES
from tests.support import create_namespace, delete, exists
from webhook.admission.decide import DENIED, Decision, decide
from webhook.admission.review import NewPod
from webhook.cli.config import as_yaml, differences
from webhook.cli.main import main
from webhook.configuration.file import parse
from webhook.kube.client import Api, ApiError
from webhook.kube.objects import PriorityClass
from webhook.policy import name_conditions, rendering
from webhook.policy.rendering import RenderError
from webhook.policy.values import Policy
from webhook.workloads import marks

VALUES: Final = {
    "gpu-low-priority": 1,
    "gpu-medium-priority": 10,
    "gpu-high-priority": 100,
    "gpu-never-priority": 7,
}
PATTERNS: Final = (
    "  resources: [nvidia.com/gpu, 'nvidia.com/mig-[1-3]g.*', 'gpu.intel.com/[!m]*', 'amd.com/?pu']"
)


def classes() -> dict[str, PriorityClass]:
    made = {}
    for name, value in {**VALUES, "house-class": 77}.items():
        body = {"metadata": {"name": name}, "value": value, "preemptionPolicy": "PreemptLowerPriority"}
        made[name] = msgspec.convert(body, PriorityClass)
    return made


# --- patterns --------------------------------------------------------------------------------------------

_characters = st.sampled_from("nvidia.com/gpu-mG19*?[]!")


@given(
    st.text(_characters, min_size=1, max_size=14), st.text(st.sampled_from("nvidacom./gpu-mG19"), max_size=14)
)
def test_a_shell_pattern_and_its_expression_match_the_same_names(pattern: str, name: str) -> None:
    expression = name_conditions.expression_of(pattern)
    assert bool(re.search(expression, name)) == fnmatch.fnmatchcase(name, pattern)


# --- what is rendered ------------------------------------------------------------------------------------


def test_a_maximum_whose_class_has_no_known_value_is_named() -> None:
    policy = parse(shapes.POLICY.format(capped="a", steered="b", intel="c")).policy
    with pytest.raises(
        RenderError, match=r"namespaces\.a\.maximumTier: the value of PriorityClass gpu-medium"
    ):
        rendering.objects(policy, {})


def test_what_the_api_server_adds_is_no_drift_and_another_policy_is() -> None:
    wanted = rendering.webhook_configuration(Policy())
    found = json.loads(json.dumps(wanted))
    found["webhooks"][0]["objectSelector"] = {}
    found["webhooks"][0]["clientConfig"] = {"url": "https://127.0.0.1:1/mutate", "caBundle": "x"}
    assert list(differences(wanted, found)) == []
    other = rendering.webhook_configuration(Policy(gpu_resources=("example.com/gpu",)))
    assert list(differences(other, found)) == ["webhooks[0].matchConditions[4].expression"]


@pytest.mark.promise("O56")
def test_config_check_names_what_has_drifted_from_the_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "configuration.yaml"
    shipped = (MANIFESTS / "configuration.yaml").read_text()
    file.write_text(
        shipped.replace("        - amd.com/gpu\n", "        - amd.com/gpu\n        - example.com/gpu\n", 1)
    )
    files = [str(file), str(MANIFESTS / "priorityclasses.yaml")]
    manifests = str(MANIFESTS.parent)
    assert main(["config", "check", *files, "--against", manifests]) == 1
    output = capsys.readouterr().out
    for name in ("MutatingWebhookConfiguration topogate:", "MutatingAdmissionPolicy topogate-gate:"):
        assert f"{name} " in output
    assert "has drifted; run topogate config render" in output


@pytest.mark.promise("O56")
@pytest.mark.parametrize(("is_in_force", "status"), [(True, 0), (False, 1)], ids=["in force", "drifted"])
def test_config_check_reads_what_is_in_force_from_standard_input(
    is_in_force: bool, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `kubectl get -o yaml` prints it."""
    (document,) = yaml.safe_load_all((MANIFESTS / "configuration.yaml").read_text())
    policy = parse(document["data"]["configuration.yaml"]).policy
    other = Policy(gpu_resources=("example.com/gpu",))
    objects = list(rendering.objects(policy if is_in_force else other, VALUES))
    monkeypatch.setattr("sys.stdin", io.StringIO(yaml.safe_dump({"kind": "List", "items": objects})))
    files = [str(MANIFESTS / "configuration.yaml"), str(MANIFESTS / "priorityclasses.yaml")]
    assert main(["config", "check", "--against", "-", *files]) == status
    assert ("has drifted" in capsys.readouterr().out) is (status == 1)


@pytest.mark.promise("O56")
def test_config_render_writes_what_config_check_then_finds_in_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("tiers.yaml", "webhook-configuration.yaml"):
        (tmp_path / name).write_text((MANIFESTS / name).read_text())
    file = tmp_path / "configuration.txt"
    file.write_text(
        (MANIFESTS / "configuration.yaml").read_text().replace('"*": {}', '"*": {maximumTier: low}')
    )
    files = [str(file), str(MANIFESTS / "priorityclasses.yaml")]
    assert main(["config", "check", *files, "--against", str(tmp_path)]) == 1
    assert main(["config", "render", *files, "--into", str(tmp_path)]) == 0
    assert main(["config", "check", *files, "--against", str(tmp_path)]) == 0
    assert main(["config", "render", *files, "--into", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("written") == 1


# --- on the real API server ------------------------------------------------------------------------------

_AMOUNTS: Final = ("0", "1", "2", 3, "1k")
_RESOURCES: Final = (
    "nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "nvidia.com/mig-7g.80gb", "amd.com/gpu", keys.I915, keys.XE,
    keys.MILLICORES, "rdma/hca", keys.DEVICE_CLASS + "gpu.example.com",
    keys.DEVICE_CLASS + "mig-1g.example.com", keys.DEVICE_CLASS + "rdma.example.com",
)  # fmt: skip
_ANNOTATIONS: Final = {
    **dict.fromkeys(sorted(keys.REQUEST_ANNOTATIONS), "x"),
    keys.GPU_MODEL_ANNOTATION: "H100",
    keys.PRIORITY_ANNOTATION: "low",
    keys.INJECT_ANNOTATION: "false",
    keys.GAS_ALLOW_ANNOTATION: "card0",
    "example.com/other": "x",
    "topogate.io/later": "x",
}


def drawn(choices: random.Random) -> dict[str, Any]:  # noqa: C901
    """A pod that the API server takes: everything that admission reads, at random."""

    def some(probability: float) -> bool:
        return choices.random() < probability

    def container(name: str) -> dict[str, Any]:
        names = choices.sample(_RESOURCES, choices.choice((0, 0, 1, 1, 2)))
        asked = {each: choices.choice(_AMOUNTS) for each in names}
        resources = {"limits": asked, **({"requests": asked} if some(0.3) else {})}
        return {"name": name, "image": "x", **({"resources": resources} if some(0.9) else {})}

    spec: dict[str, Any] = {"containers": [container(f"c{n}") for n in range(choices.randint(1, 3))]}
    if some(0.3):
        spec["initContainers"] = [container("i")]
    if some(0.2):
        gates = choices.sample(
            (
                keys.GATE,
                keys.GATE_PREFIX + "mine",
                "a.io/b",
                marks.KUEUE_ADMISSION_GATE,
                marks.KUEUE_TOPOLOGY_GATE,
            ),
            choices.randint(1, 3),
        )
        spec["schedulingGates"] = [{"name": gate} for gate in gates]
    elif some(0.1):
        spec["nodeName"] = "n"
    if some(0.15):
        spec["schedulerName"] = choices.choice(("default-scheduler", "other"))
    if some(0.1):
        spec["schedulingGroup"] = {"podGroupName": "g"}
    metadata: dict[str, Any] = {"generateName": "drawn-"}
    if some(0.5):
        chosen = choices.sample(sorted(_ANNOTATIONS), choices.randint(0, 2))
        metadata["annotations"] = {key: _ANNOTATIONS[key] for key in chosen}
    if some(0.3):
        kind = choices.choice((("DaemonSet", "apps/v1"), ("Job", "batch/v1")))
        metadata |= shapes.owned(*kind, controller=some(0.7))
    if some(0.2):
        metadata["labels"] = {choices.choice((*marks.CPU_POD_LABELS, "app")): "x"}
    return {"metadata": metadata, "spec": spec}


_seeded: Final = random.Random(20260)
PODS: Final = [shape.pod for shape in SHAPES] + [drawn(_seeded) for _ in range(150)]


def dry(api: Api, namespace: str, pod: dict[str, Any]) -> dict[str, Any]:
    """The pod as it would be stored."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    return dict(api.json("POST", path, body=pod, query={"dryRun": "All"}))


def gates(pod: dict[str, Any]) -> list[str]:
    return [gate["name"] for gate in pod["spec"].get("schedulingGates", [])]


def apply(cluster: Cluster, objects: list[dict[str, Any]], kinds: str) -> None:
    chosen = [each for each in objects if each["kind"].startswith(kinds)]
    cluster.kubectl("apply", "-f", "-", stdin=as_yaml(chosen))


@dataclass(frozen=True)
class Answer:
    """What the API server makes of a pod. gates: that it would store. is_called: whether it asked us."""

    gates: list[str]
    is_called: bool


class Ruled:
    """A cluster whose API server knows a policy, with namespaces that have opted in.

    plain: the pods of PODS as they would be stored where nobody has opted in.
    """

    def __init__(self, cluster: Cluster, policy_text: str, plain: list[dict[str, Any]]) -> None:
        self.cluster, self.api, self.plain = cluster, cluster.api(), plain
        opted = {keys.INJECTION_LABEL: keys.INJECTION_ENABLED}
        self.spaces = {
            name: create_namespace(cluster, opted) for name in ("open", "capped", "steered", "intel")
        }
        named = {key: value for key, value in self.spaces.items() if key != "open"}
        self.policy = parse(policy_text.format(**named)).policy
        self.objects = rendering.objects(self.policy, VALUES)

    def decided(self, number: int, namespace: str) -> Decision:
        """What `decide` makes of PODS[number] as the API server would send it."""
        sent, pod = copy.deepcopy(self.plain[number]), PODS[number]
        if "schedulingGroup" in pod["spec"]:  # forgotten at storage, where the feature is off
            sent["spec"]["schedulingGroup"] = pod["spec"]["schedulingGroup"]
        return decide(msgspec.json.decode(json.dumps(sent), type=NewPod), namespace, self.policy, classes())


@pytest.fixture(scope="module")
def plain(module_cluster: Cluster) -> list[dict[str, Any]]:
    """PODS as they would be stored without topogate."""
    install_classes(module_cluster)
    for name, value in (("gpu-never-priority", 7), ("house-class", 77)):
        body = {"metadata": {"name": name}, "value": value, "preemptionPolicy": "PreemptLowerPriority"}
        module_cluster.api().request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body=body)
    namespace, api = create_namespace(module_cluster), module_cluster.api()
    return [dry(api, namespace, pod) for pod in PODS]


@pytest.fixture(scope="module", params=["names", "patterns"])
def ruled(
    module_cluster: Cluster, plain: list[dict[str, Any]], request: pytest.FixtureRequest
) -> Iterator[Ruled]:
    """With the gate in-process and no webhook of ours."""
    text = shapes.POLICY
    if request.param == "patterns":
        text = re.sub(
            r"  resources: \[nvidia.com/gpu, nvidia.com/mig.*xe\]", PATTERNS.replace("{", "{{"), text
        )
        text = re.sub(r"\n    resources: \[.*\]", "", text) + "gangs: {{native: leave}}\n"
    made = Ruled(module_cluster, text, plain)
    apply(module_cluster, made.objects, "MutatingAdmissionPolicy")
    space = made.spaces["open"]
    module_cluster.wait_for(
        "the gate in-process", lambda: gates(dry(made.api, space, gpu_pod())) == [keys.GATE], 30
    )
    grouped, wanted = gpu_pod(), [keys.GATE] * made.policy.adopts_native_gangs
    grouped["spec"]["schedulingGroup"] = {"podGroupName": "g"}
    module_cluster.wait_for(
        "this policy, not the one before", lambda: gates(dry(made.api, space, grouped)) == wanted, 30
    )
    yield made
    for kind in ("mutatingadmissionpolicybinding", "mutatingadmissionpolicy"):
        module_cluster.kubectl("delete", kind, "topogate-gate", "--ignore-not-found")


@pytest.fixture(scope="module")
def answers(ruled: Ruled) -> Iterator[list[Answer]]:
    """To PODS, with a webhook that only notes that it is called, where the rendered configuration says so."""
    (rendered,) = [each for each in ruled.objects if each["kind"] == "MutatingWebhookConfiguration"]
    (hook,) = rendered["webhooks"]
    space = ruled.spaces["open"]
    with neighbour() as asked:
        asked.install(ruled.api, "asked", hook["matchConditions"])
        tier = gpu_pod(annotations={keys.PRIORITY_ANNOTATION: "high"})

        def is_called() -> bool:
            dry(ruled.api, space, tier)
            return asked.calls > 0

        def answer(pod: dict[str, Any]) -> Answer:
            before = asked.calls
            stored = dry(ruled.api, space, pod)
            return Answer(gates(stored), asked.calls > before)

        try:
            ruled.cluster.wait_for("the webhook to be called", is_called)
            yield [answer(pod) for pod in PODS]
        finally:
            delete(ruled.api, f"{WEBHOOKS}/asked")
            ruled.cluster.wait_for("the webhook to be forgotten", lambda: not answer(tier).is_called)


@pytest.mark.promise("I16")
def test_the_gate_in_process_holds_the_pods_that_the_webhook_would_hold(
    ruled: Ruled, answers: list[Answer]
) -> None:
    counted, wrong = {True: 0, False: 0}, []
    for number, (pod, answer) in enumerate(zip(PODS, answers, strict=True)):
        decision = ruled.decided(number, ruled.spaces["open"])
        if decision.outcome == DENIED:
            continue
        # CPU-only pods of a gang are gated by the webhook alone.
        wanted = decision.reason != "cpu-only-member" and any(
            (operation.op, operation.path.startswith("/spec/schedulingGates")) == ("add", True)
            for operation in decision.operations
        )
        if answer.gates != gates(ruled.plain[number]) + [keys.GATE] * wanted:
            wrong.append(json.dumps(pod))
        counted[wanted] += 1
    assert wrong == []
    assert min(counted.values()) > 60, counted


def test_the_gate_in_process_leaves_an_empty_note_that_is_not_stored(ruled: Ruled) -> None:
    """By it the webhook knows that a class on the pod is not its own."""
    seen: list[str] = []
    space = ruled.spaces["open"]
    with installed(ruled.cluster, space, "reader") as reader:

        def note(pod: dict[str, Any]) -> list[dict[str, Any]]:
            seen.append(pod["metadata"].get("uid", ""))
            return []

        reader.behave = note
        stored = dry(ruled.api, space, gpu_pod())
        dry(ruled.api, space, gpu_pod(annotations={keys.INJECT_ANNOTATION: keys.INJECT_NO}))
    assert seen[:2] == [f"{keys.INJECTION_NOTE}:{{}}", ""]
    uuid.UUID(stored["metadata"]["uid"])


@pytest.mark.promise("O55")
def test_a_pod_that_the_webhook_would_not_change_costs_no_call(ruled: Ruled, answers: list[Answer]) -> None:
    called, wrong = {True: 0, False: 0}, []
    for number, (pod, answer) in enumerate(zip(PODS, answers, strict=True)):
        decision = ruled.decided(number, ruled.spaces["open"])
        if not answer.is_called and (decision.operations or decision.warnings or decision.denial):
            wrong.append(json.dumps(pod))
        called[answer.is_called] += 1
    assert wrong == []
    assert min(called.values()) > 60, called
    names = [shape.name for shape in SHAPES]
    asked = {name for name, answer in zip(names, answers, strict=False) if answer.is_called}
    assert set(names) >= NEVER_ASKED
    assert asked & NEVER_ASKED == set()


NEVER_ASKED: Final = {
    "no gpu",
    "cpu and memory only",
    "a device that is no gpu",
    "devices of a class that is no gpu",
}
"""Shapes without GPUs and annotations of ours."""


@pytest.mark.parametrize("namespace", ["kube-system", "topogate-system"])
def test_the_gate_in_process_keeps_off_the_namespaces_that_are_never_touched(
    ruled: Ruled, namespace: str
) -> None:
    api, path = ruled.api, f"/api/v1/namespaces/{namespace}"
    if not exists(api, path):
        api.request("POST", "/api/v1/namespaces", body={"metadata": {"name": namespace}})
        ruled.cluster.wait_for("its ServiceAccount", lambda: exists(api, f"{path}/serviceaccounts/default"))
    for value in (keys.INJECTION_ENABLED, None):
        label = {"metadata": {"labels": {keys.INJECTION_LABEL: value}}}
        api.request("PATCH", path, body=label, content_type="application/merge-patch+json")
        assert gates(dry(api, namespace, gpu_pod())) == []


# --- tiers -----------------------------------------------------------------------------------------------


OPTED_OUT: Final = {keys.INJECT_ANNOTATION: keys.INJECT_NO}
CPU: Final[dict[str, Any]] = {
    "metadata": {"generateName": "cpu-"},
    "spec": {"containers": [{"name": "c", "image": "x"}]},
}


@pytest.fixture(scope="module")
def capped(ruled: Ruled) -> Ruled:
    """With the maxima enforced."""
    tiers = [each for each in ruled.objects if each["metadata"]["name"] == "topogate-tiers"]
    ruled.cluster.kubectl("apply", "-f", "-", stdin=as_yaml(tiers))

    def is_enforced() -> bool:
        try:
            dry(ruled.api, ruled.spaces["capped"], above(**OPTED_OUT))
        except ApiError:
            return True
        return False

    ruled.cluster.wait_for("the maxima to be enforced", is_enforced)
    return ruled


def above(class_name: str = "gpu-high-priority", **annotations: str) -> dict[str, Any]:
    pod = gpu_pod(annotations=annotations or None)
    pod["spec"]["priorityClassName"] = class_name
    return pod


EVASIONS: Final = {
    "opted out": above(**OPTED_OUT),
    "a class of the cluster's own": above("system-cluster-critical"),
    "a class that is no tier": above("house-class", **OPTED_OUT),
    "as if it were a mirror pod": above(**{keys.MIRROR_POD_ANNOTATION: "x"})
    | {"spec": {**above()["spec"], "nodeName": "n"}},
    "bound by its author": {"metadata": {"generateName": "b-"}, "spec": {**above()["spec"], "nodeName": "n"}},
    "as if by a DaemonSet": {
        "metadata": {"generateName": "d-", **shapes.owned("DaemonSet", "apps/v1")},
        "spec": above()["spec"],
    },
    "of another scheduler": {
        "metadata": {"generateName": "s-"},
        "spec": {**above()["spec"], "schedulerName": "x"},
    },
    "for devices of a class, without a claim": {
        "metadata": {"generateName": "e-"},
        "spec": {
            **above()["spec"],
            "containers": [shapes.container("c", {keys.DEVICE_CLASS + "gpu.example.com": "8"})],
        },
    },
    "in a scheduling group": {
        "metadata": {"generateName": "g-"},
        "spec": {**above()["spec"], "schedulingGroup": {"podGroupName": "g"}},
    },
    "without a GPU, with our gate": {
        "metadata": {"generateName": "w-"},
        "spec": {**CPU["spec"], "priorityClassName": "house-class", "schedulingGates": [{"name": keys.GATE}]},
    },
}


@pytest.mark.promise("S32", "O243")
def test_no_gpu_pod_is_above_the_maximum_of_its_namespace(capped: Ruled) -> None:
    namespace, wrong = capped.spaces["capped"], []
    for evasion, pod in EVASIONS.items():
        dry(capped.api, capped.spaces["open"], pod)
        try:
            dry(capped.api, namespace, pod)
            wrong.append(f"{evasion}: allowed")
        except ApiError as error:
            words = f"is above the maximum of namespace {namespace}, which is 10"
            if error.status != 403 or words not in error.message:
                wrong.append(f"{evasion}: {error.message}")
    assert wrong == []


ALLOWED: Final = {
    "at the maximum": above("gpu-medium-priority"),
    "below it, of no tier": above("gpu-never-priority"),
    "opted out below it": above("gpu-low-priority", **OPTED_OUT),
    "without a class": gpu_pod(),
    "critical without a GPU": {**CPU, "spec": {**CPU["spec"], "priorityClassName": "house-class"}},
}


@pytest.mark.promise("S32")
def test_what_is_not_above_the_maximum_is_created(capped: Ruled) -> None:
    for pod in ALLOWED.values():
        dry(capped.api, capped.spaces["capped"], pod)
