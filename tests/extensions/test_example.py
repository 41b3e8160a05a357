"""The extension of docs/contributing/extensions.md as it stands there, and what holds for all."""

import importlib.util
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from hack.local.build import ROOT
from tests.extensions.made import extension, none_failed
from tests.sweeper.clock import Clock
from tests.sweeper.cluster import Nodes, Placing, gpu_pod
from webhook.configuration.settings import Settings
from webhook.kube.client import Api
from webhook.kube.objects import Pod
from webhook.sweeper.context import Pass
from webhook.sweeper.decide.orders import Done
from webhook.sweeper.extension import (
    EndOrders,
    Extension,
    HookInput,
    Ordered,
    RecordSpec,
    Switch,
)
from webhook.sweeper.hooks import ExtensionHooks
from webhook.sweeper.observe.cache import ClusterCache
from webhook.sweeper.observe.gangs import OwnerFacts, PodGang, gather

PAGE = ROOT / "docs/contributing/extensions.md"
MOST_LINES = 60


def text() -> str:
    match = re.search(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert match is not None
    return match[1]


@pytest.fixture
def example(tmp_path: Path) -> Extension:
    """The page's extension, imported from a file of its own."""
    path = tmp_path / "small_first.py"
    path.write_text(text())
    spec = importlib.util.spec_from_file_location("small_first", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["small_first"] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules["small_first"]
    found = module.SMALL_FIRST
    assert isinstance(found, Extension)
    return found


def job(name: str, count: int) -> list[Pod]:
    owner = {"kind": "Job", "name": name, "uid": name, "controller": True}
    return [
        gpu_pod(f"{name}-{number}", metadata={"uid": f"{name}-{number}", "ownerReferences": [owner]})
        for number in range(count)
    ]


class Case:
    """Passes with extensions over a cluster in memory."""

    def __init__(self, *switches: Switch) -> None:
        self.cluster = Nodes(4, *job("large", 3), *job("small", 1))
        cache = cast(ClusterCache, self.cluster)
        self.surroundings = Pass(cast(Api, None), cache, Settings(), clock=Clock(), extensions=switches)
        self.hooks = ExtensionHooks(self.surroundings)
        self.placing = Placing(self.cluster, Settings())

    def gangs(self) -> list[PodGang]:
        view = self.placing.view()
        return gather(view.gated, view.others, lambda _: OwnerFacts())

    def order(self) -> list[str]:
        """One pass: the names of the gangs in order."""
        view = self.placing.view()
        view = self.hooks.begin(view, self.hooks.memories)
        ordered = self.hooks.order(self.gangs(), view, {}, {})
        self.hooks.after_pass(view, none_failed(self.hooks))
        return [gang.key.name for gang in ordered]


def always(extension: Extension) -> Switch:
    return Switch(lambda *_: True, lambda: extension)


def test_the_example_has_at_most_60_lines() -> None:
    assert len(text().splitlines()) <= MOST_LINES


def test_the_example_puts_small_gangs_first_and_gives_the_others_a_reason(example: Extension) -> None:
    assert Case().order() == ["large", "small"], "without it, by age and name"
    case = Case(always(example))
    assert case.order() == ["small", "large"]
    assert list(case.hooks.sentences.values()) == ["small first: 1 gangs come before it"]


def test_the_example_remembers_from_pass_to_pass_what_was_placed(example: Extension) -> None:
    case = Case(always(example))
    case.cluster.pods.append(gpu_pod("alone", metadata={"uid": "alone"}))
    case.order()
    registry = case.surroundings.metrics.registry
    assert registry.get_sample_value("topogate_small_first_pods") == 0
    case.placing.remember(case.gangs(), case.placing.view())
    plans = case.placing.one().plans
    assert plans
    for seen in (1, 2):
        case.hooks.on_result(Done(placed=tuple(plans)))
        case.order()
        pods = seen * sum(len(plan.entries) for plan in plans)
        assert registry.get_sample_value("topogate_small_first_pods") == pods


def test_the_example_has_a_line_in_explain(example: Extension) -> None:
    large, small = Case().gangs()
    assert example.explain is not None
    for gang, before in ((large, 1), (small, 0)):
        lines = list(example.explain(HookInput(Case().placing.view(), gangs=(large, small)), gang))
        assert lines == [f"Small first: {before} of the gangs that wait come before it."]


def test_a_defect_of_one_extension_stops_neither_the_pass_nor_the_others(
    example: Extension, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(given: HookInput, memory: Any) -> tuple[Ordered, Any]:
        raise ZeroDivisionError

    case = Case(always(extension("broken", order_gangs=broken)), always(example))
    assert case.order() == ["small", "large"]
    assert "extension_failed name=broken" in caplog.text


def test_a_record_that_no_hook_has_taken_in_is_given_again_and_not_written_over() -> None:
    """Else one defect in the pass that reads it costs all that it holds."""
    given_records: list[Any] = []
    written: list[Any] = []

    class Stored:
        def json(self, method: str, path: str, **options: Any) -> dict[str, Any]:
            written.extend([options["body"]["data"]] if method == "PATCH" else [])
            return {"metadata": {"resourceVersion": "1"}, "data": {"key": "debts"}}

    def fails_twice(given: HookInput, memory: Any) -> tuple[Ordered, Any]:
        given_records.append(given.record)
        if len(given_records) <= 2:
            raise ZeroDivisionError
        return Ordered(given.gangs), memory

    def writes(given: HookInput, memory: Any) -> tuple[EndOrders, Any]:
        return EndOrders({"key": "new"}) if given.may_write else EndOrders(), memory

    record = RecordSpec("name", seconds=10.0)
    case = Case(always(extension("keeps", record=record, order_gangs=fails_twice, after_pass=writes)))
    clock = cast(Clock, case.surroundings.clock)
    case.hooks = ExtensionHooks(replace(case.surroundings, api=cast(Api, Stored())))
    for _ in range(2):
        clock.now += 10.0
        case.order()
    assert not written
    case.order()
    assert given_records == [{"key": "debts"}] * 3
    case.order()
    assert (given_records[3], written) == (None, [{"key": "new"}])


def test_an_extension_that_cannot_be_imported_stops_neither_the_pass_nor_the_others(
    example: Extension, caplog: pytest.LogCaptureFixture
) -> None:
    def missing() -> Extension:
        raise ModuleNotFoundError("No module named 'celpy'")

    case = Case(Switch(lambda *_: True, missing), always(example))
    assert case.order() == ["small", "large"]
    assert "No module named 'celpy'" in caplog.text


def test_an_extension_that_is_off_is_not_loaded_and_one_that_is_switched_off_forgets(
    example: Extension,
) -> None:
    def never() -> Extension:
        raise AssertionError

    on = [True]
    switch = Switch(lambda *_: on[0], lambda: example)
    case = Case(Switch(lambda *_: False, never), switch)
    assert case.order() == ["small", "large"]
    assert case.hooks.memories.keys() == {"small_first"}
    on[0] = False
    assert case.order() == ["large", "small"]
    assert not case.hooks.memories
    assert not case.hooks.sentences


def test_the_sweeper_starts_without_importing_any_feature_that_is_off() -> None:
    code = "import sys, webhook.sweeper.main; print(*(m for m in sys.modules if 'webhook.extensions' in m))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == {"webhook.extensions", "webhook.extensions.known"}


OFF = """
import sys
from types import SimpleNamespace
from webhook.extensions.known import SWITCHES
from webhook.kube.objects import Metadata, Pod
from webhook.sweeper.context import Pass
from webhook.sweeper.hooks import ExtensionHooks
from webhook.sweeper.observe.view import View
from webhook.configuration.settings import Avoid, BadNodes
from webhook.configuration.settings import Settings

cache = SimpleNamespace(
    served=dict, namespace_labels=dict, owners=SimpleNamespace(all_of=lambda name: None),
)
settings = Settings(bad_nodes=BadNodes(Avoid.OFF))
view = View([Pod(Metadata(name="train-0"))], [], {}, {})
ExtensionHooks(Pass(None, cache, settings, extensions=SWITCHES)).begin(view, {})
print(*(name for name in sys.modules if name.startswith("webhook.extensions.")))
"""


def test_a_pass_imports_no_extension_that_is_off() -> None:
    done = subprocess.run([sys.executable, "-c", OFF], capture_output=True, text=True, check=True)
    packages = {name.split(".")[2] for name in done.stdout.split()}
    assert packages == {"known"}
