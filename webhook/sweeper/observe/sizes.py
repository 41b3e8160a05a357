"""How many pods a gang has, and how many are enough: by what its pods say, else its controller. Pure."""

from collections.abc import Sequence
from typing import Final

from labeler.contract import keys
from webhook.kube.objects import Pod
from webhook.sweeper.observe.membership import GangKey
from webhook.workloads import marks
from webhook.workloads.ranks import COUNT

_QUOTED: Final = 40
"""Characters of an author's text that a sentence repeats."""

_VALUES: Final = 5
"""Values that contradict each other that a sentence names."""


def size_of(key: GangKey, pods: Sequence[Pod], told: int | None, problems: list[str]) -> int | None:
    """How many pods are expected, None if nobody says. told: by the gang's controller.

    problems: gains sentences on what is not believed.
    """
    for annotation in marks.GANG_SIZE_KEYS:
        value = common_value(pods, annotation, problems)
        if value is None:
            continue
        if COUNT.fullmatch(value) and int(value) > 0:
            return int(value)
        problems.append(f"{annotation}: {value[:_QUOTED]!r} is no positive integer, so it is not believed")
    if key.kind == "Pod":
        return 1
    return told


def minimum_of(pods: Sequence[Pod], size: int | None, told: int | None, problems: list[str]) -> int | None:
    """How many pods are enough, None where all are needed; as size_of.

    No more than the size: a minimum above it would never be reached.
    """
    value = common_value(pods, keys.GANG_MIN_SIZE_ANNOTATION, problems)
    least = told
    if value is not None and COUNT.fullmatch(value) and int(value) > 0:
        least = int(value)
    elif value is not None:
        said = f"{value[:_QUOTED]!r} is no positive integer, so it is not believed"
        problems.append(f"{keys.GANG_MIN_SIZE_ANNOTATION}: {said}")
    return least if least is None or size is None else min(least, size)


def common_value(pods: Sequence[Pod], annotation: str, problems: list[str]) -> str | None:
    """What the pods say by an annotation, the first value of several as text goes; None for nothing."""
    values = sorted(
        {pod.metadata.annotations[annotation] for pod in pods if annotation in pod.metadata.annotations}
    )
    if len(values) > 1:
        said = ", ".join(value[:_QUOTED] for value in values[:_VALUES])
        more = f" and {len(values) - _VALUES} more" if len(values) > _VALUES else ""
        problems.append(f"the pods say {annotation}: {said}{more}; the first one counts")
    return values[0] if values else None
