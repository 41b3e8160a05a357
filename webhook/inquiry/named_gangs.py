"""The gangs that the pods of manifests name, and objects that should not share one."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from labeler.contract import keys
from webhook.inquiry.admission_outcome import AdmissionRules
from webhook.inquiry.documents import InputError, name_of
from webhook.inquiry.manifest import owner_of
from webhook.workloads.ranks import COUNT
from webhook.workloads.shared_gangs import why_wrongly_shared


@dataclass
class _NamedGang:
    """The size that its pods state, and the objects that create them, with how many each creates."""

    size: int | None = None
    made: dict[str, int] = field(default_factory=dict)

    def fault(self) -> str:
        """Why these objects should not share it, "" if they may."""
        controllers = (name for name in self.made if not name.startswith("Pod/"))
        return why_wrongly_shared(self.size, sum(self.made.values()), controllers)


class NamedGangs:
    """Notes objects one by one, and knows the gangs of all of them."""

    def __init__(self, rules: AdmissionRules) -> None:
        """rules: turn a GPUTask into a Job."""
        self._rules = rules
        self._gangs: dict[tuple[str, str], _NamedGang] = {}

    def faults(self, document: Mapping[str, Any]) -> Iterator[str]:
        """Why an object should not share its gangs with those before it."""
        name = f"{document.get('kind')}/{name_of(document)}"
        try:
            owner = owner_of(document, "", self._rules)
            for pod, count in owner.templates() if owner is not None else ():
                self._note(name, str(_part(document, "metadata").get("namespace") or ""), pod, count)
        except InputError:
            return  # a fault of the object itself
        yield from (fault for each in self._gangs.values() if name in each.made and (fault := each.fault()))

    def _note(self, name: str, namespace: str, pod: Mapping[str, Any], count: int) -> None:
        annotations = _part(_part(pod, "metadata"), "annotations")
        gang, size = (annotations.get(key) for key in (keys.GANG_ANNOTATION, keys.GANG_SIZE_ANNOTATION))
        if not gang:
            return
        known = self._gangs.setdefault((namespace, str(gang)), _NamedGang())
        known.made[name] = known.made.get(name, 0) + count
        if COUNT.fullmatch(str(size)) and int(str(size)):
            known.size = int(str(size))


def _part(of: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = of.get(name)
    return found if isinstance(found, dict) else {}
