"""The sweepers of a soak: replicas with settings of their own, and which sweeper led when, by their logs."""

import json
import sys
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

import yaml

from hack.local.controlplane import free_port
from hack.local.install import SYSTEM, Installation
from hack.local.kubelet import Program
from hack.soaks import short_times
from webhook.configuration import cluster
from webhook.kube.client import MERGE_PATCH, Api


def with_settings(program: Program, settings: dict[str, Any]) -> Program:
    """The same sweeper with these settings; see short_times."""
    environment = program.environment | {short_times.SETTINGS: json.dumps(settings)}
    command = [sys.executable, "-m", short_times.__name__, *program.command[1:]]
    return replace(program, command=command, environment=environment)


def configure(api: Api, **sections: Any) -> None:
    """Set sections of the configuration, before the programs that read it are started."""
    text = api.json("GET", cluster.path_of())["data"][cluster.KEY]
    text = yaml.safe_dump(yaml.safe_load(text) | sections)
    body = {"data": {cluster.KEY: text}}
    api.request("PATCH", cluster.path_of(), body=body, content_type=MERGE_PATCH)


def set_bind(api: Api, bind: str) -> None:
    """Have gangs bound as one, or not, before the programs are started."""
    configure(api, binding={"mode": bind})


def start_sweepers(
    installation: Installation,
    settings: dict[str, Any],
    count: int = 1,
    fair_order: dict[str, Any] | None = None,
) -> list[Program]:
    """Sweepers with short times, under the identity of the installed one; the caller stops them.

    fair_order: of the configuration, which has none otherwise.
    """
    if fair_order is not None:
        configure(installation.cluster.api(), fairOrder=fair_order)
    first = installation.program_of(SYSTEM, {"app.kubernetes.io/component": "sweeper"})
    programs = []
    for number in range(1, count + 1):
        program = with_settings(replace(first, log=installation.cluster.log(f"sweeper-{number}")), settings)
        program.start("--metrics-address", "127.0.0.1", "--metrics-port", str(free_port()))
        programs.append(program)
    return programs


class LogLine(NamedTuple):
    """A line of a sweeper's log. at: the time of day, "" where the line has none; of: the log's name."""

    at: str
    of: str
    text: str


def lines_of(sweepers: Iterable[Program]) -> list[LogLine]:
    """All lines of their logs, in the order of their times."""
    found = [
        LogLine(_time(text), program.log.stem, text)
        for program in sweepers
        for text in program.log.read_text(errors="replace").splitlines()
    ]
    return sorted(found, key=lambda line: line.at)


def leader_at(lines: Iterable[LogLine], at: str) -> str:
    """Which sweeper led at a time of day, as a clause."""
    leader = "nobody had led yet"
    for line in lines:
        if line.at > at:
            break
        if "leader_began" in line.text:
            leader = f"{line.of} led since {line.at} ({line.text.split()[-1]})"
        elif "leader_ended" in line.text:
            leader = f"nobody led since {line.at}"
        elif line.text.split()[2:4] == ["webhook.sweeper", "started"] and leader.startswith(f"{line.of} "):
            leader = f"{line.of}, which had led, was started anew at {line.at}"
    return leader


def _time(text: str) -> str:
    try:
        return f"{datetime.fromisoformat(text.split(' ', 1)[0]):%H:%M:%S}"
    except ValueError:
        return ""
