"""Failures of nodes, in the API server: one ConfigMap in topogate's namespace, which only the leader writes.

`failures` is what the next leader goes on from, as JSON; `avoided` is for people and `topogate nodes`, and
never read to decide anything. The ConfigMap is part of the installation: where it was removed, or is not
readable, all goes on without a memory over restarts, and that is told. Once it is there again, what is known
is written into it.
"""

import logging
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from webhook.kube.client import Api, ApiError
from webhook.kube.state_config_map import StateConfigMap, path_of
from webhook.kube.struct import Struct
from webhook.sweeper.decide.ledger import Failures, GangFailure
from webhook.sweeper.decide.verdicts import NodeVerdict, Verdicts

NAME: Final = "topogate-node-failures"
PATH: Final = path_of(NAME)
EVERY_SECONDS: Final = 5.0
"""It is written at most this often, whatever fails."""
AGAIN_SECONDS: Final = 60.0
"""Where it is not there, it is looked for again after this long."""

EVERYBODY: Final = "*"
"""Stands for all namespaces, as no namespace is called so."""

logger = logging.getLogger(__name__)


class AvoidedNode(Struct, frozen=True):
    """A node that is avoided, for people. by: EVERYBODY, or the namespace whose pods avoid it."""

    node: str
    by: str
    model: str
    gangs: int
    cause: str
    last: int
    until: int


class FailureLog:
    """Reads and writes the ConfigMap. Raises nothing: what could not be done is tried again."""

    def __init__(self, api: Api) -> None:
        self._map = StateConfigMap(api, PATH)
        self._written: dict[str, str] = {}
        self._at = float("-inf")
        self._said = ""
        self._is_missing = False
        self._again_at = float("-inf")
        self.loaded = False

    def load(self, now: float) -> Failures | None:
        """What is kept, None where that is no news: it is not there, or was not and is empty.

        loaded is then true, unless the API server did not answer. now: seconds from anywhere.
        """
        try:
            self._written = self._map.read()
        except ApiError as error:
            self.loaded = error.status in (403, 404)
            self._is_missing = self._is_missing or self.loaded  # no answer says nothing of that
            self._again_at = now + AGAIN_SECONDS
            self._say(f"{'not kept over restarts' if self.loaded else 'not read yet'}: {error}")
            return None
        self.loaded = True
        was_missing, self._is_missing = self._is_missing, False
        text = self._written.get("failures", "")
        return None if was_missing and not text else decoded(text)

    def save(self, failures: Failures, verdicts: Verdicts, now: float) -> bool:
        """Write what has changed; returns False if the API server has something newer, or did not answer.

        now: seconds from anywhere.
        """
        if not self._map.version:
            self.loaded = now < self._again_at
            return True  # there is nowhere to write to
        data = {"failures": encoded(failures), "avoided": _told(verdicts)}
        if data == self._written or (not self._written and not failures):
            return True
        if now - self._at < EVERY_SECONDS:
            return True
        self._at = now
        try:
            self._map.write(data)
        except ApiError as error:
            self._say(f"not written: {error}")
            if error.status == 404:
                self._map.version, self._is_missing, self._again_at = "", True, now + AGAIN_SECONDS
            if error.status == 409:
                self.loaded = False  # changed by an operator: what stands there counts
            return False
        self._written, self._said = data, ""
        return True

    def _say(self, sentence: str) -> None:
        if sentence != self._said:
            logger.warning("node_failures error=%r", sentence)
        self._said = sentence


def encoded(failures: Failures) -> str:
    """Failures as the ConfigMap keeps them."""
    return msgspec.json.encode(failures).decode()


def decoded(text: str) -> Failures:
    """Those that are kept; none of what cannot be read, which is told."""
    try:
        return msgspec.json.decode(text, type=tuple[GangFailure, ...]) if text else ()
    except msgspec.MsgspecError as error:
        logger.warning("node_failures error=%r", f"what is kept cannot be read, and is begun anew: {error}")
        return ()


def avoided(data: Mapping[str, Any]) -> list[AvoidedNode]:
    """The nodes that the ConfigMap's data say are avoided. Raises msgspec.MsgspecError."""
    text = data.get("avoided", "")
    return msgspec.json.decode(text, type=list[AvoidedNode]) if text else []


def _told(verdicts: Verdicts) -> str:
    found = [_avoided(each, EVERYBODY) for each in verdicts.for_all.values()]
    for namespace, those in sorted(verdicts.for_namespaces.items()):
        found += [_avoided(each, namespace) for name, each in those.items() if name not in verdicts.for_all]
    return msgspec.json.encode(sorted(found, key=lambda each: (each.node, each.by))).decode()


def _avoided(verdict: NodeVerdict, by: str) -> AvoidedNode:
    return AvoidedNode(
        node=verdict.node, by=by, model=verdict.model, gangs=verdict.gangs, cause=verdict.cause,
        last=verdict.at, until=verdict.until,
    )  # fmt: skip
