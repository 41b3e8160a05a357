"""The machine's cards, and the rights of an allocator on it, as its manifests give them."""

from pathlib import Path
from typing import Any, Final

from hack.local.build import ROOT
from hack.local.cluster import Cluster
from tests.allocator.machine import NODE, MachineCard
from webhook.kube.client import Api, ApiError

CARDS: Final = tuple(MachineCard(number, tiles=2, bus=0x20 - number) for number in range(4))
"""Level Zero counts them backwards: by bus, not by number."""
SHARES: Final = 6
NAMESPACE: Final = "allocating"


def prepare(cluster: Cluster, token_file: Path) -> None:
    """The allocator's own rights, and a token of a pod of its on the node; nobody else may touch the pods."""
    for program in ("kwok", "kube-controller-manager", "kube-scheduler"):
        cluster.stop(program)
    for file in ("allocator.yaml", "policy.yaml"):
        cluster.kubectl("apply", "-f", str(ROOT / "manifests" / "components" / "allocator" / file))
    api = cluster.api()
    for namespace in (NAMESPACE, "topogate-allocator"):
        account = {"metadata": {"name": "default"}}
        _ensure(api, "/api/v1/namespaces", {"metadata": {"name": namespace}})
        _ensure(api, f"/api/v1/namespaces/{namespace}/serviceaccounts", account)
    pods = "/api/v1/namespaces/topogate-allocator/pods"
    spec = {
        "serviceAccountName": "allocator",
        "nodeName": NODE,
        "containers": [{"name": "c", "image": "none"}],
    }
    _ensure(api, pods, {"metadata": {"name": "allocator"}, "spec": spec})
    bound = api.json("GET", f"{pods}/allocator")["metadata"]
    reference = {"kind": "Pod", "apiVersion": "v1", "name": bound["name"], "uid": bound["uid"]}
    answer = api.json(
        "POST",
        "/api/v1/namespaces/topogate-allocator/serviceaccounts/allocator/token",
        body={"spec": {"expirationSeconds": 7200, "boundObjectRef": reference}},
    )
    token_file.write_text(answer["status"]["token"])


def _ensure(api: Api, path: str, body: dict[str, Any]) -> None:
    try:
        api.request("POST", path, body=body)
    except ApiError as error:
        if error.status != 409:
            raise
