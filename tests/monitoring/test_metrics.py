"""The operator's table of metrics is what the programs serve, and the dashboard asks for nothing else."""

import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest

from hack.local.build import ROOT
from hack.program_metrics import sweeper_metrics
from labeler.allocator import metrics as allocator
from labeler.contention import Contention
from labeler.health import Health
from labeler.main import metrics_of
from tests.admission.alone import serving
from tests.monitoring.scrapes import COMPONENT, alerts
from webhook.configuration.store import ConfigurationStore
from webhook.sweeper.decide.orders import Cause, EvictionCause
from webhook.sweeper.metrics import PHASES, Metrics
from webhook.sweeper.repair.repair import NOT_BOUND
from webhook.tasks.main import TaskMetrics

GATED_BY_OTHERS = {
    "up": set(),
    "apiserver_admission_webhook_fail_open_count": {"name"},
    "kube_daemonset_status_number_unavailable": {"namespace", "daemonset"},
}
"""Series that the alerts read and that are not ours."""

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

Row = tuple[str, str]
"""Name and type of a metric."""


def table() -> dict[Row, tuple[str, set[str]]]:
    """The rows of the operator's table: by whom, and the labels."""
    found: dict[Row, tuple[str, set[str]]] = {}
    text = (ROOT / "docs/operators/metrics.md").read_text()
    for line in re.findall(r"^\| `topogate_.*$", text, re.MULTILINE):
        name, kind, labels, by, meaning = (cell.strip() for cell in line.strip("|").split("|"))
        assert meaning, line
        row = name.strip("`"), kind
        assert row not in found, f"{name} is there twice"
        found[row] = by, {label.strip() for label in labels.split(",") if label.strip()}
    return found


def served(text: str) -> set[Row]:
    """What an answer says of its types."""
    rows = re.findall(r"^# TYPE (topogate_\w+) (\w+)$", text, re.MULTILINE)
    return {row for row in rows if not row[0].endswith("_created")}


def of_sweeper(_folder: Path) -> str:
    metrics = sweeper_metrics()
    for known in (metrics.oldest, metrics.unplaced, metrics.ungated, metrics.unbound):
        known.value = 0
    return generate_latest(metrics.registry).decode()


def of_webhook(folder: Path) -> str:
    with serving(folder) as webhook:
        return webhook.get("/metrics")[1].decode()


def of_tasks(_folder: Path) -> str:
    service: Any = SimpleNamespace(configuration=ConfigurationStore([]))
    return generate_latest(TaskMetrics(service).registry).decode()


def of_allocator(_folder: Path) -> str:
    assert allocator.CONFLICT is not None
    return generate_latest(REGISTRY).decode()


def of_labeler(_folder: Path) -> str:
    return Health(60.0, metrics=metrics_of(Contention())).answer("/metrics")[1]


PROGRAMS = {
    "sweeper": of_sweeper,
    "webhook": of_webhook,
    "tasks": of_tasks,
    "labeler": of_labeler,
    "allocator": of_allocator,
}


@pytest.mark.promise("O200")
@pytest.mark.parametrize(("by", "scrape"), PROGRAMS.items())
def test_the_table_is_what_is_served(by: str, scrape: Callable[[Path], str], tmp_path: Path) -> None:
    rows = {row for row, (owners, _) in table().items() if by in owners.split(", ")}
    assert served(scrape(tmp_path)) == rows


@pytest.mark.parametrize("scrape", PROGRAMS.values(), ids=PROGRAMS)
def test_every_program_that_is_scraped_exports_its_version(
    scrape: Callable[[Path], str], tmp_path: Path
) -> None:
    assert f'topogate_build_info{{version="{VERSION}"}} 1.0' in scrape(tmp_path).splitlines()


def labels_of(registry: CollectorRegistry) -> dict[str, set[str]]:
    """Base name of each metric -> its labels, as it was declared."""
    return {
        name: set(getattr(collector, "_labelnames", ()))
        for collector, names in registry._collector_to_names.items()
        for name in names
        if name.startswith("topogate_")
    }


@pytest.mark.promise("O200")
def test_the_tables_labels_are_those_of_the_metrics() -> None:
    service: Any = SimpleNamespace(configuration=ConfigurationStore([]))
    declared = {
        **labels_of(sweeper_metrics().registry),
        **labels_of(TaskMetrics(service).registry),
        **labels_of(REGISTRY),
    }
    for (name, _), (by, labels) in table().items():
        if by != "webhook":
            assert declared.get(name.removesuffix("_total"), set()) == labels, name


@pytest.mark.promise("O200")
def test_no_label_can_hold_the_name_of_a_pod_a_gang_or_a_namespace() -> None:
    # One names nodes, those that are avoided: a share of the nodes bounds them.
    rows = table().items()
    labels = set().union(*(each for (name, _), (_, each) in rows if name != "topogate_avoided_node_info"))
    assert not labels & {"pod", "gang", "namespace", "node", "name", "uid", "owner", "job"}


