"""What the programs in the cluster are configured with, and since when the sweeper's leader leads."""

from collections.abc import Mapping
from typing import Any, Final

from webhook.inquiry.findings import SYSTEM
from webhook.kube.client import Api, ApiError
from webhook.kube.times import since_1970
from webhook.policy.file import parse_policy
from webhook.policy.values import Policy
from webhook.sweeper.settings import FLAGS, Settings, SettingsError, parse, with_flags

_POLICY: Final = f"/api/v1/namespaces/{SYSTEM}/configmaps/topogate-policy"
_LEASE: Final = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/topogate-sweeper"
_CONFIG: Final = "--config="


def policy_of(api: Api) -> Policy:
    """The policy in force. Raises ApiError, PolicyError."""
    text = (api.json("GET", _POLICY).get("data") or {}).get("policy.yaml", "")
    return parse_policy(text, "the ConfigMap topogate-policy")


def leads_since(api: Api) -> float | None:
    """Since when the sweeper's leader leads, in seconds since 1970; None without one. Raises ApiError."""
    return since_1970((api.json("GET", _LEASE).get("spec") or {}).get("acquireTime"))


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


def settings_or_defaults(api: Api) -> Settings:
    """The sweeper's settings, the defaults where they cannot be read."""
    try:
        return settings_of_sweeper(api)
    except ApiError:
        return Settings()


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
