"""`topogate logs NAME`: what the workers have written, each line behind its rank."""

import argparse
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from webhook.cli import session, works
from webhook.cli.terminal import complain

if TYPE_CHECKING:
    from webhook.cli.works import Work
    from webhook.kube.client import Api

POLL_SECONDS: Final = 1.0
_SILENCE_SECONDS: Final = 3600.0


def add_parser(subparsers: Any) -> None:
    """Add the command to the parser of `topogate`."""
    parser = subparsers.add_parser(
        "logs", help="what the workers of a task have written", description=__doc__
    )
    parser.add_argument("name", metavar="NAME", help="a task or job: NAME, task/NAME or job/NAME")
    parser.add_argument("-r", "--rank", type=int, help="of this worker alone")
    parser.add_argument("-f", "--follow", action="store_true", help="continue until the task ends")
    parser.add_argument("--tail", type=int, metavar="LINES", help="the last so many lines of each")
    parser.add_argument("-c", "--container", metavar="NAME", help="default: the first")
    session.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    """Print the logs; 1 if there are none to be had."""
    return session.guarded(options, lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    from webhook.kube.client import ApiError

    api = session.connect(options, brief=True)
    work = works.find(api, session.namespace_of(options), options.name)
    if options.follow:
        return follow(api, work, options)
    found = False
    for rank, pod in _chosen_pods(api, work, options.rank).items():
        if not (pod.get("status") or {}).get("containerStatuses"):
            complain(f"topogate logs: worker {rank} has not started")
            continue
        try:
            text = api.request("GET", _path(pod), query=_query(options), timeout_seconds=60)
        except ApiError as error:
            if error.status != 400:  # as of a container that has not started: others may have
                raise
            complain(f"topogate logs: worker {rank}: {session.sentence_of(error)}")
            continue
        found = True
        for line in text.decode(errors="replace").splitlines():
            print(_prefixed(rank, line, work.workers))
    return 0 if found else 1


def _chosen_pods(api: "Api", work: "Work", chosen: int | None) -> dict[int, dict[str, Any]]:
    """The newest pod of each rank, or only that of the chosen rank. Raises SessionError if there is none."""
    pods = {
        rank: pod for rank, pod in works.newest(works.pods_of(api, work)).items() if chosen in (None, rank)
    }
    if not pods:
        what = "no pods" if chosen is None else f"no worker of rank {chosen}"
        reason = work.status.get("reason")
        raise session.SessionError(f"{work.name} has {what} yet" + (f": {reason}" if reason else ""))
    return pods


def follow(api: "Api", work: "Work", options: argparse.Namespace) -> int:
    """Print lines as they come until the work has ended; 0 if it succeeded, 1 if it failed or was stopped."""
    seen: set[str] = set()
    threads: list[threading.Thread] = []
    message = ""
    fault = _Fault()
    while True:
        for rank, pod in _started_pods(api, work, options.rank):
            uid = pod["metadata"]["uid"]
            if uid not in seen:
                seen.add(uid)
                thread = threading.Thread(
                    target=_stream, args=(api, pod, rank, work, options, fault), daemon=True
                )
                thread.start()
                threads.append(thread)
        try:
            work = works.find(api, work.namespace, f"{work.kind.lower()}/{work.name}")
        except session.SessionError:
            complain(f"topogate logs: {work.name} was deleted")
            return 1
        now = _state_line(work)
        if now != message:
            message = now
            complain(now)
        if work.has_ended:
            for thread in threads:
                thread.join(5.0)
            return 0 if work.state == "Succeeded" else 1
        fault.wait(POLL_SECONDS)


def _started_pods(api: "Api", work: "Work", chosen: int | None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each rank, or only the chosen one, and its newest pod if that has started."""
    for rank, pod in works.newest(works.pods_of(api, work)).items():
        has_started = pod["status"].get("phase") in ("Running", "Succeeded", "Failed")
        if has_started and chosen in (None, rank):
            yield rank, pod


def _state_line(work: "Work") -> str:
    reason = work.status.get("reason")
    return f"{work.name}: {work.state}" + (f": {reason}" if reason else "")


class _Fault:
    """An error after which nothing can be written: the reader has closed the pipe, or the disk is full."""

    def __init__(self) -> None:
        self._there = threading.Event()
        self._error: OSError | None = None

    def note(self, error: OSError) -> None:
        """Record the error and wake the waiting thread."""
        self._error = error
        self._there.set()

    def wait(self, seconds: float) -> None:
        """Wait this long. Raises the OSError as soon as there is one."""
        self._there.wait(seconds)
        if self._error is not None:
            raise self._error


def _stream(
    api: "Api",
    pod: dict[str, Any],
    rank: int,
    work: "Work",
    options: argparse.Namespace,
    fault: _Fault,
) -> None:
    from webhook.kube.client import ApiError

    try:
        query = {**_query(options), "follow": "true"}
        for line in api.lines(_path(pod), query=query, timeout_seconds=_SILENCE_SECONDS):
            print(_prefixed(rank, line.decode(errors="replace"), work.workers), flush=True)
    except ApiError as error:
        complain(f"topogate logs: worker {rank}: {session.sentence_of(error)}")
    except OSError as error:  # of the line that was printed
        fault.note(error)


def _path(pod: dict[str, Any]) -> str:
    metadata = pod["metadata"]
    return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/log"


def _query(options: argparse.Namespace) -> dict[str, str]:
    query = {}
    if getattr(options, "tail", None) is not None:
        query["tailLines"] = str(options.tail)
    if getattr(options, "container", None):
        query["container"] = options.container
    return query


def _prefixed(rank: int, line: str, workers: int) -> str:
    return f"[{str(rank).rjust(len(str(workers - 1)))}] {line}" if workers > 1 else line
