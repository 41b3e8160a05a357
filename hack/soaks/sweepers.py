"""The sweepers of a soak: replicas with short times, so that what takes patience happens within minutes.

`python -m hack.soaks.sweepers ARGUMENTS` is the sweeper with the settings of the environment's SOAK_SETTINGS
(JSON, by their names in Settings) over those of its configuration, which has no keys for some.
"""

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

import yaml

from hack.local.controlplane import free_port
from hack.local.install import SYSTEM, Installation
from hack.local.kubelet import Program
from webhook.configuration import cluster
from webhook.configuration.settings import Settings
from webhook.configuration.store import ConfigurationStore
from webhook.kube.client import MERGE_PATCH, Api
from webhook.sweeper.main import main

SETTINGS: Final[dict[str, float]] = {
    "settle_seconds": 0.5,
    "patience_seconds": 4,
    "interval_seconds": 2,
    "bind_seconds": 12,
    "not_ready_seconds": 4,
    "rollback_seconds": 15,
    "reserve_seconds": 3,
    "reserve_hold_seconds": 6,
    "reserve_share": 0.5,
    "abandon_seconds": 20,
    "broken_seconds": 3,
}
_ENVIRONMENT: Final = "SOAK_SETTINGS"
_DEFECT: Final = re.compile(r"^\S+ ERROR webhook\.(?:sweeper|extensions)\S* \w+_failed\b.*", re.MULTILINE)
"""A line of a log: the sweeper has gone on without a step, an extension or a gang."""


def configure(api: Api, sections: Mapping[str, Mapping[str, Any]]) -> None:
    """Set keys of sections of the configuration, before the programs that read it are started."""
    configuration = yaml.safe_load(api.json("GET", cluster.path_of())["data"][cluster.KEY])
    for section, given in sections.items():
        configuration[section] = configuration.get(section, {}) | given
    body = {"data": {cluster.KEY: yaml.safe_dump(configuration)}}
    api.request("PATCH", cluster.path_of(), body=body, content_type=MERGE_PATCH)


def start_sweepers(
    installation: Installation, count: int = 1, settings: Mapping[str, float] = SETTINGS
) -> list[Program]:
    """Sweepers with short times, under the identity of the installed one; the caller stops them."""
    first = installation.program_of(SYSTEM, {"app.kubernetes.io/component": "sweeper"})
    command = [sys.executable, "-m", "hack.soaks.sweepers", *first.command[1:]]
    environment = first.environment | {_ENVIRONMENT: json.dumps(dict(settings))}
    programs = []
    for number in range(1, count + 1):
        log = installation.cluster.log(f"sweeper-{number}")
        program = replace(first, command=command, environment=environment, log=log)
        program.start("--metrics-address", "127.0.0.1", "--metrics-port", str(free_port()))
        programs.append(program)
    return programs


def defects(sweepers: Iterable[Program]) -> list[str]:
    """The defects that sweepers have logged, as sentences."""
    return [
        f"{program.log.stem} logged a defect: {line}"
        for program in sweepers
        for line in defect_lines(program.log.read_text(errors="replace"))
    ]


def defect_lines(log: str) -> list[str]:
    """The lines of a sweeper's log that report a defect."""
    return _DEFECT.findall(log)


def _run_with_short_times() -> int:
    """Run the sweeper; every ConfigurationStore of this process has the settings of the environment."""
    changes = json.loads(os.environ[_ENVIRONMENT])

    def settings(store: ConfigurationStore) -> Settings:
        return replace(store.configuration.settings, **changes)

    setattr(ConfigurationStore, "settings", property(settings))  # noqa: B010 - a property of the class
    return main()


if __name__ == "__main__":
    raise SystemExit(_run_with_short_times())
