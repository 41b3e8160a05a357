"""The webhook as tests of admission meet it: called by the API server, or alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.local.cluster import Cluster
from tests.admission.alone import Impatient, serving
from tests.admission.harness import Webhook, install, install_classes, running
from tests.admission.neighbour import Neighbour, installed


@pytest.fixture(scope="module")
def called_webhook(module_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Webhook]:
    """A webhook that the API server calls, fail-closed, with the shipped policy and PriorityClasses."""
    install_classes(module_cluster)
    with running(tmp_path_factory.mktemp("webhook"), module_cluster) as made:
        install(module_cluster, made, failurePolicy="Fail", timeoutSeconds=10)
        yield made


@pytest.fixture(scope="module")
def webhook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Webhook]:
    """A webhook that no API server calls, shared by the tests of a module."""
    with serving(tmp_path_factory.mktemp("webhook")) as made:
        yield made


@pytest.fixture
def own_webhook(tmp_path: Path) -> Iterator[Webhook]:
    """The same for one test, which may spoil it."""
    with serving(tmp_path) as made:
        yield made


@pytest.fixture
def impatient_webhook(tmp_path: Path) -> Iterator[Webhook]:
    """The same with short time-outs."""
    with serving(tmp_path, Impatient) as made:
        yield made


@pytest.fixture(params=["before-topogate", "zz-after-topogate"])
def other(request: pytest.FixtureRequest, module_cluster: Cluster, opted_in: str) -> Iterator[Neighbour]:
    """A neighbour that is called before ours, then one that is called after."""
    name = {"before-topogate": "a-neighbour", "zz-after-topogate": "z-neighbour"}[request.param]
    with installed(module_cluster, opted_in, name) as made:
        yield made
