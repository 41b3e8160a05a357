"""The programs of a soak: replicas with settings of their own, and which sweeper led when, by their logs."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

import yaml

from hack.local.build import ROOT
from hack.local.controlplane import free_port
from hack.local.install import SYSTEM, Installation
from hack.local.kubelet import Program
from webhook.kube.client import MERGE_PATCH, Api


def start_replicas(installation: Installation, component: str, count: int, *arguments: str) -> list[Program]:
    """Programs of one component under the identity of the installed one; the caller stops them."""
    cluster = installation.cluster
    first = installation.program_of(SYSTEM, {"app.kubernetes.io/component": component})
    made = []
    for number in range(1, count + 1):
        program = replace(first, log=cluster.log(f"{component}-{number}"))
        port = str(free_port())
        program.start(*arguments, "--metrics-address", "127.0.0.1", "--metrics-port", port)
        made.append(program)
    return made


def set_bind(api: Api, bind: str) -> None:
    """Have the policy bind gangs as one, or not, before its programs are started."""
    path = f"/api/v1/namespaces/{SYSTEM}/configmaps/topogate-policy"
    text = api.json("GET", path)["data"]["policy.yaml"] + f"\nbind: {bind}\n"
    api.request("PATCH", path, body={"data": {"policy.yaml": text}}, content_type=MERGE_PATCH)


def start_sweepers(
    installation: Installation,
    settings: dict[str, Any],
    count: int = 1,
    fair_order: dict[str, Any] | None = None,
) -> list[Program]:
    """Sweepers with settings of their own, under the identity of the installed one; the caller stops them.

    fair_order: of their policy, which is the shipped one otherwise.
    """
    file = installation.cluster.folder / "soak.yaml"
    file.write_text(yaml.safe_dump(settings))
    arguments = ["--config", str(file)]
    if fair_order is not None:
        shipped = yaml.safe_load((ROOT / "manifests" / "base" / "policy.yaml").read_text())
        policy = yaml.safe_load(shipped["data"]["policy.yaml"]) | {"fairOrder": fair_order}
        own = installation.cluster.folder / "soak-policy.yaml"
        own.write_text(yaml.safe_dump(policy))
        arguments += ["--policy", str(own)]
    return start_replicas(installation, "sweeper", count, *arguments)


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
