"""Clients with the tokens of topogate's own accounts."""

from pathlib import Path
from typing import Final

from hack.local.cluster import Cluster
from webhook.kube.client import Api

SYSTEM: Final = "/api/v1/namespaces/topogate-system"

_clients: dict[tuple[Path, str], Api] = {}


def as_(cluster: Cluster, account: str) -> Api:
    """A client with a token of one of our accounts, as a thief would use it."""
    key = (cluster.folder, account)
    if key not in _clients:
        path = f"{SYSTEM}/serviceaccounts/{account}/token"
        answer = cluster.api().json("POST", path, body={"spec": {"expirationSeconds": 3600}})
        token = cluster.folder / f"stolen-{account}"
        token.touch(mode=0o600)
        token.write_text(answer["status"]["token"])
        kubeconfig = cluster.folder / f"stolen-{account}.kubeconfig"
        cluster.write_token_kubeconfig(kubeconfig, token)
        _clients[key] = Api.connect(kubeconfig, user_agent="thief")
    return _clients[key]
