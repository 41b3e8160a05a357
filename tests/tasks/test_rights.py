"""Act by act, with tokens: a tenant's GPUTask does nothing that the tenant could not do with a Job, and the
controller's own identity touches no other Jobs than those of GPUTasks."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml

from hack.local.build import ROOT
from hack.local.cluster import Cluster
from labeler.contract import keys
from tests.support import clean, create_namespace
from tests.tasks.builders import CLASSES, policy, rules
from webhook.kube.client import JSON_PATCH, MERGE_PATCH, Api, ApiError
from webhook.tasks import task_objects
from webhook.tasks.desired_job import job_wanted
from webhook.tasks.template import APPARMOR, CAPABILITIES

TASKS_ONLY: Final = [{"apiGroups": ["falldio.com"], "resources": ["gputasks"], "verbs": ["*"]}]
JOBS: Final = {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create", "delete"]}
NO_DELETE: Final = {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create"]}
TOKENS: Final = {
    "apiGroups": [""],
    "resources": ["serviceaccounts/token"],
    "resourceNames": ["strong"],
    "verbs": ["create"],
}
GONE: Final = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "name": "gone",
    "uid": "00000000-0000-0000-0000-000000000000",
}
"""An owner that never was."""
CONTROLLER: Final = ("topogate-system", "tasks")
_numbers = itertools.count()


@dataclass(frozen=True)
class Someone:
    """The holder of the token of a ServiceAccount."""

    api: Api
    namespace: str

    def create(self, spec: dict[str, Any] | None = None) -> str:
        name = f"t{next(_numbers)}"
        body = {
            "apiVersion": task_objects.GROUP_VERSION,
            "kind": task_objects.KIND,
            "metadata": {"name": name},
            "spec": spec or {},
        }
        self.api.request("POST", task_objects.path(self.namespace), body=body)
        return name

    def change(self, name: str, body: dict[str, Any]) -> None:
        self.api.request(
            "PATCH", task_objects.path(self.namespace, name), body=body, content_type=MERGE_PATCH
        )

    def delete(self, name: str) -> None:
        self.api.request("DELETE", task_objects.path(self.namespace, name))


@pytest.fixture(scope="module")
def installed(module_cluster: Cluster) -> Iterator[Cluster]:
    """The definitions, identities, rights and policies of the base, as its manifests have them."""
    rendered = module_cluster.kubectl("kustomize", str(ROOT / "manifests" / "base")).stdout
    rules = [
        each
        for each in yaml.safe_load_all(rendered)
        if each["kind"] not in ("Deployment", "DaemonSet", "Job", "CronJob", "MutatingWebhookConfiguration")
    ]
    crds = [each for each in rules if each["kind"] in ("CustomResourceDefinition", "Namespace")]
    module_cluster.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(crds))
    module_cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=120s")
    module_cluster.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(rules))
    yield module_cluster
    clean(module_cluster)


@pytest.fixture(scope="module")
def team(installed: Cluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A namespace, from when on the policies are in force: the API server takes them up after a while."""
    namespace = create_namespace(installed)
    someone = tenant(installed, tmp_path_factory.mktemp("probe"), namespace)

    def in_force() -> bool:
        try:
            someone.create()
        except ApiError as error:
            return "jobs.batch" in str(error)
        return False

    installed.wait_for("the policies to be in force", in_force)
    return namespace


