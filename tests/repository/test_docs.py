"""What the docs say of this repository is there: links, commands, files, keys, packages and tests."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest
import yaml

from hack.local.build import ROOT
from hack.references import rows
from labeler.contract import keys
from tests.repository.pages import DOCS, anchors, path_in_repository
from webhook.cli.main import COMMANDS

PAGES = [path for path in DOCS if path.is_relative_to(ROOT / "docs") and path != ROOT / "docs/README.md"]
MOST_WORDS = 1500
TABLES = {
    ROOT / "docs" / name
    for name in (
        "design/decisions.md",
        "design/invariants.md",
        "design/wire-contract.md",
        "operators/configuration.md",
        "operators/metrics.md",
        "users/options.md",
    )
}
"""Pages of reference, which are as long as their tables."""
DESIGN = ROOT / "docs/design"
INVARIANTS = (DESIGN / "invariants.md").read_text()
ROOTS = ("docs", "hack", "labeler", "manifests", "tests", "webhook")
NAMES = "|".join(ROOTS)


def in_code(paper: Path, pattern: str) -> set[str]:
    """What the group of a pattern matches in code spans and code blocks, unless a path precedes it."""
    code = re.findall(r"```.*?```|`[^`\n]+(?:\n[^`\n]+)?`", paper.read_text(), re.DOTALL)
    return {match for each in code for match in re.findall(rf"(?<![\w./-]){pattern}", each)}


def named(paper: Path) -> set[str]:
    """Files and folders of the repository that stand in code spans or as commands in code blocks."""
    return {name.rstrip(".") for name in in_code(paper, rf"((?:{NAMES})/[\w./-]+)")}


def section(title: str, paper: Path = ROOT / "ARCHITECTURE.md") -> str:
    """A section of a paper."""
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", paper.read_text(), re.MULTILINE | re.DOTALL)
    assert found, f"{paper.name} has no section {title}"
    return found[1]


def spelled() -> list[str]:
    """Every text of keys.py, also of its tuples and sets."""
    found: dict[str, None] = {}
    for name, value in vars(keys).items():
        if name.isupper():
            for text in [value] if isinstance(value, str) else value:
                if isinstance(text, str):
                    found[text] = None
    return list(found)


@cache
def claims_of(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


def leads_somewhere(paper: Path, target: str) -> bool:
    """Whether a link of a paper has its file and its heading here. One to the Web is not looked at."""
    if re.match(r"[a-z]+:", target):
        return True
    file, _, anchor = target.partition("#")
    there = (paper.parent / file).resolve() if file else paper
    return there.exists() and (not anchor or anchor in anchors(there))


def test_every_relative_link_leads_somewhere() -> None:
    assert [
        f"{path_in_repository(paper)}: {target}"
        for paper in PAGES
        for target in re.findall(r"\]\(([^)\s]+)\)", paper.read_text())
        if not leads_somewhere(paper, target)
    ] == []


def test_every_command_and_file_that_is_named_exists() -> None:
    placeholders = {"labeler/sources/NAME.py", "labeler/allocator/vendors/NAME.py", "tests/PACKAGE"}
    assert [
        f"{path_in_repository(paper)}: {name}"
        for paper in PAGES
        for name in named(paper) - placeholders
        if not (ROOT / name).exists()
    ] == []


def test_every_key_of_ours_that_is_named_is_in_the_contract() -> None:
    known = spelled()
    prefixes = tuple(key for key in known if key.endswith("."))
    unknown = [
        f"{path_in_repository(paper)}: {key}"
        for paper in PAGES
        for key in in_code(paper, r"((?:[a-z]+\.)*(?:topogate\.io|falldio\.com)/[\w.-]+)")
        if key.removesuffix("-") not in known  # kubectl removes what ends so
        and not key.startswith(prefixes)
        and not re.search(r"/v\d+\w*$", key)  # the version of an API
    ]
    assert unknown == []


def test_every_key_of_the_configuration_that_is_named_exists() -> None:
    """A name such as `reservations.share` begins with a group of keys."""
    known = {name.partition("[")[0] for name, *_ in rows()}
    known |= {name.rpartition(".")[0] for name in known}
    groups = "|".join(sorted({name.partition(".")[0] for name in known if "." in name}))
    unknown = [
        f"{path_in_repository(paper)}: {name}"
        for paper in PAGES
        for name in in_code(paper, rf"((?:{groups})(?:\.[a-zA-Z]+)+)(?![\w./-])") - known
    ]
    assert unknown == []


def test_every_subcommand_that_is_named_exists() -> None:
    assert [
        f"{path_in_repository(paper)}: {name}"
        for paper in PAGES
        for name in in_code(paper, r"topogate ([a-z]+)") - COMMANDS.keys()
    ] == []


def test_a_list_of_contents_names_every_section_in_order() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    heads = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert re.findall(r"^- \[(.+)\]\(#", text, re.MULTILINE)[: len(heads)] == heads


def stands_in_index(page: Path) -> bool:
    folder = page.parent if page.name != "README.md" else page.parent.parent
    index = next(above / "README.md" for above in [folder, *folder.parents] if (above / "README.md").exists())
    title = page.read_text().splitlines()[0].removeprefix("# ")
    return f"[{title}]({page.relative_to(index.parent)})" in index.read_text()


def test_every_page_stands_in_an_index_by_its_title() -> None:
    """Failed? Add the page to the nearest README.md above it, which is docs/README.md for most."""
    assert [path_in_repository(page) for page in PAGES if not stands_in_index(page)] == []


def test_the_readme_is_at_most_150_lines_and_1000_words() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 150
    assert len(text.split()) <= 1000


def test_a_page_has_at_most_1500_words() -> None:
    """Failed? Give what answers another question a page of its own, and link it."""
    texts = {path_in_repository(page): page.read_text() for page in PAGES if page not in TABLES}
    assert [page for page, text in texts.items() if len(text.split()) > MOST_WORDS] == []


def test_every_overlay_and_component_is_documented_for_the_operator() -> None:
    manifests = ROOT / "manifests"
    folders = {
        str(path.relative_to(manifests))
        for kind in ("overlays", "components")
        for path in (manifests / kind).iterdir()
    }
    rows = section("What is here", manifests / "README.md")
    missing = [folder for folder in sorted(folders) if f"| `{folder}` |" not in rows]
    assert not missing, f"add rows to the table of manifests/README.md: {', '.join(missing)}"


def test_every_documented_metric_is_served() -> None:
    code = "".join(
        path.read_text() for root in ("webhook", "labeler") for path in (ROOT / root).rglob("*.py")
    )
    documented = set(re.findall(r"`(topogate_\w+)", (ROOT / "docs/operators/metrics.md").read_text()))
    assert len(documented) > 5
    assert [name for name in sorted(documented) if name.removesuffix("_total") not in code] == []


@pytest.mark.promise("S9")
def test_every_identity_stands_in_the_trust_model() -> None:
    table = (ROOT / "SECURITY.md").read_text()
    for path in (ROOT / "manifests").rglob("*.yaml"):
        for each in yaml.safe_load_all(path.read_text()):
            if isinstance(each, dict) and each.get("kind") == "ServiceAccount":
                metadata = each["metadata"]
                assert f"| `{metadata['namespace']}/{metadata['name']}`" in table


def test_every_command_under_hack_is_documented() -> None:
    commands = {
        f"hack/{path.name}" for path in (ROOT / "hack").iterdir() if path.is_file() and not path.suffix
    }
    assert commands <= named(ROOT / "docs/contributing/tests.md")


@pytest.mark.promise("W1")
def test_every_key_of_the_contract_stands_in_the_table_of_the_wire_contract() -> None:
    """Failed? Add the key to docs/design/wire-contract.md, with who writes it and who reads it."""
    rows = [line for line in (DESIGN / "wire-contract.md").read_text().splitlines() if line.startswith("|")]
    assert [key for key in spelled() if not any(f"`{key}" in row for row in rows)] == []


def test_every_invariant_names_a_test_that_exists() -> None:
    claims = re.findall(r"`(tests/[\w/.]+)::(\w+)`", INVARIANTS)
    assert len(claims) > 10
    assert [f"{file}::{name}" for file, name in claims if name not in claims_of(ROOT / file)] == []


def test_each_invariant_names_what_holds_it() -> None:
    rows = [line for line in INVARIANTS.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 10
    assert [row for row in rows if "::" not in row and "`hack/" not in row] == []


def test_every_package_stands_in_the_table_of_the_architecture() -> None:
    documented = set(re.findall(r"`([\w/]+)`", section("The packages")))
    packages = {
        str(path.parent.relative_to(ROOT))
        for root in ("labeler", "webhook")
        for path in ROOT.glob(f"{root}/**/__init__.py")
    }
    folders = {
        f"hack/{path.name}"
        for path in (ROOT / "hack").iterdir()
        if path.is_dir() and path.name != "__pycache__"
    }
    inner = {name for name in packages if name.count("/") > 1 and name.split("/")[1] == "allocator"}
    assert packages - inner - {"webhook"} | folders <= documented


def test_everything_that_the_architecture_calls_a_module_is_one() -> None:
    base = {"observe", "decide", "apply", "repair"}
    for name in re.findall(r"`([\w/]+\.py)`", (DESIGN / "life-of-a-pod.md").read_text()):
        first = name.split("/")[0]
        candidates = [ROOT / name, ROOT / "webhook/sweeper" / name] if first in base or "/" in name else []
        candidates += list(ROOT.glob(f"webhook/*/{name}")) if "/" not in name else []
        assert any(path.exists() for path in candidates), name
