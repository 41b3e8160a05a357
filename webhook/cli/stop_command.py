"""`topogate stop` and `topogate restart`: end, suspend, resume or restart a task or a job."""

import argparse
import time
from typing import TYPE_CHECKING, Any, Final

from webhook.cli import session, works
from webhook.cli.terminal import complain, print_line
from webhook.cli.works import TASK, Work

if TYPE_CHECKING:
    from webhook.kube.client import Api

_MERGE: Final = "application/merge-patch+json"
_END_SECONDS: Final = 60.0


def add_parser(subparsers: Any) -> None:
    """Add the two commands to the parser of `topogate`."""
    stop = subparsers.add_parser("stop", help="stop a task", description=__doc__)
    stop.add_argument(
        "--suspend", action="store_true", help="suspend it, so that restart can run it from the beginning"
    )
    restart = subparsers.add_parser("restart", help="restart a task", description=__doc__)
    for parser in (stop, restart):
        parser.add_argument("names", nargs="*", metavar="NAME", help="NAME, task/NAME or job/NAME")
        session.add_connection(parser)
        session.add_selector(parser, "tasks and jobs")
        session.add_output(parser, ("name",))


def run(options: argparse.Namespace) -> int:
    """Change each of them; 0, or 1 at the first that cannot be changed."""
    return session.guarded(options, lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    if bool(options.names) is bool(options.selector):
        raise session.MistakeError("name tasks or jobs, or choose them by -l LABELS")
    api, namespace = session.connect(options, brief=True), session.namespace_of(options)
    chosen = [works.find(api, namespace, name) for name in options.names]  # all of them, or none
    if options.selector:
        chosen = works.of(api, namespace, **session.selected(options))
        if not chosen:
            raise session.SessionError(f"no task or job in namespace {namespace} has {options.selector}")
    for work in chosen:
        done = _restart(api, work) if options.command == "restart" else _stop(api, work, options.suspend)
        print_line(f"{work.kind.lower()}/{work.name}" + ("" if options.output == "name" else f" {done}"))
    return 0


def _stop(api: "Api", work: Work, suspend: bool) -> str:
    if not suspend:
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        guard = {"preconditions": {"uid": work.item["metadata"]["uid"]}}
        api.request("DELETE", work.path, body={**body, **guard})
        return "stopped"
    if work.has_ended:
        raise session.SessionError(f"{work.name} has ended ({work.state}): there is nothing to suspend")
    _change(api, work, {"suspend": True})
    return "suspended"


def _restart(api: "Api", work: Work) -> str:
    if work.spec.get("suspend"):
        attempt = {"attempt": int(work.spec.get("attempt") or 0) + 1} if work.has_ended else {}
        _change(api, work, {"suspend": False, **attempt})
        return "resumed"
    if work.kind == TASK:
        _change(api, work, {"attempt": int(work.spec.get("attempt") or 0) + 1})
        return "restarted"
    if work.has_ended:
        raise session.SessionError(f"Job {work.name} has ended, and a Job starts only once: create it again")
    _change(api, work, {"suspend": True})
    try:
        _wait_for_the_end(api, work)
        api.request("PATCH", work.path, body={"spec": {"suspend": False}}, content_type=_MERGE)
    except BaseException:
        complain(f"Job {work.name} is suspended now; `topogate restart job/{work.name}` resumes it.")
        raise
    return "restarted"


def _wait_for_the_end(api: "Api", work: Work) -> None:
    deadline = time.monotonic() + _END_SECONDS
    while (api.json("GET", work.path).get("status") or {}).get("active"):
        if time.monotonic() > deadline:
            raise session.SessionError(f"its pods have not ended within {_END_SECONDS:.0f} s")
        time.sleep(0.5)


def _change(api: "Api", work: Work, spec: dict[str, Any]) -> None:
    """Change exactly this object, and its attempt only if no other client has: one restart is one attempt."""
    guards = {"/metadata/uid": work.item["metadata"]["uid"]}
    if "attempt" in spec:
        guards["/spec/attempt"] = work.spec.get("attempt", 0)
    body = [{"op": "test", "path": path, "value": value} for path, value in guards.items()]
    body += [{"op": "add", "path": f"/spec/{name}", "value": value} for name, value in spec.items()]
    api.request("PATCH", work.path, body=body, content_type="application/json-patch+json")
