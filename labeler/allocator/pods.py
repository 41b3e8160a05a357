"""The pods of the own node, as the API server has them at the moment of asking.

Asked again for every answer: a copy that lags could hold the plan of a pod of the same name that was here
before. The field selector makes it one indexed read of the server's cache (a consistent one from Kubernetes
1.31 on), of at most as many pods as a node runs. Pages may be read from etcd, through all pods of the
cluster, so they are for nodes with very large pods alone.

It asks as its own node where it may (constrained impersonation, Kubernetes 1.36 and newer): the API server
lets a token that is bound to a pod act as the node of that pod alone, and a node list its own pods alone.
https://kep.k8s.io/5284
"""

import contextlib
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import msgspec

from labeler.allocator.masks import AFFINITY_MASK, HIERARCHY, UNKNOWN
from labeler.allocator.values import LocalContainer, LocalPod
from labeler.api import LARGEST_OBJECT, AnswerTooLargeError, ApiClient, NodeApiError
from labeler.contract import keys
from labeler.contract.quantities import QuantityError, parse

LARGEST_ANSWER: Final = 4 * 1024 * 1024
"""Bytes of one answer. A usual node's pods are 1 MB in all; beyond this they are read in pages."""

_PAGES: Final = (128, 16, 4, 1)
"""Pods of a page, the next where one is too large."""

_FORBIDDEN: Final = 403

_OVER: Final = ("Succeeded", "Failed")


class _Struct(msgspec.Struct, rename="camel"):
    """The few fields of Kubernetes' objects that matter here; all others are skipped unread."""


class _LocalResources(_Struct):
    limits: dict[str, str | int | float] | None = None


class _Variable(_Struct):
    name: str
    value: str | None = None
    value_from: Any = None


class _Variables(_Struct):
    prefix: str | None = None


class _Container(_Struct):
    name: str
    resources: _LocalResources = msgspec.field(default_factory=_LocalResources)
    env: list[_Variable] | None = None
    env_from: list[_Variables] | None = None
    restart_policy: str | None = None


class _LocalSpec(_Struct):
    containers: list[_Container] = msgspec.field(default_factory=list)
    init_containers: list[_Container] | None = None


class _LocalMetadata(_Struct):
    name: str
    namespace: str
    uid: str = ""
    annotations: dict[str, str] | None = None


class _Status(_Struct):
    phase: str | None = None
    start_time: str | None = None


class _Pod(_Struct):
    metadata: _LocalMetadata
    spec: _LocalSpec
    status: _Status = msgspec.field(default_factory=_Status)


class _ListMetadata(_Struct):
    continue_: str = msgspec.field(default="", name="continue")


class _PodList(_Struct):
    items: list[_Pod]
    metadata: _ListMetadata = msgspec.field(default_factory=_ListMetadata)


_decoder: Final = msgspec.json.Decoder(_PodList)


class NodePods:
    """The pods bound to one node."""

    def __init__(self, client: ApiClient, node: str) -> None:
        self._client = client
        self._as_node = {"Impersonate-User": f"system:node:{node}"}
        self._path = f"/api/v1/pods?fieldSelector={quote(f'spec.nodeName={node}', safe='')}"

    def now(self) -> tuple[LocalPod, ...]:
        """Every pod bound to the node, the ended ones too. Raises NodeApiError."""
        with contextlib.suppress(AnswerTooLargeError):  # whose traceback holds what was read of the answer
            return self._page("", LARGEST_ANSWER)[0]
        return self._by_pages()  # anybody's pods, which must not cost this program its memory

    def _by_pages(self) -> tuple[LocalPod, ...]:
        pods: tuple[LocalPod, ...] = ()
        rest, sizes = "", list(_PAGES)
        while True:
            most = LARGEST_OBJECT if sizes[0] == 1 else LARGEST_ANSWER
            try:
                more, rest = self._page(f"&limit={sizes[0]}&continue={quote(rest, safe='')}", most)
            except AnswerTooLargeError:
                if len(sizes) == 1:
                    raise
                del sizes[0]
                continue
            pods += more
            if not rest:
                return pods

    def _page(self, query: str, most_bytes: int) -> tuple[tuple[LocalPod, ...], str]:
        """The pods of one answer, and the token for the next page ("" for none)."""
        path = self._path + query
        answer = self._get(path, most_bytes)
        try:
            found = _decoder.decode(answer)
        except msgspec.MsgspecError as error:
            raise NodeApiError(0, f"GET {path}: the answer is no list of pods: {error}") from error
        return tuple(_pod(item) for item in found.items), found.metadata.continue_

    def _get(self, path: str, most_bytes: int) -> bytearray:
        headers = {"Accept": "application/json"}
        try:
            return self._client.call("GET", path, None, headers | self._as_node, most_bytes)
        except NodeApiError as error:
            if error.status != _FORBIDDEN or not self._as_node:
                raise
            refused = error
        try:
            answer = self._client.call("GET", path, None, headers, most_bytes)
        except NodeApiError as error:
            if error.status != _FORBIDDEN:
                raise
            raise NodeApiError(
                _FORBIDDEN,
                f"it may list no pods, neither as its node ({refused}) nor itself; Kubernetes before 1.36 "
                "wants the component allocator-before-1.36",
            ) from error
        self._as_node = {}
        return answer


def decode_pods(answer: bytes | bytearray) -> tuple[LocalPod, ...]:
    """A PodList in JSON as values. Raises msgspec.MsgspecError."""
    return tuple(_pod(item) for item in _decoder.decode(answer).items)


def _pod(item: _Pod) -> LocalPod:
    annotations = item.metadata.annotations or {}
    init = item.spec.init_containers or []
    return LocalPod(
        namespace=item.metadata.namespace,
        name=item.metadata.name,
        uid=item.metadata.uid,
        annotations={key: annotations[key] for key in keys.GAS_ANNOTATIONS if key in annotations},
        containers=tuple(_container(each) for each in item.spec.containers),
        init=tuple(_container(each) for each in init if each.restart_policy != "Always"),
        sidecars=tuple(_container(each) for each in init if each.restart_policy == "Always"),
        over=item.status.phase in _OVER,
        started=item.status.start_time is not None,
    )


def _container(item: _Container) -> LocalContainer:
    # What a ConfigMap or Secret brings overrides ours as well, unless the container's own list names it.
    hierarchy = (
        UNKNOWN if any(HIERARCHY.startswith(each.prefix or "") for each in item.env_from or ()) else None
    )
    for variable in item.env or ():  # of several with one name the last one counts
        if variable.name == HIERARCHY:
            is_made = variable.value_from is not None or "$(" in (variable.value or "")
            hierarchy = UNKNOWN if is_made else variable.value
    masked = any(variable.name == AFFINITY_MASK for variable in item.env or ())
    return LocalContainer(item.name, _counts(item.resources.limits or {}), hierarchy, masked)


def _counts(limits: Mapping[str, str | int | float]) -> dict[str, int]:
    """Limits of extended resources, which are whole numbers; the API server has seen to that."""
    found = {}
    for resource, quantity in limits.items():
        if "/" in resource:
            try:
                found[resource] = parse(quantity) // 1000
            except QuantityError:
                continue  # no container can ask for devices by such a text
    return found
