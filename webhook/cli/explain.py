"""`topogate explain NAME`: what a pod, a task or a job waits for, and what would help.

Reads the cluster once and asks the placement core the same question as the sweeper does; changes nothing.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from webhook.cli import session, works
from webhook.cli.terminal import complain, say
from webhook.inquiry.explanation import ExplainError, explain
from webhook.inquiry.reading import ClusterReading
from webhook.kube.client import Api, ApiError, ConnectError
from webhook.sweeper.settings import Settings, SettingsError, load


def add_parser(subparsers: Any) -> None:
    """Add the command to the parser of `topogate`."""
    parser = subparsers.add_parser("explain", help="why a pod or a task waits, and what would help")
    parser.add_argument("what", metavar="NAME", help="a task or job, or pod/NAME")
    session.add_connection(parser)
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="the sweeper's settings, if it has a file"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the explanation; 0 if there is one, 1 if not, 2 for a wrong argument."""
    kind, _, name = arguments.what.rpartition("/")
    if (kind not in ("", "pod", "pods", "po") and kind.lower() not in works.KINDS) or not name:
        complain(
            f"topogate explain: {arguments.what!r} is no pod, task or job; write NAME, task/NAME or pod/NAME"
        )
        return 2
    try:
        settings = load(arguments.config) if arguments.config else Settings()
        api = Api.connect(
            session.kubeconfigs_of(arguments), user_agent="topogate-explain", context=arguments.context
        )
        namespace = session.namespace_of(arguments)
        about_pod = kind in ("pod", "pods", "po")
        for line in (
            _of_pod(api, namespace, name, settings)
            if about_pod
            else _of_any(api, namespace, arguments.what, settings)
        ):
            say(line)
    except (ApiError, ConnectError, ExplainError, session.SessionError) as error:
        complain(f"topogate explain: {session.sentence_of(error)}")
        return 1
    except (SettingsError, session.MistakeError) as error:
        complain(f"topogate explain: {error}")
        return 2
    return 0


def _of_pod(api: Api, namespace: str, name: str, settings: Settings) -> Iterator[str]:
    yield from explain(ClusterReading.read(api), namespace, name, settings)


def _of_any(api: Api, namespace: str, written: str, settings: Settings) -> Iterator[str]:
    """A task or a job; where there is none of that name, a pod."""
    try:
        work = works.find(api, namespace, written)
    except session.SessionError:
        if "/" in written:
            raise
        yield from _of_pod(api, namespace, written, settings)
        return
    reason = work.status.get("reason")
    yield f"{work.kind} {namespace}/{work.name} is {work.state}" + (f": {reason}" if reason else ".")
    if work.has_ended:
        return
    pods = works.newest(works.pods_of(api, work)).values()
    if not pods:
        yield from _why_no_pods(api, work)
        return
    waiting = [pod for pod in pods if not pod["spec"].get("nodeName")]
    yield f"{len(pods) - len(waiting)} of {work.workers} workers have a node."
    if waiting:
        yield from _of_pod(api, namespace, waiting[0]["metadata"]["name"], settings)


def _why_no_pods(api: Api, work: works.Work) -> Iterator[str]:
    """What the Job controller says of the pods that it could not make."""
    path = f"/api/v1/namespaces/{work.namespace}/events"
    selector = f"involvedObject.kind=Job,involvedObject.name={work.name},type=Warning"
    notes = [each.get("message", "") for each in session.pages(api, path, fieldSelector=selector)]
    yield f"It has no pods: {notes[-1]}" if notes else "It has no pods yet."
