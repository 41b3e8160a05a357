"""Nothing that reaches out of its pod comes through a template, and nothing in one breaks the controller."""

import contextlib
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tasks.builders import documents, rules, task
from webhook.tasks.desired_job import RefusedError, job_wanted
from webhook.tasks.template import (
    APPARMOR,
    CAPABILITIES,
    CONTAINER,
    CONTAINER_SECURITY,
    POD,
    POD_SECURITY,
    PROFILES,
    VOLUMES,
    first_fault,
)

CONTAINERS = [{"name": "c", "image": "i"}]


def fault_of(spec: dict[str, Any], **container: Any) -> str:
    first = {**CONTAINERS[0], **container}
    return first_fault({"spec": {"containers": [first], **spec}})


@pytest.mark.promise("O163")
@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"hostNetwork": True}, "template.spec sets hostNetwork"),
        ({"hostNetwork": "true"}, "template.spec sets hostNetwork"),
        ({"hostPID": True}, "template.spec sets hostPID"),
        ({"hostIPC": True}, "template.spec sets hostIPC"),
        ({"hostUsers": True}, "template.spec sets hostUsers"),
        ({"nodeName": "n1"}, "template.spec sets nodeName"),
        ({"priorityClassName": "system-node-critical"}, "template.spec sets priorityClassName"),
        ({"priority": 2000001000}, "template.spec sets priority"),
        ({"serviceAccount": "admin"}, "template.spec sets serviceAccount"),
        ({"schedulerName": "mine"}, "names another scheduler"),
        ({"schedulingGates": [{"name": "x"}]}, "template.spec sets schedulingGates"),
        ({"runtimeClassName": "bare"}, "template.spec sets runtimeClassName"),
        ({"ephemeralContainers": []}, "template.spec sets ephemeralContainers"),
        ({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}, "template.spec.volumes[0] sets hostPath"),
        ({"volumes": [{"name": "v", "nfs": {}}]}, "template.spec.volumes[0] sets nfs"),
        ({"volumes": [{"name": "a"}, {"name": "v", "local": {}}]}, "template.spec.volumes[1] sets local"),
        ({"securityContext": {"sysctls": []}}, "template.spec.securityContext sets sysctls"),
        ({"securityContext": {"windowsOptions": {"hostProcess": True}}}, "sets windowsOptions"),
        ({"securityContext": {"seLinuxOptions": {}}}, "sets seLinuxOptions"),
        ({"securityContext": {"seccompProfile": {"type": "Unconfined"}}}, "seccompProfile"),
        ({"initContainers": [{"name": "i", "securityContext": {"privileged": True}}]}, "initContainers[0]"),
        ({"aFieldOfALaterKubernetes": 1}, "template.spec sets aFieldOfALaterKubernetes"),
    ],
)
def test_what_reaches_out_of_the_pod_is_refused_with_its_place(spec: dict[str, Any], words: str) -> None:
    assert words in fault_of(spec)


