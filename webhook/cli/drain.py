"""`topogate drain`: release, or delete, every pod that waits for topogate, before it is uninstalled.

Without --yes it only prints what it would do. The guards allow only the sweeper to remove a gate, so the
command acts as the sweeper's ServiceAccount: its user needs the right to impersonate it.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from labeler.contract import keys
from webhook.cli import session
from webhook.cli.terminal import complain, print_line
from webhook.inquiry.cluster_state import read_all
from webhook.kube.client import JSON_PATCH, Api, ApiError
from webhook.kube.discovery import served
from webhook.kube.objects import Pod
from webhook.kube.paths import pod_path
from webhook.sweeper.apply.patches import ungate_patch
from webhook.sweeper.observe.plans import is_gated
from webhook.text import counted
from webhook.workloads.builtin import Job, job_size
from webhook.workloads.native_gangs import GROUP, VERSIONS
from webhook.workloads.pod_group_names import bind_group_body, bind_group_of

SWEEPER: Final = "system:serviceaccount:topogate-system:sweeper"
GATES: Final = {
    "MutatingWebhookConfiguration topogate": "mutatingwebhookconfigurations/topogate",
    "MutatingAdmissionPolicy topogate-gate": "mutatingadmissionpolicies/topogate-gate",
}
"""What gates new pods, and its path below admissionregistration.k8s.io."""
_PARALLEL: Final = 8
_MOST_ROUNDS: Final = 20


def add_parser(subparsers: Any) -> None:
    """Add the command to the parser of `topogate`."""
    parser = subparsers.add_parser(
        "drain",
        help="release or delete every pod that waits for topogate, before it is uninstalled",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--release", action="store_true", help="kube-scheduler then chooses their nodes")
    what.add_argument("--delete", action="store_true", help="their controllers may recreate them")
    parser.add_argument("--yes", action="store_true", help="do it; without it, only print what would be done")
    session.add_connection(parser, everywhere=True, is_everywhere=True)
    session.add_selector(parser, "pods")
    parser.add_argument(
        "--gate", default=keys.GATE_PREFIX, metavar="PREFIX", help="of the gates (default: %(default)s)"
    )
    parser.add_argument(
        "--sweeper", default=SWEEPER, metavar="USER", help="in whose name (default: %(default)s)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Drain; 0 if no pod waits any more (or without --yes), 1 if one still waits or could not be drained."""
    return session.guarded(arguments, lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> int:
    api = session.connect(arguments)
    drain = _Drain(api, arguments)
    for each in _still_gating(api):
        complain(f"topogate drain: {each} exists: new pods are gated again; delete it first")
    for name in drain.making_gated():
        complain(f"topogate drain: Job {name} has the gate in its template: its new pods are gated again")
    return drain.drain() if arguments.yes else drain.rehearse()


class _Drain:
    """One run of the command."""

    def __init__(self, api: Api, arguments: argparse.Namespace) -> None:
        self._api = api
        self._as_sweeper = api.acting_as(arguments.sweeper)
        self._prefix: str = arguments.gate
        self._releases: bool = arguments.release
        self._of_namespace: str = (
            f"/namespaces/{session.namespace(arguments.namespace)}"
            if arguments.namespace and not arguments.all_namespaces
            else ""
        )
        self._query = session.selected(arguments)

    def making_gated(self) -> Iterator[str]:
        """The unfinished Jobs whose own template has our gate, as the Job of a GPUTask has."""
        try:
            jobs = list(read_all(self._api, f"/apis/batch/v1{self._of_namespace}/jobs", Job))
        except ApiError as error:
            if error.status != 403:
                raise
            return  # draining does not need the right to read Jobs
        for job in jobs:
            gates = job.spec.template.spec.scheduling_gates
            if any(gate.name.startswith(self._prefix) for gate in gates) and job_size(job):
                yield f"{job.metadata.namespace}/{job.metadata.name}"

    def rehearse(self) -> int:
        """Print what would be done."""
        count = 0
        for pod in self._gated():
            count += 1
            others = [
                gate.name for gate in pod.spec.scheduling_gates if not gate.name.startswith(self._prefix)
            ]
            keeps = others and self._releases
            still = f"; other scheduling gates remain: {', '.join(others)}" if keeps else ""
            print_line(f"{_name(pod)}: would be {self._word}{still}")
        print_line(f"{counted(count, 'pod')} would be {self._word}. Nothing was done; add --yes to do it.")
        return 0

    def drain(self) -> int:
        """Drain in rounds, since controllers may create pods meanwhile."""
        done = 0
        for _ in range(_MOST_ROUNDS):
            waiting = list(self._gated())
            with ThreadPoolExecutor(_PARALLEL) as pool:
                unbindable = self._create_groups(waiting, pool) if self._releases else {}
                known = [unbindable.get(_group(pod), "") for pod in waiting]
                problems = list(pool.map(self._drain, waiting, known))
            for pod, problem in zip(waiting, problems, strict=True):
                if problem:
                    complain(f"topogate drain: {_name(pod)}: {problem}")
            done += problems.count("")
            if "" not in problems:
                break
        left = sum(1 for _ in self._gated())
        print_line(f"{counted(done, 'pod')} {self._word}, {left} still wait.")
        return 1 if left else 0

    @property
    def _word(self) -> str:
        return "released" if self._releases else "deleted"

    def _gated(self) -> Iterator[Pod]:
        pods = read_all(self._api, f"/api/v1{self._of_namespace}/pods", Pod, **self._query)
        return (pod for pod in pods if is_gated(pod, self._prefix) and not pod.metadata.deletion_timestamp)

    def _drain(self, pod: Pod, problem: str) -> str:
        """Release or delete one pod, unless a problem is known; returns why that failed, "" if it did not."""
        if problem:
            return problem
        try:
            if self._releases:
                self._release(pod)
            else:
                self._delete(pod)
        except ApiError as error:
            return "" if error.status == 404 else str(error)
        return ""

    def _create_groups(self, pods: Sequence[Pod], pool: ThreadPoolExecutor) -> Mapping[str, str]:
        """Create the PodGroups that pods name (binding.mode: podgroup).

        kube-scheduler binds no pod whose PodGroup is missing, and a sweeper creates it only with a plan.
        These bind each pod by itself. Returns why a PodGroup could not be created, by "namespace/name".
        """
        groups: dict[str, list[Pod]] = {}
        for pod in pods:
            if name := _group(pod):
                groups.setdefault(name, []).append(pod)
        if not groups:
            return {}
        version = served(self._api, {(GROUP, "podgroups"): VERSIONS}).get((GROUP, "podgroups"))
        if version is None:
            return {}  # nor does kube-scheduler know PodGroups then
        problems = pool.map(lambda members: self._create_group(version, members), groups.values())
        return {name: problem for name, problem in zip(groups, problems, strict=True) if problem}

    def _create_group(self, version: str, pods: Sequence[Pod]) -> str:
        """Create the PodGroup of these pods if it is missing; returns why that failed, "" if it did not."""
        namespace, name = pods[0].metadata.namespace, bind_group_of(pods[0])
        owners = {owner.uid: owner for pod in pods if (owner := pod.metadata.controller) is not None}
        references = [
            {"apiVersion": each.api_version, "kind": each.kind, "name": each.name, "uid": uid}
            for uid, each in owners.items()
        ]
        body = bind_group_body(namespace, name, references, pods[0].spec.priority_class_name)
        path = f"/apis/{GROUP}/{version}/namespaces/{namespace}/podgroups"
        try:
            self._request("POST", path, body)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                return (
                    f"not released: kube-scheduler would wait for PodGroup {name}, which is missing: {error}"
                )
        return ""

    def _release(self, pod: Pod) -> None:
        self._request("PATCH", pod_path(pod), ungate_patch(pod, self._prefix), JSON_PATCH)

    def _request(self, method: str, path: str, body: object, content_type: str = "application/json") -> None:
        """Send a request as the sweeper, or if its account has no rights any more, as the user.

        Raises ApiError.
        """
        try:
            self._as_sweeper.request(method, path, body=body, content_type=content_type)
        except ApiError as error:
            if error.status != 403:
                raise
            try:
                self._api.request(method, path, body=body, content_type=content_type)
            except ApiError as second:
                if second.reason == "AlreadyExists":
                    raise
                raise error from None  # it names the missing right

    def _delete(self, pod: Pod) -> None:
        conditions = {"uid": pod.metadata.uid}
        self._api.request(
            "DELETE", pod_path(pod), body={"kind": "DeleteOptions", "preconditions": conditions}
        )


def _still_gating(api: Api) -> Iterator[str]:
    for name, path in GATES.items():
        try:
            api.request("GET", f"/apis/admissionregistration.k8s.io/v1/{path}")
        except ApiError as error:
            if error.status != 404:
                raise
        else:
            yield name


def _group(pod: Pod) -> str:
    """ "namespace/name" of the PodGroup that topogate's admission gave a pod, "" if it has none."""
    name = bind_group_of(pod)
    return f"{pod.metadata.namespace}/{name}" if name else ""


def _name(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"
