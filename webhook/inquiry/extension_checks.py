"""Checks of `topogate doctor` that extensions describe: is one on, can it work, what is its state?"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final

import msgspec

from webhook.extensions.known import SWITCHES
from webhook.inquiry.findings import SYSTEM, Check, Finding, State, found, some
from webhook.kube.access import may
from webhook.kube.client import Api, ApiError
from webhook.kube.state_config_map import path_of
from webhook.sweeper.extension import (
    DoctorCheck,
    DoctorInput,
    Extension,
    Switch,
    SwitchInput,
    WatchedCollection,
)
from webhook.sweeper.settings import FLAGS, Settings, SettingsError, parse, with_flags

_CONFIG: Final = "--config="
_GROUPS: Final = ("system:serviceaccounts", "system:authenticated")


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
    settings = settings_of_sweeper(api)
    if not switch.is_on(SwitchInput(settings)):
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
    for line in check.examine(DoctorInput(settings, objects, now, _record(api, extension))):
        if line.remedy:
            yield found(State.ODD, line.sentence, line.remedy)
        elif not missing:
            yield found(State.WELL, line.sentence)


def _record(api: Api, extension: Extension) -> Mapping[str, str] | None:
    """The data of an extension's record, None if it has none. Raises ApiError."""
    if extension.record is None:
        return None
    return api.json("GET", path_of(extension.record.name)).get("data") or {}


def _objects(api: Api, collection: WatchedCollection[Any]) -> list[Any] | None:
    """The objects of a collection, None where it is not served. Raises ApiError."""
    query = {"labelSelector": collection.label_selector}
    try:
        items = api.json("GET", collection.path, query=query)["items"]
    except ApiError as error:
        if error.status != 404:
            raise
        return None
    return [msgspec.convert(each, collection.struct) for each in items]


def missing_rights(api: Api, collection: WatchedCollection[Any]) -> Iterator[str]:
    """What the sweeper may not do with these objects."""
    group, _, version = collection.api_version.rpartition("/")
    resource = collection.path.rpartition("/")[2]
    for verb in ("list", "watch", *sorted(collection.verbs)):
        attributes = {"group": group, "version": version, "resource": resource, "verb": verb}
        if not may(api, f"system:serviceaccount:{SYSTEM}:sweeper", _GROUPS, attributes):
            yield f"{verb} {resource}"


# --- the sweeper's settings ---------------------------------------------------------------------------


def settings_of_sweeper(api: Api) -> Settings:
    """The sweeper's settings: those of its file, and those of its one-word flags. Raises ApiError.

    Settings with which it does not start are its own to report: here they are ignored.
    """
    path = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/sweeper"
    pod = api.json("GET", path)["spec"]["template"]["spec"]
    container = pod["containers"][0]
    arguments = [str(each) for each in container.get("args") or ()]
    settings = Settings()
    for each in arguments:
        if each.startswith(_CONFIG):
            settings = _in_file(api, pod, container, each.removeprefix(_CONFIG))
    for each in arguments:
        flag, _, value = each.removeprefix("--").partition("=")
        name = flag.replace("-", "_")
        if each.startswith("--") and name in FLAGS:
            settings = _with_flag(settings, name, value)
    return settings


def _with_flag(settings: Settings, name: str, text: str) -> Settings:
    try:
        return with_flags(settings, {name: int(text) if text.isdecimal() else text})
    except SettingsError:
        return settings


def _in_file(api: Api, pod: Mapping[str, Any], container: Mapping[str, Any], path: str) -> Settings:
    """The settings of a file that is a key of a ConfigMap, else the defaults."""
    folder, _, file = path.rpartition("/")
    mounted = {each["name"] for each in container.get("volumeMounts") or () if each["mountPath"] == folder}
    for volume in pod.get("volumes") or ():
        if volume["name"] in mounted and "configMap" in volume:
            name = volume["configMap"]["name"]
            body = api.json("GET", f"/api/v1/namespaces/{SYSTEM}/configmaps/{name}")
            try:
                return parse((body.get("data") or {}).get(file, ""), path)
            except SettingsError:
                return Settings()
    return Settings()
