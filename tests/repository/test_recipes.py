"""What the recipes of docs/contributing ask for is there; a failing test says which step is missing."""

import inspect
import re
from collections.abc import Callable
from importlib import import_module
from typing import get_type_hints

from hack.local.build import ROOT
from labeler.allocator import vendors
from labeler.models import VENDORS
from labeler.sources import Source, known_sources

OPERATORS = ROOT / "docs/operators"
METHODS = ("discover", "watch")
SOURCES = known_sources()


def parameters(function: Callable[..., object]) -> list[str]:
    return list(inspect.signature(function).parameters)


def missing_of_source(name: str) -> str:
    """What a module of labeler/sources lacks of a source, and what to do; "" if nothing."""
    path = f"labeler/sources/{name.replace('-', '_')}.py"
    module = import_module(path.removesuffix(".py").replace("/", "."))
    if not hasattr(module, "create"):
        return f"{path} has no create(options, context): write it, or begin the name of a helper with _"
    made = get_type_hints(module.create).get("return", object)
    for method in METHODS:
        wanted = parameters(getattr(Source, method))
        if not hasattr(made, method):
            returns = "; it may return at once" if method == "watch" else ""
            return f"{path}: {made.__name__} has no {method}({', '.join(wanted)}): write it{returns}"
        if parameters(getattr(made, method)) != wanted:
            return f"{path}: {made.__name__}.{method} takes other parameters than ({', '.join(wanted)})"
    return ""


def test_each_source_of_the_labeler_can_be_asked_and_watched() -> None:
    assert SOURCES
    assert [missing for source in SOURCES if (missing := missing_of_source(source))] == []


def test_each_component_is_an_option_of_the_chart_that_is_tried_and_on_the_page_on_installing() -> None:
    components = {path.name for path in (ROOT / "manifests/components").iterdir()}
    path = "manifests/templates/_kustomizations.tpl"
    of_chart = set(re.findall(r'"components/(.*?)"', (ROOT / path).read_text()))
    assert components == of_chart, f"add it to {path}"
    tried = (ROOT / "tests/releases/test_chart.py").read_text()
    untried = [each for each in components if f'"{each}"' not in tried]
    assert untried == [], "add it to TABLE in tests/releases/test_chart.py"
    rows = table_rows("install.md")
    undocumented = {each for each in components if not any(f"`components/{each}`" in row for row in rows)}
    assert undocumented <= {"cert-manager"}, "add a row to docs/operators/install.md"


def table_rows(page: str) -> list[str]:
    """The rows of the tables of a page for operators."""
    return [line for line in (OPERATORS / page).read_text().splitlines() if line.startswith("|")]


def of(source: str) -> re.Pattern[str]:
    return re.compile(rf"`{source}[`:]|labeler-{source}`")


def test_each_source_of_the_labeler_stands_in_both_tables_for_operators() -> None:
    """Failed? Add the source to docs/operators/topology.md: step 5 of docs/contributing/behaviour.md."""
    assert [
        f"{len(rows)} rows: {source}"
        for source in SOURCES
        if len(rows := [row for row in table_rows("topology.md") if of(source).search(row)]) < 2
    ] == []


def test_each_vendor_stands_on_the_page_on_gpu_labels() -> None:
    """Failed? Add a row to docs/operators/gpu-labels.md: step 5 of docs/contributing/behaviour.md."""
    text = (OPERATORS / "gpu-labels.md").read_text()
    assert [vendor for vendor in VENDORS.values() if f"`vendor.{vendor}`" not in text] == []


def test_each_vendor_whose_cards_are_handed_out_has_a_module_and_stands_on_the_page_on_cards() -> None:
    """Failed? Enter the module in KNOWN, and name it in docs/operators/cards.md: steps 3 and 5."""
    modules = {path.stem for path in (ROOT / "labeler/allocator/vendors").glob("[!_]*.py")}
    assert modules == set(vendors.KNOWN)
    text = (OPERATORS / "cards.md").read_text()
    assert [name for name in vendors.KNOWN if f"`{name}`" not in text] == []
