"""What a person sees on the page, and that it is what the API server has."""

import json
import random
import re
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from playwright.sync_api import Page, expect

from hack.local.cluster import Cluster
from labeler.contract import keys
from webhook.cli.main import main
from webhook.extensions.node_health import avoided_nodes
from webhook.extensions.node_health.failing_nodes import FailingNode, FailingNodes
from webhook.kube.client import Api
from webhook.kube.events import Recorder, Reference
from webhook.kube.objects import Pod
from webhook.kube.placements import GROUP_VERSION, KIND, PlacementSpec, write_plan
from webhook.kube.plan_pods import PlannedPod
from webhook.kube.state_config_map import NAMESPACE, path_of
from webhook.sweeper.observe.gangs import key_of
from webhook.text import printable

GPU = {"limits": {"nvidia.com/gpu": "8"}}


def pod(name: str, node: str = "", **annotations: str) -> dict[str, Any]:
    """A GPU pod: gated without a node, else sent to it."""
    place = {"nodeName": node} if node else {"schedulingGates": [{"name": keys.GATE}]}
    return {
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"containers": [{"name": "c", "image": "x", "resources": GPU}], **place},
    }


def create(api: Api, namespace: str, body: dict[str, Any]) -> None:
    api.request("POST", f"/api/v1/namespaces/{namespace}/pods", body=body)


def gang(api: Api, namespace: str, name: str, count: int, pods: str = "p", **annotations: str) -> None:
    """Gated pods that belong together by annotation. pods: how their names begin."""
    for index in range(count):
        own = {keys.GANG_ANNOTATION: name, keys.GANG_SIZE_ANNOTATION: str(count), **annotations}
        create(api, namespace, pod(f"{pods}{index}", **own))


def tile(page: Page, node: str) -> Any:
    return page.locator(f'[data-node="{node}"]')


def test_a_bound_pod_changes_its_node_from_free_to_used_without_a_reload(
    page: Page, eight_nodes: Cluster, namespace: str
) -> None:
    expect(tile(page, "node-b0-s0-h00")).to_have_attribute("data-state", "free")
    create(eight_nodes.api(), namespace, pod("a", "node-b0-s0-h00"))
    expect(tile(page, "node-b0-s0-h00")).to_have_attribute("data-state", "used")
    expect(page.locator("#summary")).to_contain_text("8 of 64 GPUs used")


