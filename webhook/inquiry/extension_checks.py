"""Checks of `topogate doctor` that extensions describe: is one on, can it work, what is its state?"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final

import msgspec

from webhook.configuration.cluster import read_configuration
from webhook.extensions.known import SWITCHES
from webhook.inquiry.findings import SYSTEM, Check, Finding, State, found, some
from webhook.kube.access import UserInfo, may
from webhook.kube.client import Api, ApiError
from webhook.kube.decoding import key_of
from webhook.kube.state_config_map import path_of
from webhook.sweeper.extension import (
    DoctorCheck,
    Extension,
    HookInput,
    Switch,
)
from webhook.sweeper.observe.view import Moment, View
from webhook.sweeper.observe.watches import WatchedCollection

_SWEEPER: Final = UserInfo(
    f"system:serviceaccount:{SYSTEM}:sweeper", ("system:serviceaccounts", "system:authenticated")
)


def extension_checks() -> dict[str, Check]:
    """The checks of all extensions that have one, by name."""
    extensions = ((switch, switch.load()) for switch in SWITCHES)
    return {
        extension.doctor.name: partial(_examine, switch, extension, extension.doctor)
        for switch, extension in extensions
        if extension.doctor is not None
    }


def _examine(
    switch: Switch, extension: Extension, check: DoctorCheck, api: Api, now: datetime
) -> Iterator[Finding]:
    settings = read_configuration(api).settings
    if not switch.is_on(HookInput(settings=settings)):
        yield found(State.WELL, check.off)
        return
    objects = _objects(api, check.reads)
    if objects is None:
        yield found(
            State.ILL,
            f"{check.name} is on, and {check.reads.kind}s ({check.reads.api_version}) are not served",
            f"Install the CustomResourceDefinition of {check.served_by}, or remove the "
            f"component {check.component}.",
        )
        return
    missing = [each for one in extension.collections for each in missing_rights(api, one)]
    if missing:
        remedy = f"Apply an overlay with manifests/components/{check.component}."
        yield found(State.ILL, f"{check.name} is on, and the sweeper may not {some(missing)}", remedy)
    view = View([], [], {}, {}, objects={check.reads: objects}, now=Moment(at=now))
    for line in check.examine(HookInput(view, settings, record=_record(api, extension))):
        if line.remedy:
            yield found(State.ODD, line.sentence, line.remedy)
        elif not missing:
            yield found(State.WELL, line.sentence)


def _record(api: Api, extension: Extension) -> Mapping[str, str] | None:
    """The data of an extension's record, None if it has none. Raises ApiError."""
    if extension.record is None:
        return None
    return api.json("GET", path_of(extension.record.name)).get("data") or {}


def _objects(api: Api, collection: WatchedCollection[Any]) -> dict[str, Any] | None:
    """The objects of a collection, as in a view; None where it is not served. Raises ApiError."""
    query = {"labelSelector": collection.label_selector}
    try:
        items = api.json("GET", collection.path, query=query)["items"]
    except ApiError as error:
        if error.status != 404:
            raise
        return None
    return {key_of(each): each for each in (msgspec.convert(each, collection.struct) for each in items)}


def missing_rights(api: Api, collection: WatchedCollection[Any]) -> Iterator[str]:
    """What the sweeper may not do with these objects."""
    group, _, version = collection.api_version.rpartition("/")
    resource = collection.path.rpartition("/")[2]
    for verb in ("list", "watch", *sorted(collection.verbs)):
        attributes = {"group": group, "version": version, "resource": resource, "verb": verb}
        if not may(api, _SWEEPER, attributes):
            yield f"{verb} {resource}"
