"""A cluster in which every program of topogate is at work, and what they answer when all is well."""

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from hack.local import nodes
from hack.local.cluster import Cluster
from labeler.allocator import metrics as allocator
from labeler.contract import keys
from tests.admission.harness import running, shipped_configuration
from tests.allocator.conftest import Kubelet
from tests.allocator.plugins import Site, planned
from tests.monitoring.live import ALLOCATOR, API_SERVER, SWEEPER, TASKS, WEBHOOK, program, scraped
from tests.monitoring.scrapes import NOT_HERE, PROMTOOL, Series, State, read
from tests.support import create_namespace, delete_namespace, register_nodes
from tests.tasks.at_work import install


@dataclass(frozen=True)
class AtWork:
    """Programs that lead, each a process. calm: what all answer when all is well.

    sweeper, tasks: addresses of their metrics; configuration: the file of sweeper and task controller.
    """

    cluster: Cluster
    calm: State
    sweeper: str
    tasks: str
    configuration: Path


@pytest.fixture(scope="module")
def at_work(
    module_cluster: Cluster, allocating: Site, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AtWork]:
    """Webhook, sweeper and task controller, four GPU nodes, and a gated pod whose request cannot be meant."""
    if not PROMTOOL:
        pytest.skip(NOT_HERE)
    cluster = module_cluster
    install(cluster)
    register_nodes(cluster, nodes.grid(nodes.Shape(nodes=4, blocks=2, subblocks=1)))
    namespace = create_namespace(cluster)
    cluster.api().request("POST", f"/api/v1/namespaces/{namespace}/pods", body=pod_with_an_unusable_request())
    folder = tmp_path_factory.mktemp("at-work")
    configuration = folder / "programs.yaml"
    configuration.write_text(shipped_configuration() + "gangs: {settle: 0s}\n")
    with contextlib.ExitStack() as stack:
        # Both begin before either is waited for.
        sweeper, tasks = (
            stack.enter_context(program(name, cluster.kubeconfig, "--no-leader-election", *more))
            for name, more in (
                (SWEEPER, ("--config", str(configuration))),
                (TASKS, ("--config", str(configuration))),
            )
        )
        webhook = stack.enter_context(running(folder, cluster))
        calm = State(
            {
                WEBHOOK: read(webhook.get("/metrics")[1].decode()),
                SWEEPER: scraped(cluster, sweeper, 'topogate_gangs_waiting{cause="invalid-request"} 1'),
                TASKS: scraped(cluster, tasks, "topogate_tasks_watch_silence_seconds{"),
                ALLOCATOR: allocator_series(),
                API_SERVER: (),
            }
        )
        yield AtWork(cluster, calm, sweeper, tasks, configuration)
    delete_namespace(cluster, namespace)


@pytest.fixture
def calm(at_work: AtWork) -> State:
    """All is well with all programs."""
    return at_work.calm


def pod_with_an_unusable_request() -> dict[str, object]:
    annotations = {keys.REQUIRED_TOPOLOGY_ANNOTATION: "moon"}
    container = {"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    spec = {"containers": [container], "schedulingGates": [{"name": keys.GATE}]}
    return {"metadata": {"name": "p", "annotations": annotations}, "spec": spec}


@pytest.fixture(scope="module")
def allocating() -> Iterator[Site]:
    """The allocator's plugin, to which a played kubelet listens, and which has handed out a planned card."""
    with tempfile.TemporaryDirectory(prefix="k") as folder:  # a socket's path has 107 characters at most
        kubelet = Kubelet(Path(folder))
        kubelet.start()
        site = Site(kubelet, planned("card1", "card1:gt1"))
        site.register()
        site.allocate("card1-0")
        site.registration.poll(1)
        yield site
        site.registration.close()
        kubelet.stop()


def allocator_series() -> tuple[Series, ...]:
    """What the allocator shows. It is no process of its own here: that takes a node's kubelet and cards."""
    registry = CollectorRegistry()
    for each in (allocator.ALLOCATIONS, allocator.CONFLICT, allocator.REGISTERED):
        registry.register(each)
    return read(generate_latest(registry).decode())