@pytest.mark.promise("R191")
def test_a_waiting_gang_shows_the_sentences_of_topogate_explain_and_its_nearest_domain(
    page: Page, eight_nodes: Cluster, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    gang(eight_nodes.api(), namespace, "wide", 5, **{keys.REQUIRED_TOPOLOGY_ANNOTATION: "block"})
    assert main(["explain", "pod/p0", "-n", namespace, "--kubeconfig", str(eight_nodes.kubeconfig)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("capacity for 4 of 5" in line for line in lines)
    page.locator("#gang-rows a", has_text=f"{namespace}/Gang/wide").click()
    # The page may have been drawn while the gang's pods were still being made: it comes to the same words.
    expect(page.locator("#gang .sentence")).to_have_text(lines)
    expect(page.locator(".domain.near")).to_have_attribute("data-domain", "1/b0")


def test_the_pane_of_a_gang_shows_its_plan_and_its_events(
    page: Page, eight_nodes: Cluster, namespace: str
) -> None:
    api = eight_nodes.api()
    gang(api, namespace, "planned", 2)
    pods = api.json("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
    plan = [
        PlannedPod(pod["metadata"]["name"], pod["metadata"]["uid"], f"node-b1-s0-h0{rank}", rank)
        for rank, pod in enumerate(pods)
    ]
    key = key_of(msgspec.convert(pods[0], Pod))
    spec = PlacementSpec(gang=f"{key.kind}/{key.name}", size=2, pods=plan)
    placement = write_plan(api, None, {"name": key.placement_name, "namespace": namespace}, spec)
    recorder = Recorder(api, "topogate.io/sweeper", "sweeper")
    recorder.start()
    about = Reference.of(GROUP_VERSION, KIND, placement.metadata)
    recorder.event(about, "GangPlaced", "Place", "2 pods placed on 1 block")
    recorder.close()
    page.locator("#gang-rows a", has_text=f"{namespace}/Gang/planned").click()
    expect(page.locator("#gang summary")).to_have_text(["Plan: 2 pods", "Events: 1"])
    for summary in page.locator("#gang summary").all():
        summary.click()
    expect(page.locator("#gang .plan li")).to_have_text(["0 p0: node-b1-s0-h00", "1 p1: node-b1-s0-h01"])
    expect(page.locator("#gang .events li")).to_have_text(
        re.compile("^GangPlaced .* ago: 2 pods placed on 1 block$")
    )
    expect(tile(page, "node-b1-s0-h01").locator("text")).to_have_text("1")


def test_a_node_where_pods_fail_is_named_first_with_the_reason_and_marked_on_the_map(
    page: Page, eight_nodes: Cluster
) -> None:
    """The record is the sweeper's own, in the object of the manifests."""
    api, node, now = eight_nodes.api(), "node-b1-s1-h00", int(time.time())
    failing = FailingNode(node, "h100", 3, "container exits with code 139", now, now + 600)
    data = avoided_nodes.data_of((), FailingNodes(for_all={node: failing}))
    api.request("POST", "/api/v1/namespaces", body={"metadata": {"name": NAMESPACE}})
    body = {"metadata": {"name": avoided_nodes.NAME}, "data": data}
    api.request("POST", f"/api/v1/namespaces/{NAMESPACE}/configmaps", body=body)
    expect(page.locator("#troubles-sum")).to_have_text("8 nodes, 1 avoided")
    expect(page.locator("#troubles-list li")).to_contain_text([f"{node}avoidedpods of 3 gangs failed there"])
    expect(tile(page, node).locator("path.avoided")).to_have_count(1)
    api.request("DELETE", path_of(avoided_nodes.NAME))


@pytest.mark.promise("R193")
def test_what_if_places_a_manifest_where_topogate_simulate_does(
    page: Page, eight_nodes: Cluster, namespace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    api = eight_nodes.api()
    create(api, namespace, pod("a", "node-b0-s0-h00"))
    expect(tile(page, "node-b0-s0-h00")).to_have_attribute("data-state", "used")
    manifest = {"apiVersion": "v1", "kind": "Pod", **pod("new"), "metadata": {"name": "new"}}
    page.locator("#what-if-manifest").fill(json.dumps(manifest))
    page.get_by_role("button", name="Place it").click()
    expect(page.locator("#what-if-answer")).to_contain_text("It fits")
    shown = page.locator("svg rect.what-if").locator("..").get_attribute("data-node")
    dump = {"kind": "List", "items": [*items(api, "nodes", "Node"), *items(api, "pods", "Pod")]}
    (tmp_path / "cluster.json").write_text(json.dumps(dump))
    (tmp_path / "pod.json").write_text(json.dumps(manifest))
    files = ["--cluster", str(tmp_path / "cluster.json"), str(tmp_path / "pod.json")]
    assert main(["simulate", "--output", "json", *files]) == 0
    placed = json.loads(capsys.readouterr().out)
    assert shown == placed["placed"][0]["node"]


def items(api: Api, resource: str, kind: str) -> list[dict[str, Any]]:
    return [{"kind": kind, **item} for item in api.json("GET", f"/api/v1/{resource}")["items"]]


HOSTILE = (
    '<img src=x onerror="document.title=1">',
    "ü–\u202e漢字",
    "a" * 63,
    "</script><script>alert(1)</script>",
)


@pytest.mark.promise("S3")
def test_a_hostile_name_stays_text(page: Page, eight_nodes: Cluster, namespace: str) -> None:
    for number, name in enumerate(HOSTILE):
        gang(eight_nodes.api(), namespace, name, 1, f"of-{number}-")
    for name in HOSTILE:
        shown = f"{namespace}/Gang/{printable(name)}"
        page.locator("#gang-rows a").get_by_text(shown, exact=True).click()
        expect(page.locator("#gang h2")).to_have_text(shown)
    assert page.locator("#gang img, #gang-rows img, #gangs script").count() == 0
    assert page.title() == "topogate"


def test_after_many_random_events_the_page_equals_the_api_servers_state(
    page: Page, eight_nodes: Cluster, namespace: str
) -> None:
    api, random_ = eight_nodes.api(), random.Random(17)
    nodes = [node["metadata"]["name"] for node in items(api, "nodes", "Node")]
    there: dict[str, str] = {}
    for number in range(100):
        if there and random_.random() < 0.5:
            name = random_.choice(sorted(there))
            path = f"/api/v1/namespaces/{namespace}/pods/{name}"
            api.request("DELETE", path, query={"gracePeriodSeconds": "0"})
            del there[name]
        else:
            name, free = f"r{number}", sorted(set(nodes) - set(there.values()))
            if free:
                there[name] = random_.choice(free)
                create(api, namespace, pod(name, there[name]))
    for node in nodes:
        state = "used" if node in there.values() else "free"
        expect(tile(page, node)).to_have_attribute("data-state", state)


def test_everything_is_reached_by_keyboard(page: Page, eight_nodes: Cluster, namespace: str) -> None:
    gang(eight_nodes.api(), namespace, "keys", 1)
    row = page.locator("#gang-rows a", has_text=f"{namespace}/Gang/keys")
    expect(row).to_be_visible()
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent").endswith("/Gang/keys"):
            break
    page.keyboard.press("Enter")
    expect(page.locator("#gang h2")).to_contain_text("keys")