@pytest.mark.promise("O163")
@pytest.mark.parametrize(
    ("container", "words"),
    [
        ({"securityContext": {"privileged": True}}, "containers[0].securityContext.privileged is set"),
        ({"securityContext": {"privileged": "yes"}}, "privileged is set"),
        ({"securityContext": {"procMount": "Unmasked"}}, "sets procMount"),
        ({"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}, "capabilities adds SYS_ADMIN"),
        ({"securityContext": {"capabilities": {"add": "SYS_ADMIN"}}}, "capabilities adds ?"),
        ({"securityContext": {"capabilities": {"add": [{"a": 1}]}}}, "capabilities adds {'a': 1}"),
        ({"securityContext": {"seccompProfile": {"type": "Unconfined"}}}, "seccompProfile"),
        (
            {"ports": [{"containerPort": 1, "hostPort": 22}]},
            "containers[0].ports[0] takes a port of the node",
        ),
        ({"livenessProbe": {"httpGet": {"host": "169.254.169.254"}}}, "livenessProbe.httpGet names a host"),
        (
            {"lifecycle": {"postStart": {"tcpSocket": {"host": "x"}}}},
            "lifecycle.postStart.tcpSocket names a host",
        ),
        ({"aFieldOfALaterKubernetes": 1}, "containers[0] sets aFieldOfALaterKubernetes"),
    ],
)
def test_what_reaches_out_of_a_container_is_refused_with_its_place(
    container: dict[str, Any], words: str
) -> None:
    assert words in fault_of({}, **container)


@pytest.mark.parametrize("profile", ["unconfined", "", None, "runtime/other"])
def test_an_annotation_gives_no_other_apparmor_profile(profile: Any) -> None:
    annotations = {f"{APPARMOR}c": profile}
    template = {"metadata": {"annotations": annotations}, "spec": {"containers": CONTAINERS}}
    assert f"{APPARMOR}c is neither runtime/default nor localhost/" in first_fault(template)


@pytest.mark.parametrize("profile", ["runtime/default", "localhost/mine"])
def test_the_apparmor_profiles_of_the_baseline_are_let_through(profile: str) -> None:
    annotations = {f"{APPARMOR}c": profile}
    assert not first_fault({"metadata": {"annotations": annotations}, "spec": {"containers": CONTAINERS}})


@pytest.mark.parametrize("levels", [60, 900, 100_000])
@pytest.mark.parametrize(
    "wrap", [lambda inner: [inner], lambda inner: {"a": inner}], ids=["lists", "mappings"]
)
def test_a_template_of_very_many_levels_is_refused_with_a_sentence(
    levels: int, wrap: Callable[[Any], Any]
) -> None:
    deep: Any = 1
    for _ in range(levels):
        deep = wrap(deep)
    assert "levels deep" in fault_of({"affinity": deep})


def test_an_environment_whose_names_are_no_texts_breaks_nothing() -> None:
    for name in ({"a": 1}, ["a"]):
        template = {"spec": {"containers": [{**CONTAINERS[0], "env": [{"name": name}]}]}}
        assert job_wanted(task({"template": template}), rules())["kind"] == "Job"


def test_what_a_training_job_needs_is_let_through() -> None:
    spec = {
        "serviceAccountName": "trainer",
        "securityContext": {"runAsUser": 1000, "fsGroup": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "shm", "emptyDir": {"medium": "Memory"}},
        ],
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        "initContainers": [{"name": "fetch", "image": "f"}],
    }
    container = {
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        "env": [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
        "ports": [{"containerPort": 29500}],
        "securityContext": {"capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}},
    }
    assert fault_of(spec, **container) == ""


# Words that mean something somewhere are put wherever JSON may have a key or a text.
WORDS = sorted(
    {*POD, *CONTAINER, *VOLUMES, *CONTAINER_SECURITY, *POD_SECURITY, "metadata", "spec", "labels"}
    | {
        "annotations",
        "add",
        "type",
        "host",
        "httpGet",
        "name",
        "value",
        "limits",
        "requests",
        "containerPort",
    }
    | {f"{APPARMOR}c", "nvidia.com/gpu", "SYS_ADMIN", "CHOWN", "hostPort"}
)
TEXT = st.sampled_from(WORDS) | st.text(max_size=5)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
UNUSUAL_CONTEXT = st.fixed_dictionaries(
    {}, optional={"capabilities": st.fixed_dictionaries({"add": JSON}) | JSON}
)
UNUSUAL_ENV = st.lists(st.fixed_dictionaries({"name": JSON}, optional={"value": JSON}), max_size=3)
SOME_CONTAINER = st.dictionaries(
    st.sampled_from(sorted(CONTAINER)), JSON, max_size=4
) | st.fixed_dictionaries(
    {}, optional={"env": UNUSUAL_ENV, "securityContext": UNUSUAL_CONTEXT, "resources": JSON, "ports": JSON}
)
SOME_SPEC = st.dictionaries(st.sampled_from(sorted(POD)), JSON, max_size=4)
SOME_TEMPLATE = st.builds(
    lambda metadata, spec, containers: {"metadata": metadata, "spec": {**spec, "containers": containers}},
    st.dictionaries(st.sampled_from(["labels", "annotations"]), JSON, max_size=2),
    SOME_SPEC,
    st.lists(SOME_CONTAINER, min_size=1, max_size=2) | JSON,
)


@pytest.mark.promise("R149")
@settings(max_examples=250, deadline=None)
@given(SOME_TEMPLATE | st.dictionaries(st.sampled_from(["metadata", "spec"]), JSON), st.sampled_from([1, 2]))
def test_whatever_a_template_holds_it_becomes_a_job_or_a_sentence(
    template: dict[str, Any], workers: int
) -> None:
    with contextlib.suppress(RefusedError):
        made = job_wanted(task({"template": template, "workers": workers}), rules())
        assert (made["kind"], bool(json.dumps(made))) == ("Job", True)


@pytest.mark.promise("O163")
def test_the_policy_for_the_controllers_token_has_the_same_limits() -> None:
    text = documents("manifests/base/tasks-policies.yaml")
    named = re.search(r"capabilities\.\?add\.orValue\(\[\]\)\.all\(a, a in \[(.*?)\]", text, re.DOTALL)
    assert named is not None
    assert set(re.findall(r"'(\w+)'", named[1])) == CAPABILITIES
    assert set(re.findall(r"has\(v\.(\w+)\)", text)) == VOLUMES - {"name"}
    profiles = re.findall(r"Profile\.\?type\.orValue\('RuntimeDefault'\) in \[(.*?)\]", text)
    assert [tuple(re.findall(r"'(\w+)'", each)) for each in profiles] == [PROFILES, PROFILES]
