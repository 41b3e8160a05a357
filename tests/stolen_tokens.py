"""Clients with the tokens of topogate's own accounts."""

from pathlib import Path
from typing import Final

from hack.local.cluster import Cluster
from webhook.kube.client import Api

SYSTEM: Final = "/api/v1/namespaces/topogate-system"

_clients: dict[tuple[Path, str], Api] = {}
"""By cluster and uid of the ServiceAccount."""


def as_(cluster: Cluster, account: str) -> Api:
    """A client with a token of one of our accounts, as a thief would use it."""
    return of_account(cluster, "topogate-system", account)


def of_account(cluster: Cluster, namespace: str, account: str) -> Api:
    """A client with a token of a ServiceAccount.

    A token ends with its ServiceAccount, which each installation of a cluster creates again.
    """
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}"
    key = (cluster.folder, cluster.api().json("GET", path)["metadata"]["uid"])
    if key not in _clients:
        answer = cluster.api().json("POST", f"{path}/token", body={"spec": {"expirationSeconds": 3600}})
        token = cluster.folder / f"stolen-{namespace}-{account}"
        token.touch(mode=0o600)
        token.write_text(answer["status"]["token"])
        kubeconfig = cluster.folder / f"stolen-{namespace}-{account}.kubeconfig"
        cluster.write_token_kubeconfig(kubeconfig, token)
        _clients[key] = Api.connect(kubeconfig, user_agent="thief")
    return _clients[key]
