"""The page in a real Chromium, over the real control plane. Skipped where there is no Chromium."""

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from hack.local import nodes
from hack.local.cluster import Cluster
from hack.local.controlplane import free_port
from hack.local.processes import open_tied
from tests.support import create_namespace, delete_namespace, install_definitions, register_nodes

CHROMIUM = next((found for name in ("chromium", "chromium-browser") if (found := shutil.which(name))), "")
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
"""Without these Chromium asks the network for things that no test needs; as root it has no sandbox."""
PATIENCE_MILLISECONDS = 90_000
"""For what takes a moment: the limit is for what would never come."""


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One Chromium for the run, from the system's packages."""
    if not CHROMIUM:
        pytest.skip("Chromium is not installed (Debian: chromium)")
    expect.set_options(timeout=PATIENCE_MILLISECONDS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def eight_nodes(module_cluster: Cluster) -> Cluster:
    """Two blocks of two subblocks of two nodes, and the Placement resource."""
    install_definitions(module_cluster)
    register_nodes(module_cluster, nodes.grid(nodes.Shape(nodes=8, blocks=2, subblocks=2)))
    return module_cluster


@pytest.fixture
def namespace(eight_nodes: Cluster) -> Iterator[str]:
    """A namespace of the test's own; afterwards the nodes are free again."""
    name = create_namespace(eight_nodes)
    yield name
    delete_namespace(eight_nodes, name)


@pytest.fixture(scope="module")
def address(eight_nodes: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where `topogate ui` serves the page of this cluster."""
    command = [sys.executable, "-m", "webhook.cli.main", "ui", "--port", str(free_port())]
    command += ["--kubeconfig", str(eight_nodes.kubeconfig)]
    log = (tmp_path_factory.mktemp("ui") / "log").open("w")
    with log, open_tied(command, stdout=subprocess.PIPE, stderr=log, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.send_signal(signal.SIGTERM)
        process.wait(90)


def window(browser: Browser) -> BrowserContext:
    """Where pages are opened, with patience."""
    context = browser.new_context(viewport={"width": 1300, "height": 1000})
    context.set_default_timeout(PATIENCE_MILLISECONDS)
    return context


@pytest.fixture
def page(browser: Browser, address: str, namespace: str) -> Iterator[Page]:
    """The page, open until the test ends; anything that the browser complains of fails the test."""
    context = window(browser)
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(address)
    page.wait_for_selector("#domains .domain")
    yield page
    context.close()
    assert not [text for text in complaints if "503" not in text], complaints
