"""Can nodes be asked for where the sweeper is told to, and does any autoscaler answer?"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Final

from labeler.contract import keys
from webhook.extensions.scale_up.attempts import SILENT_SECONDS
from webhook.extensions.scale_up.provisioning import GROUP_VERSION, REQUESTS
from webhook.inquiry.findings import SYSTEM, Finding, State, found, some
from webhook.kube.access import may
from webhook.kube.client import Api, ApiError
from webhook.sweeper.settings import SettingsError, parse

_FLAG: Final = "--scale-up="
_CONFIG: Final = "--config="
_COMPONENT: Final = "Apply an overlay with manifests/components/scale-up."
_RIGHTS: Final = (("autoscaling.x-k8s.io", "provisioningrequests"), ("", "podtemplates"))
_VERBS: Final = ("list", "watch", "create", "delete")
_GROUPS: Final = ("system:serviceaccounts", "system:authenticated")


def examine(api: Api, now: datetime) -> Iterator[Finding]:
    """Whether requests for nodes can be made where they are wanted, and whether any autoscaler hears them."""
    wanted = _class_of(api)
    if not wanted:
        yield found(State.WELL, "no nodes are asked for: scale-up is off")
        return
    try:
        items = api.json("GET", REQUESTS.path, query={"labelSelector": keys.SCALE_UP_LABEL})["items"]
    except ApiError as error:
        if error.status != 404:
            raise
        yield found(
            State.ILL,
            f"scale-up is on, and ProvisioningRequests ({GROUP_VERSION}) are not served",
            "Install the CustomResourceDefinition of the autoscaler, or leave the component scale-up out.",
        )
        return
    if missing := list(_missing_rights(api)):
        yield found(State.ILL, f"scale-up is on, and the sweeper may not {some(missing)}", _COMPONENT)
    silent = sorted(_name(each) for each in items if _is_unheard(each, now))
    if silent:
        yield found(
            State.ODD,
            f"requests for nodes of which no autoscaler has said anything: {len(silent)} ({some(silent)})",
            f"Is there one that serves the class {wanted}? The Kubernetes cluster-autoscaler needs "
            "--enable-provisioning-requests; Karpenter serves no ProvisioningRequests.",
        )
    elif not missing:
        yield found(State.WELL, f"nodes are asked for by the class {wanted}; requests now: {len(items)}")


def _class_of(api: Api) -> str:
    """The class of provisioning that the sweeper is told, by flag or else by file; "" if it is told none."""
    path = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/sweeper"
    pod = api.json("GET", path)["spec"]["template"]["spec"]
    container = pod["containers"][0]
    arguments = [str(each) for each in container.get("args") or ()]
    for each in reversed(arguments):
        if each.startswith(_FLAG):
            return each.removeprefix(_FLAG)
    for each in arguments:
        if each.startswith(_CONFIG):
            return _class_in_file(api, pod, container, each.removeprefix(_CONFIG))
    return ""


def _class_in_file(api: Api, pod: dict[str, Any], container: dict[str, Any], path: str) -> str:
    folder, _, file = path.rpartition("/")
    mounted = {each["name"] for each in container.get("volumeMounts") or () if each["mountPath"] == folder}
    for volume in pod.get("volumes") or ():
        if volume["name"] in mounted and "configMap" in volume:
            name = volume["configMap"]["name"]
            body = api.json("GET", f"/api/v1/namespaces/{SYSTEM}/configmaps/{name}")
            try:
                return parse((body.get("data") or {}).get(file, ""), path).scale_up.provisioning_class
            except SettingsError:
                return ""  # the sweeper itself does not start with it, and says so
    return ""


def _missing_rights(api: Api) -> Iterator[str]:
    for group, resource in _RIGHTS:
        for verb in _VERBS:
            attributes = {"group": group, "resource": resource, "verb": verb}
            if not may(api, f"system:serviceaccount:{SYSTEM}:sweeper", _GROUPS, attributes):
                yield f"{verb} {resource}"


def _is_unheard(request: dict[str, Any], now: datetime) -> bool:
    if (request.get("status") or {}).get("conditions"):
        return False
    created = datetime.fromisoformat(request["metadata"]["creationTimestamp"])
    return now - created >= timedelta(seconds=SILENT_SECONDS)


def _name(request: dict[str, Any]) -> str:
    return f"{request['metadata']['namespace']}/{request['metadata']['name']}"