def queries() -> list[tuple[str, str]]:
    """Every expression of alerts and dashboard, with the name of where it stands."""
    dashboard = json.loads((COMPONENT / "topogate.json").read_text())
    of_panels = [
        (panel["title"], target["expr"]) for panel in dashboard["panels"] for target in panel["targets"]
    ]
    return [*((alert["alert"], alert["expr"]) for alert in alerts()), *of_panels]


def known() -> dict[str, set[str]]:
    """Series -> their labels, with those that Prometheus adds."""
    found = {name: set(labels) for name, labels in GATED_BY_OTHERS.items()}
    for (name, kind), (_, labels) in table().items():
        names = [name]
        if kind == "histogram":
            names = [f"{name}_bucket", f"{name}_sum", f"{name}_count"]
        found |= {each: labels | ({"le"} if each.endswith("_bucket") else set()) for each in names}
    return {name: labels | {"job", "pod"} for name, labels in found.items()}


@pytest.mark.promise("O208")
@pytest.mark.parametrize(("where", "query"), queries(), ids=lambda text: str(text)[:40])
def test_a_query_names_only_series_and_labels_that_there_are(where: str, query: str) -> None:
    series = set(re.findall(r"\b((?:topogate|apiserver|kube)_\w+|up\b)", query))
    assert series, f"{where} asks for nothing"
    assert series <= known().keys(), series - known().keys()
    allowed = set().union(*(known()[each] for each in series)) | {"__name__"}
    inside = re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", "".join(re.findall(r"{([^}]*)}", query)))
    grouped = re.findall(r"(?:by|on|ignoring)\s*\(([^)]*)\)", query)
    used = {*inside, *(label.strip() for group in grouped for label in group.split(",") if label.strip())}
    assert used <= allowed, used - allowed


VALUES: dict[tuple[str, str], set[str]] = {
    ("topogate_gangs_waiting", "cause"): set(Cause),
    ("topogate_repairs_total", "cause"): {NOT_BOUND},
    ("topogate_pass_seconds", "phase"): set(PHASES),
}
"""Values of labels that the code names. The values of others stand in the row of their metric."""


def asked_values(query: str) -> list[tuple[str, str, str]]:
    """Series of ours, label and value of each value that a query asks for."""
    return [
        (series, label, value)
        for series, inside in re.findall(r"\b(topogate_\w+){([^}]*)}", query)
        for label, values in re.findall(r'(\w+)(?:=~|!~|!=|=)"([^"]*)"', inside)
        for value in values.split("|")
    ]


@pytest.mark.parametrize(("where", "query"), queries(), ids=lambda text: str(text)[:40])
def test_a_query_names_only_values_of_labels_that_there_are(where: str, query: str) -> None:
    text = (ROOT / "docs/operators/metrics.md").read_text()
    for series, label, value in asked_values(query):
        name = re.sub(r"_(bucket|sum|count)$", "", series)
        (row,) = re.findall(rf"^\| `{name}` .*$", text, re.MULTILINE)
        known_values = VALUES.get((name, label), set(re.findall(r"[\w-]+", row)))
        assert value in known_values, f'{where} asks {series} for {label}="{value}", which nothing writes'


def test_values_that_a_query_asks_for_are_found() -> None:
    query = 'sum(rate(topogate_a_bucket{phase="place"}[5m])) / topogate_b{state!="x", how=~"y|z"}'
    assert asked_values(query) == [
        ("topogate_a_bucket", "phase", "place"),
        ("topogate_b", "state", "x"),
        ("topogate_b", "how", "y"),
        ("topogate_b", "how", "z"),
    ]


@pytest.mark.promise("O206")
def test_each_alert_names_its_section_in_a_page_of_runbooks() -> None:
    """Failed? Add a section named as the alert to docs/operators/runbooks.md, its `runbook_url`."""
    text = (ROOT / "docs/operators/runbooks.md").read_text()
    for alert in alerts():
        file, _, anchor = alert["annotations"]["runbook_url"].partition("#")
        found = re.search(rf"^### {alert['alert']}\n\n(.+?)\n(?:\n|\Z)", text, re.MULTILINE | re.DOTALL)
        assert found, alert["alert"]
        assert (file, anchor) == ("docs/operators/runbooks.md", alert["alert"].lower())
    assert text.count("\n### Topogate") == len(alerts())


def test_every_cause_of_an_eviction_stands_in_the_meaning_of_its_metric() -> None:
    meaning = Metrics().evictions._documentation
    assert set(re.findall(r"\(([a-z-]+)\)", meaning)) == set(EvictionCause)


def test_every_cause_for_which_a_gang_waits_is_explained() -> None:
    text = (ROOT / "docs/users/waiting.md").read_text()
    assert set(re.findall(r"^\| `([\w-]+)` \|", text, re.MULTILINE)) == set(Cause)
