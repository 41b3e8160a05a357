"""`topogate ui` as a process: where it listens, whose rights it has, and what it asks of the API server."""

import json
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.local import nodes
from hack.local.cluster import Cluster
from hack.local.controlplane import free_port
from tests.support import audited, delete_namespace, install_definitions, listened_on, register_nodes

READER = "reader"
AUDITED = "topogate-system"
"""Whatever accounts of this namespace ask for, the local API server writes down."""
RBAC = "/apis/rbac.authorization.k8s.io/v1"


@dataclass(frozen=True)
class Laptop:
    """A page with the rights of an account that may read everything but Events, and write nothing."""

    cluster: Cluster
    address: str
    pid: int
    user: str
    folder: Path

    def opened(self) -> urllib.request.OpenerDirector:
        """A browser that has opened the address."""
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        browser.open(self.address, timeout=60).read()
        return browser

    def at(self, path: str) -> str:
        return self.address.partition("?")[0] + path


@pytest.fixture(scope="module")
def laptop(module_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laptop]:
    cluster, folder = module_cluster, tmp_path_factory.mktemp("laptop")
    api = cluster.api()
    install_definitions(cluster)
    register_nodes(cluster, nodes.grid(nodes.Shape(nodes=4, blocks=2, subblocks=1)))
    api.request("POST", "/api/v1/namespaces", body={"metadata": {"name": AUDITED}})
    namespace = AUDITED
    body = {"metadata": {"name": READER}}
    api.request("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", body=body)
    reads = ["get", "list", "watch"]
    rules = [
        {"apiGroups": ["", "batch", "apps", "policy", "storage.k8s.io"], "resources": ["*"], "verbs": reads},
        {"apiGroups": ["resource.k8s.io", "topogate.io"], "resources": ["*"], "verbs": reads},
    ]
    api.request("POST", f"{RBAC}/clusterroles", body={**body, "rules": rules})
    bound = {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": READER},
        "subjects": [{"kind": "ServiceAccount", "name": READER, "namespace": namespace}],
    }
    api.request("POST", f"{RBAC}/clusterrolebindings", body={**body, **bound})
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{READER}/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    (folder / "token").write_text(api.json("POST", path, body=request)["status"]["token"])
    cluster.write_token_kubeconfig(folder / "kubeconfig", folder / "token")
    container = {"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    pod = {"metadata": {"name": "busy"}, "spec": {"containers": [container], "nodeName": "node-b0-s0-h00"}}
    api.request("POST", f"/api/v1/namespaces/{namespace}/pods", body=pod)
    try:
        with served(cluster, folder, f"system:serviceaccount:{namespace}:{READER}") as laptop:
            yield laptop
    finally:
        for kind in ("clusterroles", "clusterrolebindings"):
            api.request("DELETE", f"{RBAC}/{kind}/{READER}")
        delete_namespace(cluster, AUDITED)


@contextmanager
def served(cluster: Cluster, folder: Path, user: str) -> Iterator[Laptop]:
    command = [sys.executable, "-m", "webhook.cli.main", "ui", "--port", str(free_port())]
    command += ["--kubeconfig", str(folder / "kubeconfig")]
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
        ) as process,
    ):
        try:
            assert process.stdout is not None
            yield Laptop(cluster, process.stdout.readline().strip(), process.pid, user, folder)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(90)


def picture(laptop: Laptop) -> dict[str, Any]:
    """What the page draws, once it has read the cluster."""
    browser, found = laptop.opened(), dict[str, Any]()

    def is_drawn() -> bool:
        try:
            found.update(json.load(browser.open(laptop.at("api/picture"), timeout=60)))
        except urllib.error.HTTPError as error:
            if error.code != 503:  # the cluster is being read
                raise
        return bool(found)

    laptop.cluster.wait_for("the page to have read the cluster", is_drawn)
    return found


@pytest.mark.promise("R190")
def test_it_prints_an_address_of_loopback_and_listens_nowhere_else(laptop: Laptop) -> None:
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?secret=\S{20,}", laptop.address)
    assert [str(address) for address in listened_on({laptop.pid})] == ["127.0.0.1"]


@pytest.mark.promise("R190")
def test_it_shows_the_cluster_to_whom_its_kubeconfig_lets_read_it(laptop: Laptop) -> None:
    assert sum(domain["used"] for domain in picture(laptop)["domains"] if not domain["parent"]) == 8


@pytest.mark.promise("R190")
def test_it_asks_the_api_server_as_its_kubeconfigs_user_and_only_to_read(laptop: Laptop) -> None:
    """Watches are noted once they end: so this looks at a page of its own, when it is gone."""
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "new", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]},
    }
    with served(laptop.cluster, laptop.folder, laptop.user) as page:
        picture(page)
        question = urllib.request.Request(
            page.at("api/what-if"),
            json.dumps({"manifest": json.dumps(manifest)}).encode(),
            {"Content-Type": "application/json"},
        )
        assert json.load(page.opened().open(question, timeout=60))["fits"]
    own = [entry for entry in audited(laptop.cluster) if entry["user"].get("username") == laptop.user]
    assert {"pods", "nodes", "placements"} <= {entry.get("objectRef", {}).get("resource") for entry in own}
    assert {entry["verb"] for entry in own} <= {"get", "list", "watch"}


def test_it_names_the_cluster_of_its_kubeconfig_and_not_the_files_path(laptop: Laptop) -> None:
    with laptop.opened().open(laptop.at("api/picture"), timeout=60) as answer:
        body = json.load(answer)
    written = yaml.safe_load((laptop.folder / "kubeconfig").read_text())
    assert body["cluster"] == written["contexts"][0]["context"]["cluster"]
    assert str(laptop.folder) not in json.dumps([body["cluster"], body["viewer"]])
