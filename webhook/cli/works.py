"""GPUTasks and Jobs with GPUs under one type, for ps, logs, stop and other commands."""

import functools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from webhook.cli.session import MistakeError, SessionError, is_name, pages, sentence_of
from webhook.cli.terminal import complain

if TYPE_CHECKING:
    from webhook.kube.client import Api

TASK: Final = "GPUTask"
JOB: Final = "Job"
KINDS: Final = {
    **dict.fromkeys(("gputask", "gputasks", "task", "tasks", "gt"), TASK),
    **dict.fromkeys(("job", "jobs"), JOB),
}
_TASKS: Final = "/apis/falldio.com/v1"
_JOBS: Final = "/apis/batch/v1"
_INDEX: Final = "batch.kubernetes.io/job-completion-index"


class Work(NamedTuple):
    """A task, or a Job that does not belong to a task. item: the object as the API server has it."""

    kind: str
    item: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.item["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.item["metadata"]["namespace"])

    @property
    def spec(self) -> Mapping[str, Any]:
        return dict(self.item.get("spec") or {})

    @property
    def status(self) -> Mapping[str, Any]:
        return dict(self.item.get("status") or {})

    @property
    def path(self) -> str:
        """Its path."""
        group, plural = (_TASKS, "gputasks") if self.kind == TASK else (_JOBS, "jobs")
        return f"{group}/namespaces/{self.namespace}/{plural}/{self.name}"

    @property
    def workers(self) -> int:
        """How many pods it runs at once."""
        return int(self.spec.get("workers" if self.kind == TASK else "parallelism") or 1)

    @property
    def has_ended(self) -> bool:
        return self.state in ("Succeeded", "Failed")

    @property
    def state(self) -> str:
        """Its phase, in the words of a GPUTask's phase."""
        if self.kind == TASK:
            return str(self.status.get("phase") or "Pending")
        ended = self._conditions
        for condition, state in (("Complete", "Succeeded"), ("Failed", "Failed"), ("Suspended", "Suspended")):
            if condition in ended:
                return state
        return "Running" if self.status.get("ready") else "Waiting"

    @property
    def reason(self) -> str:
        """Why it waits or has failed, as its controller reports it; "" if it reports nothing."""
        if self.kind == TASK:
            return str(self.status.get("reason") or "")
        return str(self._conditions.get("Failed", {}).get("message") or "")

    @property
    def _conditions(self) -> Mapping[str, Mapping[str, Any]]:
        """The conditions of a Job that hold, by type."""
        found = self.status.get("conditions") or ()
        return {each["type"]: each for each in found if each.get("status") == "True"}


def collection(kind: str, namespace: str | None) -> str:
    """The path of all objects of a kind, in one namespace or in all."""
    group, plural = (_TASKS, "gputasks") if kind == TASK else (_JOBS, "jobs")
    return f"{group}/namespaces/{namespace}/{plural}" if namespace else f"{group}/{plural}"


def of(api: "Api", namespace: str | None, **query: str) -> list[Work]:
    """Every GPUTask and every other Job that asks for GPUs, oldest first. query: as labelSelector.

    If only one of the two kinds may be read, returns that one and prints a line on standard error. Raises
    ApiError.
    """
    from webhook.kube.client import ApiError

    found: list[Work] = []
    refusals: dict[str, ApiError] = {}
    for kind in (TASK, JOB):
        try:
            found += [
                Work(kind, _named(kind, item)) for item in pages(api, collection(kind, namespace), **query)
            ]
        except ApiError as error:
            if error.status == 403:
                refusals[kind] = error
            elif error.status != 404 or kind == JOB:  # 404: a cluster without GPUTasks
                raise
    if len(refusals) == 2:
        raise refusals[TASK]
    for kind, refusal in refusals.items():
        _warn(f"{kind}s are not shown: {sentence_of(refusal)}")
    shown = [work for work in found if _is_shown(work)]
    return sorted(shown, key=lambda work: (work.item["metadata"]["creationTimestamp"], work.name))


def _is_shown(work: Work) -> bool:
    """Whether it is a task, or a Job that asks for GPUs and does not belong to a task."""
    return work.kind == TASK or (not _is_of_a_task(work.item) and bool(gpus_of(work)))


def find(api: "Api", namespace: str, written: str, *, of_tasks: bool = False) -> Work:
    """A task or a Job by "NAME" or "KIND/NAME".

    of_tasks: whether it may be the Job of a task. Raises SessionError if there is none, MistakeError,
    ApiError. A user who may not read tasks still finds Jobs.
    """
    from webhook.kube.client import ApiError

    kinds, name = _parsed(written)
    refusal: ApiError | None = None
    for each in kinds:
        try:
            item = dict(api.json("GET", f"{collection(each, namespace)}/{name}"))
        except ApiError as error:
            if error.status == 403:
                refusal = refusal or error
            elif error.status != 404:
                raise
            continue
        if each == JOB and _is_of_a_task(item) and not of_tasks:
            raise SessionError(f"Job {name} belongs to a task, which recreates it: write task/{name}")
        return Work(each, item)
    if refusal is not None:
        raise refusal
    raise _not_found(api, namespace, kinds, name)


def _parsed(written: str) -> tuple[list[str], str]:
    """The kinds that "NAME" or "KIND/NAME" may refer to, and the name. Raises SessionError, MistakeError."""
    kind, _, name = written.rpartition("/")
    kinds = [KINDS[kind.lower()]] if kind.lower() in KINDS else [TASK, JOB]
    if (kind and kind.lower() not in KINDS) or not name:
        raise SessionError(f"{written!r} is neither a task nor a job; write NAME, task/NAME or job/NAME")
    if not is_name(name):
        raise MistakeError(f"{name!r} is not a name of a task or job: use a-z, 0-9, - and .")
    return kinds, name


def _not_found(api: "Api", namespace: str, kinds: list[str], name: str) -> SessionError:
    near = _near(api, namespace, name)
    hint = f"; did you mean {near}?" if near else ""
    what = "task" if kinds == [TASK] else "job" if kinds == [JOB] else "task or job"
    return SessionError(f"there is no {what} {name} in namespace {namespace}{hint}")


def pods_of(api: "Api", work: Work) -> list[dict[str, Any]]:
    """The pods of its Job by rank, the newest of a rank last. Raises ApiError."""
    selector = {"labelSelector": f"batch.kubernetes.io/job-name={work.name}"}
    items = list(pages(api, f"/api/v1/namespaces/{work.namespace}/pods", **selector))
    return sorted(items, key=lambda pod: (rank_of(pod), pod["metadata"]["creationTimestamp"]))


def rank_of(pod: Mapping[str, Any]) -> int:
    """A pod's rank, 0 where it has none."""
    metadata = pod["metadata"]
    text = (metadata.get("labels") or {}).get(_INDEX) or (metadata.get("annotations") or {}).get(_INDEX)
    return int(text) if text else 0


def newest(pods: Iterable[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """The newest pod of each rank."""
    return {rank_of(pod): pod for pod in pods}


def gpus_of(work: Work) -> int:
    """GPUs of each worker."""
    if work.kind == TASK:
        return int(work.spec.get("gpu-amount") or 1)
    return gpus_asked((work.spec.get("template") or {}).get("spec") or {})


def gpus_asked(pod: Mapping[str, Any]) -> int:
    """GPUs that the containers of a pod ask for; a card of which shares are asked counts as one."""
    return sum(
        int(amount)
        for container in pod.get("containers") or ()
        for name, amount in ((container.get("resources") or {}).get("limits") or {}).items()
        if is_gpu(name) and str(amount).isdecimal()
    )


def is_gpu(resource: str) -> bool:
    """Whether a resource is GPUs. The operator's list may differ, and not every user may read it."""
    return (
        resource.endswith(("/gpu", "/gpu.shared"))
        or resource in ("gpu.intel.com/i915", "gpu.intel.com/xe")
        or (resource.startswith("nvidia.com/mig-"))
    )


def _is_of_a_task(job: Mapping[str, Any]) -> bool:
    return any(owner.get("kind") == TASK for owner in job["metadata"].get("ownerReferences") or ())


def _named(kind: str, item: dict[str, Any]) -> dict[str, Any]:
    """An item of a list as an object by itself: the API server leaves out kind and version of items."""
    version = (_TASKS if kind == TASK else _JOBS).removeprefix("/apis/")
    return {"apiVersion": version, "kind": kind, **item}


@functools.cache
def _warn(sentence: str) -> None:
    """Print it once, even if the question is repeated."""
    complain(sentence)


def _near(api: "Api", namespace: str, name: str) -> str:
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, [work.name for work in of(api, namespace)], n=1)), "")
