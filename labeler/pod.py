"""What a program of the node finds in the pod that it runs in: its identity's files and the API server."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class UsageError(Exception):
    """The command line or the environment is incomplete."""


def server_of_this_pod(environment: Mapping[str, str]) -> str:
    """The API server's URL from a pod's environment. Raises UsageError outside of a pod."""
    host = environment.get("KUBERNETES_SERVICE_HOST")
    if not host:
        raise UsageError(
            "KUBERNETES_SERVICE_HOST is not set, so this is no pod: give --server and --token-file"
        )
    port = environment.get("KUBERNETES_SERVICE_PORT", "443")
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