def holder(cluster: Cluster, folder: Path, namespace: str, account: str) -> Someone:
    """A client with a token of that ServiceAccount."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = folder / f"{account}.token"
    token.write_text(cluster.api().json("POST", path, body=request)["status"]["token"])
    cluster.write_token_kubeconfig(folder / f"{account}.kubeconfig", token)
    return Someone(Api.connect(folder / f"{account}.kubeconfig", user_agent=account), namespace)


def tenant(cluster: Cluster, folder: Path, namespace: str, *more: dict[str, Any]) -> Someone:
    """A new ServiceAccount with all rights over GPUTasks in its namespace, and with what else is given."""
    name, api = f"tenant-{next(_numbers)}", cluster.api()
    body = {"metadata": {"name": name}}
    api.request("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", body=body)
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    api.request("POST", f"{rbac}/roles", body={**body, "rules": [*TASKS_ONLY, *more]})
    bound = {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
    }
    api.request("POST", f"{rbac}/rolebindings", body={**body, **bound})
    return holder(cluster, folder, namespace, name)


def under(account: Any) -> dict[str, Any]:
    return {
        "template": {"spec": {"serviceAccountName": account, "containers": [{"name": "c", "image": "i"}]}}
    }


# --- tenants ----------------------------------------------------------------------------------------


@pytest.mark.promise("O158")
def test_who_may_make_jobs_may_make_change_and_delete_tasks(
    installed: Cluster, team: str, tmp_path: Path
) -> None:
    someone = tenant(installed, tmp_path, team, JOBS)
    name = someone.create()
    someone.change(name, {"spec": {"suspend": True}})
    someone.delete(name)


@pytest.mark.promise("O158")
@pytest.mark.parametrize(("role", "may_write"), [("edit", True), ("view", False)])
def test_who_may_edit_a_namespace_may_write_tasks_there(
    installed: Cluster, team: str, tmp_path: Path, role: str, may_write: bool
) -> None:
    name, api = f"{role}-{next(_numbers)}", installed.api()
    body = {"metadata": {"name": name}}
    api.request("POST", f"/api/v1/namespaces/{team}/serviceaccounts", body=body)
    bound = {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": team}],
    }
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{team}/rolebindings"
    api.request("POST", path, body={**body, **bound})
    someone = holder(installed, tmp_path, team, name)

    def may_read() -> bool:
        try:
            return "items" in someone.api.json("GET", task_objects.path(team))
        except ApiError:
            return False

    installed.wait_for("the rights to be aggregated", may_read)
    if may_write:
        someone.delete(someone.create())
    else:
        with pytest.raises(ApiError, match="cannot create resource"):
            someone.create()


@pytest.mark.promise("O158")
def test_who_may_not_make_jobs_may_not_make_tasks(installed: Cluster, team: str, tmp_path: Path) -> None:
    someone = tenant(installed, tmp_path, team)
    with pytest.raises(ApiError, match=rf"you need the right to create jobs\.batch in namespace {team}"):
        someone.create()


@pytest.mark.promise("O158")
@pytest.mark.parametrize(
    "spec",
    [
        {"attempt": 1},
        {"suspend": True},
        {"priority": "high"},
        {"activeDeadlineSeconds": 1},
        {"ttlSecondsAfterFinished": 0},
    ],
    ids=str,
)
def test_who_may_make_but_not_delete_jobs_ends_no_task_by_a_change(
    installed: Cluster, team: str, tmp_path: Path, spec: dict[str, Any]
) -> None:
    name = tenant(installed, tmp_path, team, JOBS).create()
    someone = tenant(installed, tmp_path, team, NO_DELETE)
    with pytest.raises(ApiError, match=r"may end its Job: you need the right to delete jobs\.batch"):
        someone.change(name, {"spec": spec})
    someone.change(name, {"metadata": {"labels": {"a": "b"}}})


@pytest.mark.promise("O158")
@pytest.mark.parametrize("more", [(), (NO_DELETE,)], ids=["no right to jobs", "may make jobs"])
def test_nobody_without_the_right_to_delete_jobs_has_a_task_collected_with_an_owner(
    installed: Cluster, team: str, tmp_path: Path, more: tuple[dict[str, Any], ...]
) -> None:
    name = tenant(installed, tmp_path, team, JOBS).create({"suspend": True})
    with pytest.raises(ApiError, match=r"you need the right to delete jobs\.batch"):
        tenant(installed, tmp_path, team, *more).change(name, {"metadata": {"ownerReferences": [GONE]}})


def test_garbage_collection_works_with_the_owners_of_tasks(
    installed: Cluster, team: str, tmp_path: Path
) -> None:
    """It drops an owner that is gone beside one that is there, and deletes what has none left."""
    api, maps = installed.api(), f"/api/v1/namespaces/{team}/configmaps"
    owner = api.json("POST", maps, body={"metadata": {"name": f"owner-{next(_numbers)}"}})["metadata"]
    here = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner["name"], "uid": owner["uid"]}
    someone = tenant(installed, tmp_path, team, JOBS)
    name = someone.create({"suspend": True})
    path = task_objects.path(team, name)
    someone.change(name, {"metadata": {"ownerReferences": [here, GONE]}})
    installed.wait_for(
        "the owner that is gone to be dropped",
        lambda: api.json("GET", path)["metadata"]["ownerReferences"] == [here],
        60,
    )
    api.request("DELETE", f"{maps}/{owner['name']}")

    def is_gone() -> bool:
        return name not in [
            each["metadata"]["name"] for each in api.json("GET", task_objects.path(team))["items"]
        ]

    installed.wait_for("the task to be collected", is_gone)


@pytest.mark.promise("O158")
@pytest.mark.parametrize("spec", [{"suspend": False}, {"attempt": 1}, {"priority": "high"}], ids=str)
def test_who_may_not_make_jobs_starts_no_task_of_others(
    installed: Cluster, team: str, tmp_path: Path, spec: dict[str, Any]
) -> None:
    name = tenant(installed, tmp_path, team, JOBS).create({"suspend": True})
    someone = tenant(installed, tmp_path, team)
    with pytest.raises(ApiError, match=r"you need the right to create jobs\.batch"):
        someone.change(name, {"spec": spec})
    someone.change(name, {"metadata": {"labels": {"a": "b"}}})


@pytest.mark.promise("O158")
def test_who_may_not_delete_jobs_ends_no_task(installed: Cluster, team: str, tmp_path: Path) -> None:
    someone = tenant(installed, tmp_path, team, NO_DELETE)
    name = someone.create()
    with pytest.raises(ApiError, match=r"you need the right to delete jobs\.batch"):
        someone.delete(name)


def test_the_right_to_make_jobs_elsewhere_does_not_count(
    installed: Cluster, team: str, tmp_path: Path
) -> None:
    elsewhere = create_namespace(installed)
    someone = tenant(installed, tmp_path, elsewhere, JOBS)
    with pytest.raises(ApiError) as refused:
        replace(someone, namespace=team).create()
    assert refused.value.status == 403


@pytest.mark.promise("O161")
@pytest.mark.parametrize("account", ["strong", {"a": 1}, 7], ids=str)
def test_a_task_runs_under_no_service_account_that_its_author_cannot_be(
    installed: Cluster, team: str, tmp_path: Path, account: Any
) -> None:
    someone = tenant(installed, tmp_path, team, JOBS)
    with pytest.raises(ApiError) as refused:
        someone.create(under(account))
    assert refused.value.status in (403, 422)


@pytest.mark.promise("O161")
def test_who_may_make_tokens_of_a_service_account_may_run_under_it(
    installed: Cluster, team: str, tmp_path: Path
) -> None:
    someone = tenant(installed, tmp_path, team, JOBS, TOKENS)
    name = someone.create(under("strong"))
    other = tenant(installed, tmp_path, team, JOBS)
    with pytest.raises(ApiError, match="the right to create tokens of ServiceAccount strong"):
        other.change(name, {"spec": {"attempt": 1}})


def test_an_author_does_not_change_the_account_afterwards(
    installed: Cluster, team: str, tmp_path: Path
) -> None:
    someone = tenant(installed, tmp_path, team, JOBS)
    name = someone.create(under("default"))
    with pytest.raises(ApiError, match="tokens of ServiceAccount strong"):
        someone.change(name, {"spec": {"attempt": 1, **under("strong")}})


def test_a_tenant_does_not_write_the_status(installed: Cluster, team: str, tmp_path: Path) -> None:
    someone = tenant(installed, tmp_path, team, JOBS)
    name = someone.create()
    path = task_objects.path(team, name) + "/status"
    with pytest.raises(ApiError) as refused:
        someone.api.request("PATCH", path, body={"status": {"phase": "Succeeded"}}, content_type=MERGE_PATCH)
    assert refused.value.status == 403


# --- the controller ---------------------------------------------------------------------------------


@pytest.fixture
def controller(installed: Cluster, tmp_path: Path) -> Api:
    return holder(installed, tmp_path, *CONTROLLER).api


@pytest.fixture
def job(installed: Cluster, team: str) -> dict[str, Any]:
    """The Job of a task that is there."""
    someone = Someone(installed.api(), team)
    name = someone.create()
    task = msgspec.convert(installed.api().json("GET", task_objects.path(team, name)), task_objects.Task)
    return job_wanted(task, rules(policy=policy(team), classes=CLASSES))


def test_the_controller_makes_changes_and_deletes_the_job_of_a_task(
    controller: Api, team: str, job: dict[str, Any]
) -> None:
    path = task_objects.jobs_path(team, job["metadata"]["name"])
    controller.request("POST", task_objects.jobs_path(team), body=job)
    for change in ({"suspend": True}, {"activeDeadlineSeconds": 60}, {"suspend": False}):
        controller.request("PATCH", path, body={"spec": change}, content_type=MERGE_PATCH)
    controller.request("DELETE", path)


@pytest.mark.promise("S22")
@pytest.mark.parametrize(
    "owner",
    [None, {"kind": "Job"}, {"apiVersion": "falldio.com/v2"}, {"controller": False}, {"name": "another"}],
    ids=str,
)
def test_the_controller_makes_no_job_that_is_not_a_tasks(
    controller: Api, team: str, job: dict[str, Any], owner: dict[str, Any] | None
) -> None:
    (there,) = job["metadata"]["ownerReferences"]
    job["metadata"]["ownerReferences"] = [{**there, **owner}] if owner else []
    with pytest.raises(ApiError, match="only touch Jobs that belong to a GPUTask of their name"):
        controller.request("POST", task_objects.jobs_path(team), body=job)


@pytest.mark.promise("O163")
@pytest.mark.parametrize("namespace", ["kube-system", "topogate-system"])
def test_the_controller_makes_no_job_beside_the_clusters_own_identities(
    controller: Api, job: dict[str, Any], namespace: str
) -> None:
    job["metadata"]["namespace"] = namespace
    with pytest.raises(ApiError, match="Jobs in namespaces of the cluster or of topogate"):
        controller.request("POST", task_objects.jobs_path(namespace), body=job)


def having(**container: Any) -> dict[str, Any]:
    return {"containers": [{"name": "c", "image": "i", **container}]}


def secured(**context: Any) -> dict[str, Any]:
    return having(securityContext=context)


@pytest.mark.promise("O163")
@pytest.mark.parametrize(
    "spec",
    [
        {"hostNetwork": True},
        {"hostPID": True},
        {"hostIPC": True},
        {"nodeName": "n"},
        {"schedulerName": "mine"},
        {"priorityClassName": "system-node-critical"},
        {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]},
        {"volumes": [{"name": "v", "nfs": {"server": "10.0.0.1", "path": "/"}}]},
        {
            "volumes": [
                {"name": "v", "iscsi": {"targetPortal": "10.0.0.1", "iqn": "iqn.2001-04.com.a:b", "lun": 0}}
            ]
        },
        {"volumes": [{"name": "v", "flexVolume": {"driver": "a/b"}}]},
        {"volumes": [{"name": "ok"}, {"name": "v", "hostPath": {"path": "/"}}]},
        {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}},
        {"securityContext": {"seLinuxOptions": {"type": "spc_t"}}},
        {"securityContext": {"seccompProfile": {"type": "Unconfined"}}},
        {"securityContext": {"appArmorProfile": {"type": "Unconfined"}}},
        {"securityContext": {"windowsOptions": {"runAsUserName": "a"}}},
        secured(privileged=True),
        secured(capabilities={"add": ["SYS_ADMIN"]}),
        secured(capabilities={"add": ["CHOWN", "SYS_MODULE"]}),
        secured(capabilities={"add": ["ALL"]}),
        secured(seccompProfile={"type": "Unconfined"}),
        secured(appArmorProfile={"type": "Unconfined"}),
        secured(seLinuxOptions={"type": "spc_t"}),
        having(livenessProbe={"httpGet": {"host": "169.254.169.254", "port": 80}}),
        having(lifecycle={"preStop": {"tcpSocket": {"host": "10.0.0.1", "port": 80}}}),
        having(ports=[{"containerPort": 1, "hostPort": 1}]),
        {"initContainers": secured(capabilities={"add": ["SYS_RAWIO"]})["containers"]},
        {"initContainers": [{"name": "i", "image": "i", "ports": [{"containerPort": 1, "hostPort": 1}]}]},
    ],
    ids=str,
)
def test_the_controller_makes_no_job_whose_pods_reach_out(
    controller: Api, team: str, job: dict[str, Any], spec: dict[str, Any]
) -> None:
    job["spec"]["template"]["spec"] |= spec
    # An API server that allows no privileged containers at all says so before.
    with pytest.raises(ApiError, match=r"a Job whose pods get access to their node|privileged: Forbidden"):
        controller.request("POST", task_objects.jobs_path(team), body=job)


@pytest.mark.promise("O163")
def test_the_controller_unconfines_no_pod_by_an_annotation(
    controller: Api, team: str, job: dict[str, Any]
) -> None:
    (container,) = job["spec"]["template"]["spec"]["containers"]
    job["spec"]["template"]["metadata"]["annotations"] = {f"{APPARMOR}{container['name']}": "unconfined"}
    with pytest.raises(ApiError, match=r"get access to their node by such an? (annotation|security profile)"):
        controller.request("POST", task_objects.jobs_path(team), body=job)


def test_the_controller_makes_the_job_of_a_template_with_all_that_may_be(
    installed: Cluster, controller: Api, team: str
) -> None:
    volumes: list[dict[str, Any]] = [
        {"name": "a", "configMap": {"name": "c"}},
        {"name": "b", "downwardAPI": {}},
        {"name": "c", "emptyDir": {}},
        {"name": "d", "persistentVolumeClaim": {"claimName": "c"}},
        {"name": "e", "projected": {"sources": []}},
        {"name": "f", "secret": {"secretName": "s"}},
        {"name": "g", "csi": {"driver": "d.example.com"}},
        {"name": "h"},
    ]
    security = {
        "capabilities": {"drop": ["ALL"], "add": sorted(CAPABILITIES)},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container = {
        "securityContext": security,
        "livenessProbe": {"httpGet": {"port": 80}},
        "lifecycle": {"preStop": {"sleep": {"seconds": 1}}},
    }
    pod = {**having(**container), "volumes": volumes, "securityContext": {"fsGroup": 1}}
    annotations = {f"{APPARMOR}c": "runtime/default"}
    template = {"metadata": {"annotations": annotations}, "spec": pod}
    name = Someone(installed.api(), team).create({"template": template})
    task = msgspec.convert(installed.api().json("GET", task_objects.path(team, name)), task_objects.Task)
    made = job_wanted(task, rules(policy=policy(team), classes=CLASSES))
    controller.request("POST", task_objects.jobs_path(team), body=made)


@pytest.mark.promise("S22")
@pytest.mark.parametrize("act", ["PATCH", "DELETE"])
def test_the_controller_leaves_the_jobs_of_others_alone(
    installed: Cluster, controller: Api, team: str, act: str
) -> None:
    name = f"own-{next(_numbers)}"
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    body = {"metadata": {"name": name}, "spec": {"suspend": True, "template": {"spec": pod}}}
    installed.api().request("POST", task_objects.jobs_path(team), body=body)
    path = task_objects.jobs_path(team, name)
    change: dict[str, Any] = (
        {"body": {"spec": {"suspend": False}}, "content_type": MERGE_PATCH} if act == "PATCH" else {}
    )
    with pytest.raises(ApiError, match="only touch Jobs that belong to a GPUTask"):
        controller.request(act, path, **change)


def pod_of(cluster: Cluster, namespace: str, job: str) -> str:
    """The name of a Job's pod, once there is one."""
    query = {"labelSelector": f"batch.kubernetes.io/job-name={job}"}

    def names() -> list[str]:
        pods = cluster.api().json("GET", f"/api/v1/namespaces/{namespace}/pods", query=query)["items"]
        return [each["metadata"]["name"] for each in pods]

    cluster.wait_for(f"a pod of Job {job}", lambda: bool(names()))
    return names()[0]


