"""What the workers of a task are given: amounts, their number, and the leader's address. Pure."""

from collections.abc import Mapping
from typing import Any, Final

WORKERS_VARIABLE: Final = "TOPOGATE_WORKERS"
LEADER_VARIABLE: Final = "TOPOGATE_LEADER"

Resources = tuple[Mapping[str, str], Mapping[str, str]]
"""Requests and limits."""


def equip(spec: dict[str, Any], resources: Resources, name: str, workers: int) -> None:
    """Equip the first container of a pod. name: of the task.

    Several workers have names in the task's own subdomain, which the Job's host names (task-0, task-1, ...)
    make addresses of as soon as a headless Service of the task's name selects them; a pod alone gets none.
    What the author has set stays.
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
    known = [each.get("name") for each in env]  # of what the author wrote, which may be no text
    more = [{"name": key, "value": value} for key, value in variables.items() if key not in known]
    if more:
        container["env"] = [*env, *more]
