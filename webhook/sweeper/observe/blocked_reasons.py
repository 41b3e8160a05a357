"""Which gangs have controllers that cannot make pods: a quota is used up, a policy refuses them. Pure."""

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final, TypeVar

from webhook.kube.complaints import Complaint
from webhook.sweeper.observe.membership import GangKey
from webhook.text import printable

_WITHOUT_OWNER: Final = frozenset({"Pod", "Gang", "Group"})
"""Kinds of gangs whose name is none of an object."""

Key = TypeVar("Key")


DatedMessage = tuple[str, str]
"""When, and the message; ("", "") for none."""

NOTHING: Final[DatedMessage] = "", ""


class Complaints:
    """The newest complaint about each object, found without asking all of them: anybody may write Events."""

    def __init__(self, complaints: Iterable[Complaint]) -> None:
        self._by_uid: dict[tuple[str, str], DatedMessage] = {}
        self._by_kind: dict[tuple[str, str, str], DatedMessage] = {}
        by_name: dict[tuple[str, str], DatedMessage] = {}
        for each in complaints:
            namespace, about, message = each.metadata.namespace, each.involved_object, (each.at, each.message)
            _note(self._by_uid, (namespace, about.uid), message)
            _note(self._by_kind, (namespace, about.kind, about.name), message)
            _note(by_name, (namespace, about.name), message)
        self._names = sorted(by_name)
        self._newest = [[by_name[name] for name in self._names]]
        """[k][i]: the newest among 2**k names from the i-th on."""
        while (width := 1 << len(self._newest)) <= len(self._names):
            narrow = self._newest[-1]
            pairs = zip(narrow, narrow[width // 2 :], strict=False)
            self._newest.append([max(pair) for pair in pairs])

    def blocked_reason(self, key: GangKey) -> DatedMessage:
        """When one of a gang's controllers reported last that it cannot create a pod, and why.

        A set's pods are made by others that it makes: these have its name, a dash and more.
        """
        if key.kind in _WITHOUT_OWNER:
            return NOTHING
        found = [
            self._by_uid.get((key.namespace, key.id), NOTHING),
            self._by_kind.get((key.namespace, key.kind, key.name), NOTHING),
        ]
        if key.kind != "Job":  # a Job makes its pods itself: train-2 is another one than train
            found.append(self._between((key.namespace, key.name), (key.namespace, f"{key.name}\0")))
            # The next character after a dash is the dot.
            found.append(self._between((key.namespace, f"{key.name}-"), (key.namespace, f"{key.name}.")))
        at, message = max(found)
        return at, printable(message)

    def _between(self, first: tuple[str, str], end: tuple[str, str]) -> DatedMessage:
        """The newest about names from the first one on, before the end."""
        start, stop = bisect_left(self._names, first), bisect_left(self._names, end)
        if start >= stop:
            return NOTHING
        level = (stop - start).bit_length() - 1
        newest = self._newest[level]
        return max(newest[start], newest[stop - (1 << level)])


def _note(there: dict[Key, DatedMessage], key: Key, message: DatedMessage) -> None:
    there[key] = max(there.get(key, NOTHING), message)
