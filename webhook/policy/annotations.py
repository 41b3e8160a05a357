"""Faults of the annotations by which a pod asks for its gang, its topology and its GPUs. Pure.

Admission warns of these faults, the sweeper reports them to the gang's owner, the task controller refuses a
GPUTask for them, and `topogate lint`, `simulate` and `run` report them before anything is created.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import pairwise
from typing import Final

from labeler.contract import keys
from webhook.durations import seconds_of
from webhook.text import counted, quote, sentence_list

_KNOWN: Final = frozenset(
    {
        *keys.REQUEST_ANNOTATIONS,
        keys.INJECT_ANNOTATION,
        keys.MOVABLE_ANNOTATION,
        keys.MOVABLE_AFTER_ANNOTATION,
    }
)
"""Annotations under our own prefix that pods may have."""
_MOST_UNKNOWN: Final = 4
"""How many unknown keys of one pod are named."""
_LONGEST_KEY: Final = 45
"""How many characters of an unknown key are shown."""
_POSITIVE: Final = re.compile(r"[1-9][0-9]{0,8}")
_MOST_LEVELS: Final = 8
"""How many levels of one annotation are checked."""
LEVEL_KEYS: Final = frozenset(
    ("node", keys.HOSTNAME_LABEL, *(key for x in keys.TOPOLOGY_FAMILIES for key in x))
)
"""Names that the sweeper accepts as a level besides the levels' names."""


def faults(annotations: Mapping[str, str], levels: Sequence[str]) -> Iterator[str]:
    """Faults of annotations under our own prefix; levels: the policy's."""
    if not any(key.startswith(keys.TOPOGATE_PREFIX) for key in annotations):
        return
    yield from _inject(annotations)
    yield from _gang(annotations)
    yield from _topology(annotations, levels)
    yield from _slices(annotations, levels)
    yield from _spread(annotations, levels)
    yield from _movable(annotations)
    yield from _unknown(annotations)


def size_faults(annotations: Mapping[str, str], made: int) -> Iterator[str]:
    """Sizes that contradict how many pods a controller creates at once; a named gang may have others."""
    if keys.GANG_ANNOTATION in annotations:
        return
    size, least = (
        int(text) if _POSITIVE.fullmatch(text := annotations.get(key, "")) else None
        for key in (keys.GANG_SIZE_ANNOTATION, keys.GANG_MIN_SIZE_ANNOTATION)
    )
    if size is not None and size != made:
        yield f"{keys.GANG_SIZE_ANNOTATION} {size}, but {_pods(made)}"
    if least is not None and least > made:
        yield f"{keys.GANG_MIN_SIZE_ANNOTATION} {least}, but {_pods(made)}"


def slice_faults(annotations: Mapping[str, str], made: int) -> Iterator[str]:
    """Slices that do not divide the pods of a gang with only one template."""
    size = annotations.get(keys.SLICE_SIZE_ANNOTATION, "").partition(",")[0]
    if keys.GANG_SIZE_ANNOTATION not in annotations and _POSITIVE.fullmatch(size) and made % int(size):
        pods = counted(made, "pod does", "pods do")
        yield f"{keys.SLICE_SIZE_ANNOTATION} {size}: {pods} not divide into slices of {size}"


def _pods(made: int) -> str:
    return counted(made, "pod is made", "pods are made")


def misplaced(labels: Mapping[str, str]) -> Iterator[str]:
    """Requests that are written as labels, where nothing reads them."""
    for key in sorted(_KNOWN.intersection(labels)):
        yield f"label {key} has no effect: write it as an annotation"


def _inject(annotations: Mapping[str, str]) -> Iterator[str]:
    value = annotations.get(keys.INJECT_ANNOTATION)
    if value not in (None, "true", keys.INJECT_NO):
        yield f'{keys.INJECT_ANNOTATION}: {quote(value)} has no effect; to opt out write "{keys.INJECT_NO}"'


def movable_after(annotations: Mapping[str, str]) -> float | None:
    """After how many seconds since its start a pod's gang may be moved; None if it may not be.

    A gang whose annotations cannot be read is not moved.
    """
    if annotations.get(keys.MOVABLE_ANNOTATION) != "true":
        return None
    try:
        return seconds_of(annotations.get(keys.MOVABLE_AFTER_ANNOTATION, "0s"))
    except ValueError:
        return None


