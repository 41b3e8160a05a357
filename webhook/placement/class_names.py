"""How sentences name the pods of a class: by the role that is theirs alone, else by one of them."""

import re
from collections import defaultdict
from typing import Final

from webhook.placement.model import Gang, Member, PodClass
from webhook.placement.question import Question

_WHO: Final = re.compile(r".*[a-z](?:er|or)", re.IGNORECASE)
"""Roles that say who a pod is (worker, server, executor), and so have a plural."""

MOST_ROLES: Final = 3
"""Roles of one class that are named."""


class ClassNames:
    """The classes of one gang; beside slices leaders are a class of their own, whatever they ask for."""

    def __init__(self, gang: Gang, question: Question) -> None:
        numbers: dict[PodClass, list[int]] = defaultdict(list)
        for number, pod_class in enumerate(question.classes):
            numbers[pod_class].append(number)
        known: dict[int, list[int]] = {}  # by identity: classes hash slowly
        self._question = question
        self._first: dict[int, Member] = {}
        self._roles: dict[int, dict[str, None]] = defaultdict(dict)
        for member in gang.members:
            if (own := known.get(id(member.pod_class))) is None:
                own = known[id(member.pod_class)] = numbers[member.pod_class]
            for number in self._of_member(member, own):
                self._first.setdefault(number, member)
                self._roles[number][member.role] = None
        classes: dict[str, set[int]] = defaultdict(set)
        for number, roles in self._roles.items():
            for role in roles:
                classes[role].add(number)
        self._shared = {"", *(role for role, of in classes.items() if len(of) > 1)}

    def _of_member(self, member: Member, numbers: list[int]) -> list[int]:
        """Of the classes of pods that ask for the same those that a member may be of."""
        if not self._question.unbound_slices or len(numbers) == 1:
            return numbers
        leads = member.rank is not None and member.rank < 0
        return [number for number in numbers if self._is_of_leaders(number) == leads]

    def _is_of_leaders(self, number: int) -> bool:
        """Of classes that ask for the same: whether no slice binds it, and no placed pod of its slice."""
        question = self._question
        return (
            question.unbound_slices[number] == len(question.slices) and question.confinement(number) is None
        )

    def pods(self, number: int, count: int) -> str:
        """So many pods of a class: "96 workers", "1 pod of decode", "2 pods like p-0"."""
        return f"{count} {self.noun(number, count)}"

    def noun(self, number: int, count: int) -> str:
        """The same without the number."""
        roles = list(self._roles[number])
        pods = "pod" if count == 1 else "pods"
        if len(roles) > MOST_ROLES or self._shared.intersection(roles):
            return f"{pods} like {self._first[number].shown}"
        if len(roles) > 1:
            return f"{pods} of {', '.join(roles[:-1])} and {roles[-1]}"
        role = roles[0]
        one = role.removesuffix("s")
        if not _WHO.fullmatch(one):
            return f"{pods} of {role}"
        return one if count == 1 else f"{one}s"