@pytest.mark.promise("S22")
def test_the_controller_deletes_pods_of_the_job_of_a_task(
    installed: Cluster, controller: Api, team: str, job: dict[str, Any]
) -> None:
    controller.request("POST", task_objects.jobs_path(team), body=job)
    name = pod_of(installed, team, job["metadata"]["name"])
    controller.request("DELETE", f"/api/v1/namespaces/{team}/pods/{name}")


@pytest.mark.promise("S22")
@pytest.mark.parametrize("labelled", [False, True])
def test_the_controller_deletes_no_pods_of_others(
    installed: Cluster, controller: Api, team: str, labelled: bool
) -> None:
    """Of a Job whose pods lack the labels, and of no Job with the labels."""
    name, api = f"own-{next(_numbers)}", installed.api()
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    if labelled:
        labels = {keys.TASK_LABEL: name, keys.TASK_UID_LABEL: "x"}
        body: dict[str, Any] = {"metadata": {"name": name, "labels": labels}, "spec": pod}
        api.request("POST", f"/api/v1/namespaces/{team}/pods", body=body)
    else:
        body = {"metadata": {"name": name}, "spec": {"template": {"spec": pod}}}
        api.request("POST", task_objects.jobs_path(team), body=body)
        name = pod_of(installed, team, name)
    with pytest.raises(ApiError, match="may delete pods of the Job of a GPUTask, and no others"):
        controller.request("DELETE", f"/api/v1/namespaces/{team}/pods/{name}")