def _movable(annotations: Mapping[str, str]) -> Iterator[str]:
    movable = annotations.get(keys.MOVABLE_ANNOTATION)
    after = annotations.get(keys.MOVABLE_AFTER_ANNOTATION)
    if movable not in (None, "true", "false"):
        yield f'{keys.MOVABLE_ANNOTATION}: {quote(movable)} has no effect; write "true" or "false"'
    if after is None:
        return
    if movable is None:
        yield f'{keys.MOVABLE_AFTER_ANNOTATION} has no effect without {keys.MOVABLE_ANNOTATION}: "true"'
    try:
        seconds_of(after)
    except ValueError:
        yield (
            f"{keys.MOVABLE_AFTER_ANNOTATION}: {quote(after)} is not a duration, as 30m or 1h30m, so its "
            "gang is not moved"
        )


def _gang(annotations: Mapping[str, str]) -> Iterator[str]:
    for key in (keys.GANG_SIZE_ANNOTATION, keys.GANG_MIN_SIZE_ANNOTATION):
        size = annotations.get(key)
        if size is not None and not _POSITIVE.fullmatch(size):
            yield f"{key}: {quote(size)} is not a positive whole number"
    least, most = (
        annotations.get(key, "") for key in (keys.GANG_MIN_SIZE_ANNOTATION, keys.GANG_SIZE_ANNOTATION)
    )
    if _POSITIVE.fullmatch(least) and _POSITIVE.fullmatch(most) and int(least) > int(most):
        yield f"{keys.GANG_MIN_SIZE_ANNOTATION} {least} is more than {keys.GANG_SIZE_ANNOTATION} {most}"
    yield from _gang_name(annotations)


def _gang_name(annotations: Mapping[str, str]) -> Iterator[str]:
    """Pods without a common controller name their gang and its size."""
    name = annotations.get(keys.GANG_ANNOTATION)
    if name == "":
        yield f"{keys.GANG_ANNOTATION} is empty: name the gang"
    elif name is not None and keys.GANG_SIZE_ANNOTATION not in annotations:
        yield f"{keys.GANG_ANNOTATION} needs {keys.GANG_SIZE_ANNOTATION}: how many pods belong together"


def _topology(annotations: Mapping[str, str], levels: Sequence[str]) -> Iterator[str]:
    level = annotations.get(keys.REQUIRED_TOPOLOGY_ANNOTATION)
    if level is not None:
        yield from _level(keys.REQUIRED_TOPOLOGY_ANNOTATION, level, levels)
    yield from _preferred(annotations, levels)
    several = annotations.get(keys.SLICE_TOPOLOGY_ANNOTATION)
    for level in several.split(",", _MOST_LEVELS) if several is not None else ():
        yield from _level(keys.SLICE_TOPOLOGY_ANNOTATION, level, levels)


def _preferred(annotations: Mapping[str, str], levels: Sequence[str]) -> Iterator[str]:
    """Levels of which one domain gets the pods if possible: coarsest first, below the required one."""
    key = keys.PREFERRED_TOPOLOGY_ANNOTATION
    value = annotations.get(key)
    if value is None:
        return
    names = value.split(",", _MOST_LEVELS)
    for name in names:
        yield from _level(key, name, levels)
    if len(set(names)) < len(names):
        yield f"{key} {quote(value)} names a level twice"
    numbers = [levels.index(name) for name in names if name in levels]
    if numbers != sorted(numbers):
        yield f"{key} {quote(value)}: write the coarsest level first"
    top = annotations.get(keys.REQUIRED_TOPOLOGY_ANNOTATION)
    if top in levels and any(number <= levels.index(top) for number in numbers):
        yield f"{key} {levels[min(numbers)]} has no effect: it is not below the required {top}"


def _level(key: str, level: str, levels: Sequence[str]) -> Iterator[str]:
    if level not in levels and level not in LEVEL_KEYS:
        yield f"{key}: no level {quote(level)}; known: {sentence_list((*levels, 'node'))}"


