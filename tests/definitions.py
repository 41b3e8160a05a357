"""Kinds of other projects, served by the real API server without the controllers that belong to them."""

from functools import partial

from hack.local.cluster import Cluster
from tests.support import exists
from webhook.kube.client import Api, ApiError

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def define(cluster: Cluster, kind: str, group: str, *versions: str) -> str:
    """Install a CustomResourceDefinition that takes any object; returns its path."""
    resource = kind.lower() + "s"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{resource}.{group}",
            # Groups under x-k8s.io are the community's; this is how one says that it knows.
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": resource, "singular": kind.lower()},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": number == 0,
                    "schema": {"openAPIV3Schema": schema},
                }
                for number, version in enumerate(versions)
            ],
        },
    }
    cluster.api().request("POST", DEFINITIONS, body=definition)
    return f"{DEFINITIONS}/{resource}.{group}"


def wait_served(cluster: Cluster, version: str, kind: str) -> None:
    """Wait until objects of a new kind can be made. version: group and version, as in apiVersion."""
    path = f"/apis/{version}/{kind.lower()}s"
    cluster.wait_for(f"{kind} to be served", partial(_is_readable, cluster.api(), path))


def _is_readable(api: Api, path: str) -> bool:
    """In between the storage of a new kind is "(re)initializing"."""
    try:
        return exists(api, path)
    except ApiError as error:
        if error.status == 429:
            return False
        raise


def wait_gone(cluster: Cluster, path: str) -> None:
    """Wait until a definition, which has been deleted, is no more."""
    api = cluster.api()
    cluster.wait_for(f"the end of {path}", lambda: not exists(api, path))