@pytest.mark.promise("S22")
@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"parallelism": 0}},
        {"spec": {"backoffLimit": 0}},
        {"spec": {"ttlSecondsAfterFinished": 0}},
        {"metadata": {"labels": {keys.TASK_LABEL: "other"}}},
        {"metadata": {"ownerReferences": []}},
        {"metadata": {"finalizers": ["example.com/x"]}},
    ],
    ids=str,
)
def test_the_controller_changes_nothing_else_of_a_job(
    installed: Cluster, controller: Api, team: str, job: dict[str, Any], change: dict[str, Any]
) -> None:
    controller.request("POST", task_objects.jobs_path(team), body=job)
    path = task_objects.jobs_path(team, job["metadata"]["name"])
    with pytest.raises(ApiError, match="may change only suspend and activeDeadlineSeconds"):
        controller.request("PATCH", path, body=change, content_type=MERGE_PATCH)


@pytest.mark.parametrize(
    ("verb", "path"),
    [
        ("POST", "/api/v1/namespaces/{}/pods"),
        ("DELETE", "/api/v1/namespaces/{}/pods"),
        ("GET", "/api/v1/namespaces/{}/secrets"),
        ("GET", "/api/v1/namespaces/{}/configmaps"),
        ("GET", "/api/v1/nodes"),
        ("POST", "/apis/falldio.com/v1/namespaces/{}/gputasks"),
        ("POST", "/apis/batch/v1/namespaces/{}/cronjobs"),
        ("POST", "/apis/topogate.io/v1alpha1/namespaces/{}/placements"),
        ("POST", "/api/v1/namespaces/{}/serviceaccounts/default/token"),
    ],
)
def test_the_controller_has_no_other_rights(controller: Api, team: str, verb: str, path: str) -> None:
    body = None if verb == "GET" else {"metadata": {"name": "x"}}
    with pytest.raises(ApiError) as refused:
        controller.request(verb, path.format(team), body=body)
    assert refused.value.status == 403


def test_the_controller_does_not_change_what_a_user_wrote(
    controller: Api, installed: Cluster, team: str
) -> None:
    name = Someone(installed.api(), team).create()
    body = [{"op": "replace", "path": "/spec/attempt", "value": 9}]
    with pytest.raises(ApiError) as refused:
        controller.request("PATCH", task_objects.path(team, name), body=body, content_type=JSON_PATCH)
    assert refused.value.status == 403