def _slices(annotations: Mapping[str, str], levels: Sequence[str]) -> Iterator[str]:
    """Runs of consecutive ranks, each in one domain of a level: as many sizes as levels, coarsest first."""
    named = annotations.get(keys.SLICE_TOPOLOGY_ANNOTATION)
    sizes = annotations.get(keys.SLICE_SIZE_ANNOTATION)
    if named is not None and sizes is None:
        yield f"{keys.SLICE_TOPOLOGY_ANNOTATION} needs {keys.SLICE_SIZE_ANNOTATION}: the pods of a slice"
    if sizes is None:
        return
    if named is None:
        yield f"{keys.SLICE_SIZE_ANNOTATION} needs {keys.SLICE_TOPOLOGY_ANNOTATION}: the level of a slice"
    each = sizes.split(",", _MOST_LEVELS)
    wrong = [size for size in each if not _POSITIVE.fullmatch(size)]
    if wrong:
        yield f"{keys.SLICE_SIZE_ANNOTATION}: {quote(wrong[0])} is not a positive whole number"
        return
    if named is not None and named.count(",") != sizes.count(","):
        both = f"{keys.SLICE_TOPOLOGY_ANNOTATION} and {keys.SLICE_SIZE_ANNOTATION}"
        yield f"{both} need one size for each level"
    yield from _slice_sizes(annotations, each)
    top, level = annotations.get(keys.REQUIRED_TOPOLOGY_ANNOTATION), (named or "").partition(",")[0]
    if level in levels and top in levels and levels.index(level) < levels.index(top):
        yield f"{keys.SLICE_TOPOLOGY_ANNOTATION} {level} lies above {keys.REQUIRED_TOPOLOGY_ANNOTATION} {top}"


def _slice_sizes(annotations: Mapping[str, str], sizes: Sequence[str]) -> Iterator[str]:
    """Each size is a multiple of the next, and the gang's size one of the first. sizes: whole numbers."""
    if any(int(larger) % int(size) or larger == size for larger, size in pairwise(sizes)):
        yield f"{keys.SLICE_SIZE_ANNOTATION} {','.join(sizes)}: each size must be a multiple of the next"
    gang, size = annotations.get(keys.GANG_SIZE_ANNOTATION, ""), sizes[0]
    if _POSITIVE.fullmatch(gang) and int(gang) % int(size):
        yield f"{keys.GANG_SIZE_ANNOTATION} {gang} is not a multiple of {keys.SLICE_SIZE_ANNOTATION} {size}"


def _spread(annotations: Mapping[str, str], levels: Sequence[str]) -> Iterator[str]:
    """Pods spread evenly over the domains of a level, or at most so many in each."""
    key = keys.SPREAD_TOPOLOGY_ANNOTATION
    value = annotations.get(key)
    if value is None:
        return
    level, colon, most = value.partition(":")
    yield from _level(key, level, levels)
    if colon and not _POSITIVE.fullmatch(most):
        yield f"{key}: after the colon {quote(most)} is not a positive whole number"
    if keys.SLICE_TOPOLOGY_ANNOTATION in annotations:
        yield f"{key} excludes {keys.SLICE_TOPOLOGY_ANNOTATION}"
    top = annotations.get(keys.REQUIRED_TOPOLOGY_ANNOTATION)
    if level in levels and top in levels and levels.index(level) <= levels.index(top):
        yield f"{key} {level} is not below {keys.REQUIRED_TOPOLOGY_ANNOTATION} {top}"


def _unknown(annotations: Mapping[str, str]) -> Iterator[str]:
    """Unknown keys under our prefix: most are misspelled."""
    ours = keys.TOPOGATE_PREFIX
    names = [each.removeprefix(ours) for each in sorted(_KNOWN)]
    found = sorted(key for key in annotations if key.startswith(ours) and key not in _KNOWN)
    for key in found[:_MOST_UNKNOWN]:
        near = get_close_matches(key.removeprefix(ours)[:_LONGEST_KEY], names, n=1)
        hint = f"did you mean {ours}{near[0]}?" if near else "topogate knows no such annotation"
        yield f"{quote(key, _LONGEST_KEY)} has no effect; {hint}"
