"""`topogate run --image IMAGE --gpus 8 --model h100 -- python train.py`: start a GPU task.

It becomes a GPUTask: ps shows it, logs reads it, stop ends it. --dry-run starts nothing and prints where it
would be placed.
"""

import argparse
import re
import secrets
import time
from typing import TYPE_CHECKING, Any, Final

from webhook.cli import session, works
from webhook.cli.terminal import complain, print_line
from webhook.cli.works import TASK, Work
from webhook.text import counted

if TYPE_CHECKING:
    from webhook.kube.client import Api
    from webhook.placement import Assignment, NoFit

_VARIABLE: Final = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*=")
_PLACEMENTS: Final = "/apis/topogate.io/v1alpha1/placements"


class _OldWorkers(argparse.Action):
    """-w, which is --watch of the other commands."""

    def __call__(
        self, parser: argparse.ArgumentParser, options: argparse.Namespace, value: Any, _: str | None = None
    ) -> None:
        """Accept it, and warn what to write instead."""
        complain("topogate run: -w is deprecated, since other commands mean --watch by it: write --workers")
        options.workers = value


def add_parser(subparsers: Any) -> None:
    """Add the command to the parser of `topogate`."""
    parser = subparsers.add_parser(
        "run",
        help="start a GPU task",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--image", metavar="IMAGE", help="the container image; without it the operator's default one sleeps")
    add("--name", help="of the task; default: made of the image's name")
    add("-g", "--gpus", metavar="NUMBER", help="GPUs of each worker (1)")
    add("-m", "--model", metavar="MODEL", help="GPU model of the operator's catalogue, as h100")
    add("-p", "--priority", metavar="TIER", help="low, medium, high, or another tier of the configuration")
    add("--workers", type=int, default=1, metavar="NUMBER", help="pods that run as one gang (1)")
    add("-w", dest="workers", type=int, action=_OldWorkers, help=argparse.SUPPRESS)
    add("--cpu", metavar="AMOUNT", help="processors of each worker, as 8")
    add("--memory", metavar="AMOUNT", help="memory of each worker, as 16Gi")
    add("-e", "--env", action="append", default=[], metavar="NAME=VALUE", help="may be given more than once")
    add("--required", metavar="LEVEL", help="all workers in one block, subblock, host or node, or wait")
    add(
        "--preferred",
        metavar="LEVEL",
        help="all workers in one such domain if it has capacity; or block,subblock",
    )
    add(
        "--retries",
        type=int,
        metavar="NUMBER",
        help="failed workers that are replaced before the task fails (6)",
    )
    add("--time", type=int, metavar="SECONDS", help="fail it after this time, which includes waiting")
    add("--keep", type=int, metavar="SECONDS", help="delete it this long after its end; default: never")
    add("-f", "--follow", action="store_true", help="show its logs until it ends; exit 0 if it succeeds")
    add("--dry-run", action="store_true", help="start nothing; show its placement, and how many gangs wait")
    add("words", nargs="*", metavar="-- COMMAND", help="what to run instead of the image's entry point")
    session.add_connection(parser)
    session.add_output(parser)


def run(options: argparse.Namespace) -> int:
    """Start it; 0, or 1 if the cluster refuses, or with --follow if it fails; 2 for wrong arguments."""
    for variable in options.env:
        if not _VARIABLE.match(variable):
            complain(f"topogate run: --env {variable!r} is not NAME=VALUE")
            return 2
    if not options.image and not options.words and options.gpus is None:
        complain("topogate run: nothing to run: pass --image IMAGE or -- COMMAND; --gpus NUMBER alone sleeps")
        return 2
    return session.guarded(options, lambda: _run(options))


def task_of(options: argparse.Namespace) -> dict[str, Any]:
    """The GPUTask that the arguments describe."""
    spec: dict[str, Any] = {"gpu-amount": options.gpus or "1", "workers": options.workers}
    fields = {
        "image": options.image,
        "gpu": options.model,
        "priority": options.priority,
        "cpu": options.cpu,
        "memory": options.memory,
        "command": options.words,
        "env": [dict(zip(("name", "value"), each.split("=", 1), strict=True)) for each in options.env],
        "backoffLimit": options.retries,
        "activeDeadlineSeconds": options.time,
        "ttlSecondsAfterFinished": options.keep,
        "topology": {
            key: value
            for key, value in (("required", options.required), ("preferred", options.preferred))
            if value
        },
    }
    spec |= {key: value for key, value in fields.items() if value not in (None, [], {}, "")}
    return {
        "apiVersion": "falldio.com/v1",
        "kind": TASK,
        "metadata": {
            "name": options.name or _name(options.image),
            "namespace": session.namespace_of(options),
        },
        "spec": spec,
    }


def _name(image: str | None) -> str:
    """A name that describes what runs, and differs from the last one."""
    last = (image or "task").rpartition("/")[2].partition("@")[0].partition(":")[0].lower()
    word = re.sub(r"[^a-z0-9]+", "-", last).strip("-")[:40]
    return f"{word if word[:1].isalpha() else 'task'}-{secrets.token_hex(2)}".replace("--", "-")


def _run(options: argparse.Namespace) -> int:
    api, body = session.connect(options, brief=True), task_of(options)
    _check(api, body, is_tried=options.dry_run)
    made = _create(api, body, is_tried=options.dry_run)
    if options.workers > 1 and not options.dry_run:
        _give_names(api, made)
    if options.output in ("json", "yaml"):
        session.show(made, options.output)
    elif not options.dry_run:
        name = made["metadata"]["name"]
        print_line(f"gputask/{name}" if options.output == "name" else f"gputask/{name} created")
    if options.dry_run:
        return 0 if options.output in ("json", "yaml") else _rehearse(api, made)
    return _follow(api, made) if options.follow else 0


def _create(api: "Api", body: dict[str, Any], *, is_tried: bool) -> dict[str, Any]:
    """The task as the API server created it, or would create it. Raises SessionError, ApiError."""
    from webhook.kube.client import ApiError

    collection = works.collection(TASK, body["metadata"]["namespace"])
    query = {"fieldValidation": "Strict", **({"dryRun": "All"} if is_tried else {})}
    try:
        made = dict(api.json("POST", collection, body=body, query=query))
    except ApiError as error:
        if error.status == 404 and "could not find the requested resource" in error.message:
            raise session.SessionError("this cluster does not serve GPUTasks: ask its operator") from None
        raise
    if "name" not in (made.get("metadata") or {}):
        raise session.SessionError(f"{api.host} did not return the created task: is it an API server?")
    return made


def _check(api: "Api", body: dict[str, Any], *, is_tried: bool) -> None:
    """Refuse what the configuration does not offer before anything is created; warn of what no node has.

    is_tried: nothing will be created, and the placement is printed anyway. Raises session.MistakeError with
    the words of admission.
    """
    spec = body["spec"]
    if not any(spec.get(key) for key in ("gpu", "priority", "topology")) and spec["gpu-amount"] == "1":
        return  # nothing that could be misspelled or too much, so the configuration's reader is not loaded
    from webhook.inquiry.task_check import check_task

    found = check_task(api, body)
    if found.refusal:
        raise session.MistakeError(found.refusal)
    if found.waits and not is_tried:
        complain(f"{body['metadata']['name']} must wait: {found.waits}")


def service_of(made: dict[str, Any]) -> dict[str, Any]:
    """The headless Service by which the workers of a task find each other; it is deleted with the task."""
    metadata = made["metadata"]
    owner = {"apiVersion": "falldio.com/v1", "kind": TASK, "name": metadata["name"], "uid": metadata["uid"]}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "ownerReferences": [owner],
        },
        "spec": {
            "clusterIP": "None",
            "selector": {"falldio.com/task": metadata["name"]},
            # Workers look for each other before any of them is ready.
            "publishNotReadyAddresses": True,
        },
    }


