"""`topogate explain NAME`: what a pod, a task, a job or a gang waits for, and what would help.

Reads the cluster once and runs the next pass of the sweeper on it; changes nothing.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from webhook.cli import session, works
from webhook.cli.terminal import print_line
from webhook.configuration.settings import Settings
from webhook.inquiry.cluster_state import ClusterReading
from webhook.inquiry.explanation import ExplainError, explain
from webhook.kube.client import Api, ApiError
from webhook.kube.objects import Pod
from webhook.sweeper.observe.gangs import key_of
from webhook.sweeper.observe.plans import is_gated
from webhook.text import printable

_PODS: Final = ("pod", "pods", "po")


@dataclass(frozen=True)
class _Cluster:
    """A namespace of a cluster. options: with --config, or without for the cluster's own."""

    api: Api
    namespace: str
    options: argparse.Namespace

    @cached_property
    def settings(self) -> Settings | None:
        """The sweeper's settings, None if they may not be read; the defaults where there are none."""
        try:
            return session.configuration_of(self.options, self.api).settings
        except ApiError as error:
            return Settings() if error.status == 404 else None

    def explain(self, reading: ClusterReading, pod: str) -> Iterator[str]:
        """The explanation of a pod."""
        yield from explain(reading, self.namespace, pod, self.settings or Settings())
        if self.settings is None:
            yield "The configuration cannot be read, so the defaults count here: see --config."


def add_parser(subparsers: Any) -> None:
    """Add the command to the parser of `topogate`."""
    parser = subparsers.add_parser("explain", help="why a pod or a gang waits, and what would help")
    parser.add_argument(
        "what", metavar="NAME", help="a task or job, pod/NAME, or a gang as `topogate gangs` prints it"
    )
    session.add_connection(parser)
    session.add_configuration(parser)
    session.add_output(parser, session.DOCUMENTS)


def run(arguments: argparse.Namespace) -> int:
    """Print the explanation; 0 if there is one, 1 if not, 2 for a wrong argument."""
    return session.guarded(arguments, lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> int:
    kind, name = _split(arguments.what)
    if not name or ("/" in name and kind != "gang"):  # an annotation names that as its author likes
        raise session.MistakeError(
            f"{arguments.what!r} is not a pod, task, job or gang: use NAME, task/NAME, pod/NAME, or the name "
            "of a gang as `topogate gangs` prints it"
        )
    cluster = _Cluster(session.connect(arguments), session.namespace_of(arguments), arguments)
    if kind in _PODS:
        lines = _of_pod(cluster, name)
    elif kind and kind not in works.KINDS:
        lines = _of_gang(cluster, arguments.what)
    else:
        lines = _of_any(cluster, arguments.what)
    try:
        _show(lines, arguments)
    except ExplainError as error:
        raise session.SessionError(str(error)) from None
    return 0


def _split(written: str) -> tuple[str, str]:
    """The kind in lower case, "" without one, and the name, which may have slashes."""
    kind, slash, name = written.partition("/")
    return (kind.lower(), name) if slash else ("", written)


def _show(lines: Iterator[str], arguments: argparse.Namespace) -> None:
    if arguments.output is not None:
        session.show({"about": arguments.what, "sentences": list(lines)}, arguments.output)
        return
    for line in lines:
        print_line(line)


def _of_pod(cluster: _Cluster, name: str) -> Iterator[str]:
    yield from cluster.explain(ClusterReading.read(cluster.api), name)


def _of_gang(cluster: _Cluster, written: str) -> Iterator[str]:
    """A gang by its kind and name; of its pods, the first that waits."""
    reading = ClusterReading.read(cluster.api)
    settings = cluster.settings or Settings()

    def is_of_gang(pod: Pod) -> bool:
        key = key_of(pod, settings.owner_rules)
        return key.namespace == cluster.namespace and (key.kind.lower(), key.name) == _split(written)

    pods = [pod for pod in reading.pods if is_of_gang(pod)]
    if not pods:
        raise ExplainError(
            f"there is no gang {printable(written)} in namespace {cluster.namespace}: `topogate gangs` "
            "lists them"
        )
    # Of pods that are being deleted, there is nothing to explain but that.
    pods = [pod for pod in pods if not pod.metadata.deletion_timestamp] or pods
    pod = next((each for each in pods if is_gated(each, settings.gate_prefix)), pods[0])
    yield from cluster.explain(reading, pod.metadata.name)


def _of_any(cluster: _Cluster, written: str) -> Iterator[str]:
    """A task or a job; if there is none of that name, a pod or a gang."""
    api, namespace = cluster.api, cluster.namespace
    try:
        work = works.find(api, namespace, written, of_tasks=True)
    except session.SessionError as error:
        yield from _without_work(cluster, written, error)
        return
    yield f"{work.kind} {namespace}/{work.name} is {work.state}{f': {work.reason}' if work.reason else '.'}"
    if work.has_ended:
        return
    pods = works.newest(works.pods_of(api, work)).values()
    if not pods:
        yield from _why_no_pods(api, work)
        return
    waiting = [pod for pod in pods if not pod["spec"].get("nodeName")]
    yield f"{len(pods) - len(waiting)} of {work.workers} workers have a node."
    if waiting:
        pod = min(waiting, key=lambda each: "deletionTimestamp" in each["metadata"])
        yield from _of_pod(cluster, pod["metadata"]["name"])


def _without_work(cluster: _Cluster, written: str, missing: session.SessionError) -> Iterator[str]:
    """A pod or gang, where no task or Job has the name. Raises `missing` without one: it suggests names."""
    kind, _ = _split(written)
    if works.KINDS.get(kind) == works.TASK:
        raise missing
    # A gang's kind may be a Job that is not Kubernetes' own.
    explain_other = _of_gang if kind else _of_pod
    passed_over = (ExplainError, ApiError) if kind else (ExplainError,)
    try:
        yield from explain_other(cluster, written)
    except passed_over:
        raise missing from None


def _why_no_pods(api: Api, work: works.Work) -> Iterator[str]:
    """What the Job controller reports about the pods that it could not create."""
    path = f"/api/v1/namespaces/{work.namespace}/events"
    selector = f"involvedObject.kind=Job,involvedObject.name={work.name},type=Warning"
    notes = [each.get("message", "") for each in session.pages(api, path, fieldSelector=selector)]
    yield f"It has no pods: {notes[-1]}" if notes else "It has no pods yet."
