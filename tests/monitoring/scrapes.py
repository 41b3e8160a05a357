"""What programs answer at /metrics, as series that promtool can be fed with."""

import json
import math
import shutil
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import yaml
from prometheus_client.parser import text_string_to_metric_families

from hack.local.build import ROOT

COMPONENT: Final = ROOT / "manifests" / "components" / "monitoring"
PROMTOOL: Final = shutil.which("promtool") or ""
NOT_HERE: Final = "promtool is not installed (Debian: prometheus)"
STEPS: Final = 120
"""Minutes that a state lasts in promtool's tests."""


def rules() -> dict[str, Any]:
    """The groups of the PrometheusRule, as Prometheus itself reads them."""
    spec: dict[str, Any] = yaml.safe_load((COMPONENT / "rules.yaml").read_text())["spec"]
    return spec


def alerts() -> list[dict[str, Any]]:
    """All alerts."""
    return [rule for group in rules()["groups"] for rule in group["rules"]]


@dataclass(frozen=True)
class Series:
    """One series that stays, or grows by so much a minute; first: the minute in which it is there first."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float
    growth: float = 0.0
    first: int = 0

    def as_input(self) -> dict[str, str]:
        """As promtool reads it."""
        labels = ", ".join(f"{key}={json.dumps(value)}" for key, value in self.labels)
        values = f"{self.value}{self.growth:+}x{STEPS}"
        before = f"_x{self.first} " if self.first else ""
        return {"series": f"{self.name}{{{labels}}}", "values": before + values}


@dataclass(frozen=True)
class State:
    """What all programs answer at one time, by the job that scrapes them."""

    jobs: Mapping[str, tuple[Series, ...]] = field(default_factory=dict)

    def but(self, job: str, series: Iterable[Series] | None) -> "State":
        """The same with another answer of one job; None: it cannot be scraped."""
        return State({**self.jobs, job: () if series is None else tuple(series)})

    def inputs(self) -> list[dict[str, str]]:
        """All series with the labels that Prometheus adds, and whether each job could be scraped."""
        found = []
        for job, series in self.jobs.items():
            own = (("job", job), ("pod", f"{job}-0"))
            found.append(Series("up", own, float(bool(series))).as_input())
            found += [replace(each, labels=each.labels + own).as_input() for each in series]
        return found


def read(text: str, only: str = "topogate_") -> tuple[Series, ...]:
    """The series of one answer. Times of day count from now on, as promtool's clock begins at 0."""
    now = time.time()
    found = []
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith(only) and not sample.name.endswith("_created"):
                value = sample.value - (now if sample.name.endswith("_timestamp_seconds") else 0)
                if math.isfinite(value):
                    found.append(Series(sample.name, tuple(sorted(sample.labels.items())), value))
    return tuple(found)


def changed(series: Sequence[Series], name: str, value: float, **more: Any) -> tuple[Series, ...]:
    """The same series with the values of one name as they are in a state that takes hours to come.

    more: growth and first of Series, and labels of those that are changed.
    """
    wanted = {(key, more.pop(key)) for key in list(more) if key not in ("growth", "first")}
    chosen = [each for each in series if each.name == name and wanted <= set(each.labels)]
    assert chosen, f"{name} {wanted} is not served"
    return tuple(replace(each, value=value, **more) if each in chosen else each for each in series)


@dataclass
class Judgement:
    """Cases that Prometheus judges in one run."""

    cases: list[dict[str, Any]] = field(default_factory=list)

    def fires(self, alert: dict[str, Any], state: State) -> None:
        """This alert must fire, with labels and annotations.

        That is after more than an hour, or 5 minutes into a growth for which an alert is to fire at once.
        """
        expected = [{"exp_labels": alert["labels"], "exp_annotations": alert["annotations"]}]
        grows = any(each.growth for series in state.jobs.values() for each in series)
        self._add(state, {alert["alert"]: expected}, "5m" if grows and "for" not in alert else "100m")

    def fires_nothing(self, state: State) -> None:
        """No alert may fire."""
        self._add(state, {alert["alert"]: [] for alert in alerts()}, "100m")

    def _add(self, state: State, expected: Mapping[str, list[dict[str, Any]]], at: str) -> None:
        tests = [
            {"eval_time": at, "alertname": name, "exp_alerts": alerts} for name, alerts in expected.items()
        ]
        self.cases.append({"interval": "1m", "input_series": state.inputs(), "alert_rule_test": tests})

    def faults(self, folder: Path) -> str:
        """What Prometheus finds wrong, "" if nothing."""
        (folder / "rules.yaml").write_text(yaml.safe_dump(rules()))
        tests = {"rule_files": ["rules.yaml"], "evaluation_interval": "5m", "tests": self.cases}
        (folder / "test.yaml").write_text(yaml.safe_dump(tests))
        command = [PROMTOOL, "test", "rules", "test.yaml"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
        return done.stdout + done.stderr if done.returncode else ""
