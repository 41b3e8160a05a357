"""Credentials from a program on the user's machine (credential plugins of client.authentication.k8s.io).

The plugin runs when the connection is made, shortly before its credential expires, and after a refusal. A
certificate from it is used for as long as the process lives.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

VERSIONS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
TIMEOUT_SECONDS: Final = 60.0
"""The time limit of a plugin that cannot ask a person."""
_EARLY_SECONDS: Final = 10.0
_CLUSTER_KEYS: Final = (
    "server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data", "proxy-url",
)  # fmt: skip
_EXTENSION: Final = "client.authentication.k8s.io/exec"


def _command_of(spec: Mapping[str, Any]) -> list[str]:
    """The command and its arguments. Raises ValueError."""
    if not isinstance(spec, Mapping) or not isinstance(spec.get("command"), str):
        raise ValueError("exec: it names no command")
    if spec.get("apiVersion") not in VERSIONS:
        raise ValueError(
            f"exec: apiVersion {spec.get('apiVersion')} is not supported, only {', '.join(VERSIONS)}"
        )
    words = spec.get("args") or []
    if not isinstance(words, list):
        raise ValueError("exec: its args are not a list")
    return [str(spec["command"]), *map(str, words)]


def _variables_of(spec: Mapping[str, Any]) -> dict[str, str]:
    """The additional environment variables of the command. Raises ValueError."""
    variables = spec.get("env") or []
    if not isinstance(variables, list) or not all(
        isinstance(each, Mapping) and {"name", "value"} <= each.keys() for each in variables
    ):
        raise ValueError("exec: its env is not a list of names and values")
    return {str(each["name"]): str(each["value"]) for each in variables}


class CredentialPlugin:
    """The credential of one user. Thread-safe."""

    def __init__(
        self,
        spec: Mapping[str, Any],
        cluster: Mapping[str, Any],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """spec: the `exec` of a user in a kubeconfig. cluster: the user's cluster there.

        clock: Unix time in seconds. Raises ValueError if `exec` is incomplete.
        """
        self._words = _command_of(spec)
        self._variables = _variables_of(spec)
        self._spec = spec
        self._cluster = cluster
        self._clock = clock
        self._lock = threading.Lock()
        self._status: dict[str, Any] | None = None

    def header(self) -> str:
        """The value of an Authorization header, "" if the plugin gives certificates. Raises ValueError."""
        with self._lock:
            token = self._current().get("token")
            return f"Bearer {token}" if token else ""

    def renew(self, refused: str) -> bool:
        """Run the plugin again after a refusal; returns whether the credential has changed."""
        with self._lock:
            if self._status is not None and refused == f"Bearer {self._status.get('token')}":
                self._status = None
            return f"Bearer {self._current().get('token')}" != refused

    def certificate(self) -> tuple[str, str] | None:
        """Certificate and key (PEM), None if the plugin returns none. Raises ValueError."""
        with self._lock:
            status = self._current()
        if not status.get("clientCertificateData"):
            return None
        if not status.get("clientKeyData"):
            raise ValueError(f"exec: {self._words[0]} returns a certificate without its key")
        return str(status["clientCertificateData"]), str(status["clientKeyData"])

    def _current(self) -> dict[str, Any]:
        if self._status is None or self._has_expired(self._status):
            self._status = self._ask()
        return self._status

    def _has_expired(self, status: dict[str, Any]) -> bool:
        written = status.get("expirationTimestamp")
        if not written:
            return False
        try:
            ends = datetime.fromisoformat(str(written)).timestamp()
        except ValueError:
            raise ValueError(f"exec: {self._words[0]} gives {written!r} as the time of expiry") from None
        return self._clock() >= ends - _EARLY_SECONDS

    def _ask(self) -> dict[str, Any]:
        mode = self._spec.get("interactiveMode") or "IfAvailable"
        has_person = mode != "Never" and sys.stdin is not None and sys.stdin.isatty()
        if mode == "Always" and not has_person:
            raise ValueError(f"exec: {self._words[0]} must ask a person, and there is no terminal")
        try:
            done = subprocess.run(
                self._words,
                stdin=None if has_person else subprocess.DEVNULL,
                stdout=subprocess.PIPE,  # stderr is left to the person at the terminal
                env=self._environment(has_person),
                timeout=None if has_person else TIMEOUT_SECONDS,
                check=False,
            )
        except OSError:
            hint = str(self._spec.get("installHint") or "install it, or correct PATH").strip()
            raise ValueError(f"exec: {self._words[0]} cannot be run: {hint}") from None
        except subprocess.TimeoutExpired:
            raise ValueError(f"exec: {self._words[0]} took longer than {TIMEOUT_SECONDS:.0f} s") from None
        if done.returncode:
            raise ValueError(f"exec: {self._words[0]} ended with status {done.returncode}")
        return self._status_of(done.stdout)

    def _status_of(self, output: bytes) -> dict[str, Any]:
        try:
            answer = json.loads(output)
        except ValueError as error:
            raise ValueError(f"exec: {self._words[0]} does not return JSON: {error}") from error
        is_ours = isinstance(answer, dict) and answer.get("kind") == "ExecCredential"
        if not is_ours or answer.get("apiVersion") != self._spec["apiVersion"]:
            raise ValueError(
                f"exec: {self._words[0]} does not return an ExecCredential of {self._spec['apiVersion']}"
            )
        status = answer.get("status")
        if not isinstance(status, dict) or not (status.get("token") or status.get("clientCertificateData")):
            raise ValueError(f"exec: {self._words[0]} returns neither token nor certificate")
        return status

    def _environment(self, has_person: bool) -> dict[str, str]:
        asked: dict[str, Any] = {"interactive": has_person}
        if self._spec.get("provideClusterInfo"):
            asked["cluster"] = self._cluster_info()
        info = {"apiVersion": self._spec["apiVersion"], "kind": "ExecCredential", "spec": asked}
        return {**os.environ, **self._variables, "KUBERNETES_EXEC_INFO": json.dumps(info)}

    def _cluster_info(self) -> dict[str, Any]:
        info = {key: self._cluster[key] for key in _CLUSTER_KEYS if self._cluster.get(key)}
        extensions = self._cluster.get("extensions")
        for extension in extensions if isinstance(extensions, list) else ():
            if isinstance(extension, Mapping) and extension.get("name") == _EXTENSION:
                info["config"] = extension.get("extension")
        return info
