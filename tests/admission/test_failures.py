"""Whatever becomes of the webhook, pods are created: in time, and as their authors wrote them."""

import contextlib
import signal
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from hack.local import processes
from hack.local.cluster import Cluster
from hack.local.processes import Started
from labeler.contract import keys
from tests.admission.harness import (
    HOSTS,
    WEBHOOKS,
    Webhook,
    client_config,
    configuration,
    create,
    gpu_pod,
    install,
    install_classes,
    manifest,
    running,
    short_lived,
    wait_called,
)
from tests.admission.neighbour import Neighbour, neighbour
from tests.admission.shapes import owned
from webhook.admission import certificates
from webhook.kube.client import Api, ApiError

JSON_PATCH = "application/json-patch+json"
TIMEOUT_SECONDS = manifest("webhook-configuration.yaml")["webhooks"][0]["timeoutSeconds"]


@pytest.fixture(scope="module")
def shipped(module_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Webhook]:
    """The webhook under the configuration as it is shipped, but for the address."""
    install_classes(module_cluster)
    with running(tmp_path_factory.mktemp("webhook"), module_cluster) as made:
        install(module_cluster, made)
        yield made


@pytest.fixture
def restored(module_cluster: Cluster, shipped: Webhook) -> Webhook:
    """The same, in order again for each test."""
    api = module_cluster.api()
    if shipped.process is None or not is_accepted(shipped):
        shipped.stop()
        shipped.pair = certificates.issue(HOSTS)
        shipped.start()
    fresh = configuration(shipped)["webhooks"]
    change = [{"op": "replace", "path": "/webhooks", "value": fresh}]
    api.request("PATCH", f"{WEBHOOKS}/topogate", body=change, content_type=JSON_PATCH)
    wait_called(module_cluster)
    return shipped


def is_accepted(webhook: Webhook) -> bool:
    """Whether its certificate is valid."""
    try:
        return webhook.get("/readyz")[0] == 200
    except OSError:
        return False


def is_gated(api: Api, namespace: str) -> bool:
    return bool(create(api, namespace, gpu_pod())["spec"].get("schedulingGates"))


def stopped(webhook: Webhook) -> None:
    webhook.stop()


def killed(webhook: Webhook) -> None:
    assert webhook.process is not None
    workers = children(webhook)
    for process in (processes.started(webhook.process.pid), *workers):
        process.send(signal.SIGKILL)
    webhook.process.wait()
    webhook.process = None


def children(webhook: Webhook) -> list[Started]:
    """Gunicorn's workers."""
    assert webhook.process is not None
    pid = webhook.process.pid
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [processes.started(int(child)) for child in found]


def expired(webhook: Webhook) -> None:
    webhook.write_pair(short_lived(-60))
    restart(webhook)


def of_another_authority(webhook: Webhook) -> None:
    webhook.write_pair(short_lived(3600))
    restart(webhook)


def restart(webhook: Webhook) -> None:
    """Start again, so that no connection from before is used; it need not become ready."""
    webhook.stop()
    webhook.start(ready=False)
    webhook.wait(lambda: is_listening(webhook), "the webhook to listen")


def is_listening(webhook: Webhook) -> bool:
    with socket.create_connection(("127.0.0.1", webhook.port)):
        return True


@pytest.mark.promise("O212")
@pytest.mark.parametrize(
    "trouble", [stopped, killed, expired, of_another_authority], ids=lambda f: f.__name__
)
def test_pods_are_created_as_written_when_the_webhook_is(
    trouble: Callable[[Webhook], None], module_cluster: Cluster, restored: Webhook, opted_in: str
) -> None:
    api = module_cluster.api()
    assert is_gated(api, opted_in)
    trouble(restored)
    module_cluster.wait_for("the API server to do without", lambda: not is_gated(api, opted_in))
    assert not create(api, opted_in, gpu_pod("p"))["spec"].get("schedulingGates")


@pytest.mark.promise("O212")
def test_a_webhook_that_hangs_delays_a_pod_by_its_timeout_and_no_longer(
    module_cluster: Cluster, restored: Webhook, opted_in: str
) -> None:
    """The API server sees to that: it is asked while the webhook still hangs."""
    api = module_cluster.api()
    (hook,) = api.json("GET", f"{WEBHOOKS}/topogate")["webhooks"]
    assert hook["timeoutSeconds"] == TIMEOUT_SECONDS
    workers = children(restored)
    for worker in workers:
        processes.pause(worker)
    try:
        assert "schedulingGates" not in create(api, opted_in, gpu_pod())["spec"]
    finally:
        for worker in workers:
            worker.send(signal.SIGCONT)
    module_cluster.wait_for("gates again", lambda: is_gated(api, opted_in))


