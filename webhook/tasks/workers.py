"""What the workers of a task get: amounts, their number, and the leader's address. Pure."""

from collections.abc import Mapping
from typing import Any, Final

WORKERS_VARIABLE: Final = "TOPOGATE_WORKERS"
LEADER_VARIABLE: Final = "TOPOGATE_LEADER"

Resources = tuple[Mapping[str, str], Mapping[str, str]]
"""Requests and limits."""


def equip(spec: dict[str, Any], resources: Resources, name: str, workers: int) -> None:
    """Equip the first container of a pod. name: of the task.

    Several workers have names in the task's own subdomain. A headless Service of the task's name, which
    selects them, gives the Job's host names (task-0, task-1, ...) addresses. A single pod gets none. Values
    that the author has set remain.
    """
    first = spec["containers"][0]
    written = first.get("resources") or {}
    first["resources"] = {
        **written,
        "requests": {**(written.get("requests") or {}), **resources[0]},
        "limits": {**(written.get("limits") or {}), **resources[1]},
    }
    variables = {WORKERS_VARIABLE: str(workers)}
    if workers > 1 and not spec.get("hostname"):
        spec["subdomain"] = spec.get("subdomain") or name
        variables[LEADER_VARIABLE] = f"{name}-0.{spec['subdomain']}"
    _add_variables(first, variables)


def _add_variables(container: dict[str, Any], variables: Mapping[str, str]) -> None:
    """Add the environment variables that its author has not set."""
    env = container.get("env") or []
    known = [each.get("name") for each in env]  # written by the author, so it may be any value
    more = [{"name": key, "value": value} for key, value in variables.items() if key not in known]
    if more:
        container["env"] = [*env, *more]
