"""API discovery: the groups, versions and resources that a cluster serves."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from webhook.kube.client import Api, ApiError
from webhook.kube.struct import Struct

_VERBS: Final = {"list", "watch"}


class _Version(Struct, frozen=True):
    version: str = ""


class _Group(Struct, frozen=True):
    name: str = ""
    versions: list[_Version] = msgspec.field(default_factory=list)


class _Groups(Struct, frozen=True):
    groups: list[_Group] = msgspec.field(default_factory=list)


class ServedResource(Struct, frozen=True):
    """A collection of objects of one kind."""

    name: str = ""
    kind: str = ""
    namespaced: bool = True
    verbs: list[str] = msgspec.field(default_factory=list)


class _ResourceList(Struct, frozen=True):
    resources: list[ServedResource] = msgspec.field(default_factory=list)


def served(api: Api, wanted: Mapping[tuple[str, str], Iterable[str]]) -> dict[tuple[str, str], str]:
    """(group, resource) -> the first wanted version that can be watched; absent if there is none.

    Raises ApiError if discovery fails, DecodeError.
    """
    groups = msgspec.json.decode(api.request("GET", "/apis"), type=_Groups)
    versions = {group.name: {each.version for each in group.versions} for group in groups.groups}
    resources: dict[str, set[str]] = {}
    found: dict[tuple[str, str], str] = {}
    for (group, resource), ours in wanted.items():
        for version in ours:
            if version not in versions.get(group, ()):
                continue
            path = f"/apis/{group}/{version}"
            if path not in resources:
                resources[path] = _watchable(api, path)
            if resource in resources[path]:
                found[group, resource] = version
                break
    return found


def resources_by_kind(api: Api, path: str, timeout_seconds: float = 10.0) -> dict[str, ServedResource]:
    """What one API version ("/apis/apps/v1") serves, without subresources; nothing if it is not served.

    Raises ApiError if discovery fails, DecodeError.
    """
    return {each.kind: each for each in _resources(api, path, timeout_seconds) if "/" not in each.name}


def versions_of(api: Api, group: str, timeout_seconds: float = 10.0) -> list[str]:
    """The API versions ("apps/v1") of a group that are served; none if the group is not.

    Raises ApiError if discovery fails, DecodeError.
    """
    try:
        body = api.request("GET", f"/apis/{group}", timeout_seconds=timeout_seconds)
    except ApiError as error:
        if error.status == 404:
            return []
        raise
    return [f"{group}/{each.version}" for each in msgspec.json.decode(body, type=_Group).versions]


def _watchable(api: Api, path: str) -> set[str]:
    return {each.name for each in _resources(api, path) if set(each.verbs) >= _VERBS}


def _resources(api: Api, path: str, timeout_seconds: float = 10.0) -> list[ServedResource]:
    try:
        body = api.request("GET", path, timeout_seconds=timeout_seconds)
    except ApiError as error:
        if error.status == 404:
            return []  # not served, or removed since the groups were listed
        raise
    return msgspec.json.decode(body, type=_ResourceList).resources