def _give_names(api: "Api", made: dict[str, Any]) -> None:
    """Add the workers to the cluster's DNS, with the user's own rights, since a task alone may not."""
    from webhook.kube.client import ApiError

    body = service_of(made)
    try:
        api.request("POST", f"/api/v1/namespaces/{body['metadata']['namespace']}/services", body=body)
    except ApiError as error:
        complain(f"Its workers have no names in DNS: {session.sentence_of(error)}")


def _follow(api: "Api", made: dict[str, Any]) -> int:
    from webhook.cli import task_logs

    complain("Following its logs; Ctrl-C ends this, not the task.")
    return task_logs.follow(api, Work(TASK, made), argparse.Namespace(rank=None, tail=None, container=None))


def _rehearse(api: "Api", made: dict[str, Any]) -> int:
    """Print where it would be placed: 0 if it fits now, 1 if it would wait or be refused."""
    import msgspec

    from webhook.configuration.cluster import read_configuration
    from webhook.configuration.document import ConfigurationError
    from webhook.inquiry.admission_outcome import AdmissionRules
    from webhook.inquiry.cluster_state import ClusterReading
    from webhook.inquiry.rehearsal import rehearse
    from webhook.inquiry.simulation import NotPlacedError
    from webhook.kube.client import ApiError
    from webhook.kube.objects import Metadata, PriorityClass
    from webhook.placement import PlacementError
    from webhook.tasks.desired_job import RefusedError, TaskRules, job_wanted
    from webhook.tasks.task_objects import Task

    task = msgspec.convert(made, Task)
    name = task.metadata.name
    try:
        configuration = read_configuration(api)
        policy = configuration.policy
        # Not every user may read whether the class exists, and the placement does not depend on it.
        classes = {each.priority_class_name: PriorityClass(metadata=Metadata()) for each in policy.tiers}
        job = job_wanted(task, TaskRules(policy, classes))
        cluster = ClusterReading.read(api)
    except ApiError as error:
        print_line(f"{name} would be accepted. You may not see its placement: {session.sentence_of(error)}")
        return 0
    except (RefusedError, ConfigurationError) as error:
        print_line(f"{name} would not start: {error}")
        return 1
    try:
        found = rehearse(cluster, job, configuration.settings, AdmissionRules(policy, classes))
    except (PlacementError, NotPlacedError) as error:
        print_line(f"{name} would wait: {error}")
        return 1
    status = _print_answer(name, found)
    print_line(_who_waits(cluster))
    return status


def _print_answer(name: str, found: "Assignment | NoFit") -> int:
    from webhook.placement import NoFit

    if isinstance(found, NoFit):
        print_line(f"{name} would wait: {found.sentence}")
        return 1
    print_line(f"{name} would be placed on {found.spread}:")
    for placed in found.placed[:20]:
        print_line(f"  worker {placed.member.rpartition('-')[2]}: {placed.node}")
    if len(found.placed) > 20:
        print_line(f"  ... and {counted(len(found.placed) - 20, 'more worker')}")
    return 0


def _who_waits(cluster: Any) -> str:
    """How many gangs wait, and since when."""
    from datetime import datetime

    waiting = [each for each in cluster.placements.values() if each.status.state == "Waiting"]
    since = [each.metadata.creation_timestamp or "" for each in waiting]
    ages = sorted(time.time() - datetime.fromisoformat(each).timestamp() for each in since if each)
    if not ages:
        return "No gang waits."
    median, longest = session.span(ages[len(ages) // 2]), session.span(ages[-1])
    if len(ages) == 1:
        return f"1 gang waits, for {longest}."
    gangs = counted(len(ages), "gang waits", "gangs wait")
    return f"{gangs}, half of them for more than {median}, the longest for {longest}."
