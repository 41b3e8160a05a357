"""`topogate ps`: tasks and jobs with GPUs, where they run, or why they wait."""

import argparse
import time
from typing import TYPE_CHECKING, Any, Final

from webhook.cli import session, works
from webhook.cli.terminal import complain, table
from webhook.cli.works import JOB, Work

if TYPE_CHECKING:
    from webhook.kube.client import Api

_PLACEMENTS: Final = "/apis/topogate.io/v1alpha1"


def add_parser(subparsers: Any) -> None:
    """Add the command to the parser of `topogate`."""
    parser = subparsers.add_parser("ps", help="tasks and jobs with GPUs", description=__doc__)
    parser.add_argument("name", nargs="*", metavar="NAME", help="these alone: NAME, task/NAME or job/NAME")
    parser.add_argument("-a", "--all", action="store_true", help="also those that have ended")
    parser.add_argument("-w", "--watch", action="store_true", help="again whenever something changes")
    session.add_connection(parser, everywhere=True)
    session.add_selector(parser, "tasks and jobs")
    session.add_output(parser)


def run(options: argparse.Namespace) -> int:
    """Print the table; 0, or 1 if the cluster refuses or a name does not exist."""
    return session.guarded(options, lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    api = session.connect(options, brief=True)
    namespace = None if options.all_namespaces else session.namespace_of(options)
    shown: object = None
    while True:
        found = works.of(api, namespace, **session.selected(options))
        chosen = _chosen(found, options)
        # Ages change all the time; only other objects, or other versions of them, are news.
        seen = [(work.namespace, work.name, work.item["metadata"]["resourceVersion"]) for work in chosen]
        if seen != shown and (text := _text(api, chosen, options, namespace)):
            print(text, flush=True)
        shown = seen
        if not options.watch:
            return 0
        time.sleep(session.WATCH_SECONDS)


def _chosen(found: list[Work], options: argparse.Namespace) -> list[Work]:
    """The works that the options name; without names all that have not ended, or all. Raises SessionError."""
    if not options.name:
        return found if options.all else [work for work in found if not work.has_ended]
    chosen = [work for work in found if _names(work) & set(options.name)]
    missing = set(options.name) - {name for work in chosen for name in _names(work)}
    if missing and not options.watch:
        raise session.SessionError(f"there is no task or job {', '.join(sorted(missing))}")
    return chosen


def _names(work: Work) -> set[str]:
    """The forms in which a user may write it; see works.find."""
    kinds = [written for written, kind in works.KINDS.items() if kind == work.kind]
    return {work.name, *(f"{kind}/{work.name}" for kind in kinds)}


def _text(api: "Api", chosen: list[Work], options: argparse.Namespace, namespace: str | None) -> str:
    if options.output in ("json", "yaml"):
        session.show_list([work.item for work in chosen], options.output)
        return ""
    if options.output == "name":
        return "\n".join(f"{work.kind.lower()}/{work.name}" for work in chosen)
    if not chosen:
        if namespace:
            session.check_namespace(api, namespace)
        where = f"namespace {namespace}" if namespace else "any namespace"
        complain(f"There is no task or job with GPUs in {where}; -a shows ended ones.")
        return ""
    reasons = _reasons(api, namespace) if any(work.kind == JOB for work in chosen) else {}
    return _table(chosen, reasons, wide=options.output == "wide", everywhere=namespace is None)


def _table(chosen: list[Work], reasons: dict[tuple[str, str], str], *, wide: bool, everywhere: bool) -> str:
    """The table of these works. everywhere: with their namespaces."""
    heading = ["NAME", "GPUS", "MODEL", "PRIORITY", "STATE", "NODE", "AGE", "REASON"]
    rows = [[*(["NAMESPACE"] if everywhere else []), *heading, *(["KIND", "CARDS"] if wide else [])]]
    for work in chosen:
        row = [work.namespace] if everywhere else []
        rows.append(
            [*row, *_row(work, reasons), *([work.kind, str(work.status.get("cards") or "-")] if wide else [])]
        )
    return table(rows, is_full_width=wide)


def _row(work: Work, reasons: dict[tuple[str, str], str]) -> list[str]:
    pod = (work.spec.get("template") or {}).get("spec") or {}
    priority = work.spec.get("priority") or pod.get("priorityClassName") or "-"
    reason = str(work.status.get("reason") or "")
    if work.kind == JOB and work.state == "Waiting":
        reason = reasons.get((work.namespace, work.name), "")
    created = work.item["metadata"]["creationTimestamp"]
    node = str(work.status.get("node") or "-")
    return [
        work.name,
        _gpus(work),
        work.spec.get("gpu") or "-",
        priority,
        work.state,
        node,
        session.age(created),
        reason,
    ]


def _gpus(work: Work) -> str:
    """GPUs of its single worker, or "4x8": 4 workers with 8 GPUs each."""
    return str(works.gpus_of(work)) if work.workers == 1 else f"{work.workers}x{works.gpus_of(work)}"


def _reasons(api: "Api", namespace: str | None) -> dict[tuple[str, str], str]:
    """Why gangs wait, by namespace and the name of their Job; empty where that may not be read."""
    from webhook.kube.client import ApiError

    path = f"{_PLACEMENTS}/namespaces/{namespace}/placements" if namespace else f"{_PLACEMENTS}/placements"
    try:
        return {
            (each["metadata"]["namespace"], each["spec"]["gang"].removeprefix("Job/")): each["status"][
                "reason"
            ]
            for each in session.pages(api, path)
            if each.get("spec", {}).get("gang", "").startswith("Job/")
            and each.get("status", {}).get("reason")
        }
    except ApiError:
        return {}