@pytest.fixture(scope="module")
def liar() -> Iterator[Neighbour]:
    with neighbour() as made:
        yield made


def point_at(api: Api, webhook: Webhook, other: Neighbour) -> None:
    liar_config = client_config(webhook, other.pair.authority) | {"url": f"{other.url}/mutate"}
    change = [{"op": "replace", "path": "/webhooks/0/clientConfig", "value": liar_config}]
    api.request("PATCH", f"{WEBHOOKS}/topogate", body=change, content_type=JSON_PATCH)


def without_account(**spec: object) -> dict[str, Any]:
    """A GPU pod that the API server takes as a mirror pod too."""
    made = gpu_pod("p")
    made["spec"] |= {"automountServiceAccountToken": False, **spec}
    return made


MIRROR = {"annotations": {keys.MIRROR_POD_ANNOTATION: "x"}}
NOT_CALLED = {
    "bound": without_account(nodeName="n"),
    "opted out": gpu_pod("p", annotations={keys.INJECT_ANNOTATION: keys.INJECT_NO}),
    "a mirror pod": {**without_account(), "metadata": {"name": "p", **MIRROR}},
    "of a DaemonSet": {**gpu_pod("p"), "metadata": {"name": "p", **owned("DaemonSet", "apps/v1")}},
}


@pytest.mark.promise("R39")
@pytest.mark.parametrize("case", NOT_CALLED)
def test_the_api_server_does_not_even_call_for_a_pod_that_is(
    case: str, module_cluster: Cluster, restored: Webhook, opted_in: str, liar: Neighbour
) -> None:
    api = module_cluster.api()
    liar.raw, liar.status = b"{}", 200
    point_at(api, restored, liar)
    module_cluster.wait_for("the liar to be asked", lambda: not is_gated(api, opted_in))
    before = liar.calls
    with contextlib.suppress(ApiError):  # a mirror pod of nobody is refused, but only afterwards
        create(api, opted_in, NOT_CALLED[case])
    assert liar.calls == before
    create(api, opted_in, gpu_pod("control"))
    assert liar.calls > before


@pytest.mark.promise("S34")
def test_under_failure_policy_fail_no_pod_comes_past_a_webhook_that_is_down(
    module_cluster: Cluster, restored: Webhook, opted_in: str
) -> None:
    api = module_cluster.api()
    change = [{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Fail"}]
    api.request("PATCH", f"{WEBHOOKS}/topogate", body=change, content_type=JSON_PATCH)
    restored.stop()

    def is_refused() -> bool:
        try:
            create(api, opted_in, gpu_pod())
        except ApiError as error:
            return "failed calling webhook" in error.message
        return False

    module_cluster.wait_for("the API server to know the new failurePolicy", is_refused)


@pytest.mark.promise("O227")
def test_a_webhook_that_is_stopped_answers_what_is_under_way_and_loses_no_pod(
    module_cluster: Cluster, restored: Webhook, opted_in: str
) -> None:
    """Reviews on connections that are open when SIGTERM comes are answered; the next ones fail open."""
    api = module_cluster.api()
    change = [{"op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": 30}]
    api.request("PATCH", f"{WEBHOOKS}/topogate", body=change, content_type=JSON_PATCH)
    assert is_gated(api, opted_in)
    assert restored.process is not None
    workers = children(restored)
    for worker in workers:  # what comes now is there when SIGTERM is
        processes.pause(worker)
    with ThreadPoolExecutor(1) as pool:
        try:
            stored = pool.submit(create, api, opted_in, gpu_pod("during-the-drain"))
            module_cluster.wait_for("the review to be there", lambda: has_unread(restored.port))
            restored.process.terminate()
        finally:
            for worker in workers:
                worker.send(signal.SIGCONT)
        assert stored.result()["spec"].get("schedulingGates")
    assert restored.process.wait(90) == 0
    restored.process = None
    assert not is_gated(api, opted_in)


def has_unread(port: int) -> bool:
    """Whether something lies in a connection of this server that it has not read."""
    established, rows = "01", Path("/proc/net/tcp").read_text().splitlines()[1:]
    return any(
        local.endswith(f":{port:04X}") and state == established and not queues.endswith(":00000000")
        for _, local, _, state, queues, *_ in map(str.split, rows)
    )
