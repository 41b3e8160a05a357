"""What the page draws of a cluster in memory: states of nodes, what viewers see, what a redraw leaves."""

from typing import Any

import msgspec
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from hack.local import nodes
from tests.browser.served_pages import served
from tests.ui.pictures import holding
from tests.ui.scenes import (
    COUNTING,
    SETTINGS,
    bound_pod,
    cluster_of,
    scene_of,
    waiting_job,
)
from webhook.inquiry.cluster_state import ClusterReading
from webhook.kube.objects import Node, Pod
from webhook.sweeper.observe.gangs import OwnerFacts
from webhook.ui.live import Artist, Scene
from webhook.ui.redact import Rights
from webhook.ui.viewer_access import CurrentViewer, LaptopAccess

FIRST, SECOND, THIRD = "node-b0-s0-h00", "node-b0-s0-h01", "node-b0-s1-h00"
CORDONED = {THIRD: {"spec": {"unschedulable": True}}}


class OtherTenant(LaptopAccess):
    """Lets a viewer in who may list nodes, and the pods of the namespace `mine` alone."""

    def seen(self, viewer: Any, namespaces: Any) -> CurrentViewer:
        return CurrentViewer("stranger", Rights(frozenset({"mine"})), frozenset())


def reserved_scene(namespace: str = "ns") -> Scene:
    """A job of two waits and holds SECOND; a pod runs on FIRST; THIRD is cordoned."""
    pods = waiting_job(2, namespace=namespace)
    return scene_of(
        cluster_of([bound_pod("a", FIRST), *pods], holding(pods, SECOND, state="Waiting"), CORDONED, size=2)
    )


@pytest.mark.promise("R191")
def test_each_state_of_a_node_is_drawn_and_shows_its_cause_on_hover(browser: Browser) -> None:
    with served(browser, reserved_scene()) as page:
        for node, state, words in (
            (FIRST, "used", "8 of 8 GPUs used"),
            (SECOND, "reserved", "reserved for ns/Job/train until 2026-01-01T00:30:00Z"),
            (THIRD, "excluded", "excluded: cordoned"),
            ("node-b1-s0-h00", "free", "0 of 8 GPUs used"),
        ):
            expect(page.tile(node)).to_have_attribute("data-state", state)
            expect(page.tile(node).locator("title")).to_contain_text(words)
        expect(page.tile(SECOND).locator("rect.reserved")).to_have_count(1)


@pytest.mark.promise("O145")
def test_a_node_that_gangs_avoid_is_marked_with_the_reason(browser: Browser) -> None:
    bad = {FIRST: "pods of 3 gangs failed there"}
    with served(browser, Artist(cluster_of([]), SETTINGS, COUNTING, lambda: bad).scene()) as page:
        expect(page.tile(FIRST).locator("title")).to_contain_text("avoided: pods of 3 gangs failed there")
        expect(page.tile(FIRST).locator("path.avoided")).to_have_count(1)
        expect(page.tile(SECOND).locator("path.avoided")).to_have_count(0)


def test_a_viewer_without_rights_sees_what_is_used_but_no_names(browser: Browser) -> None:
    with served(browser, reserved_scene("theirs"), OtherTenant) as page:
        expect(page.page.locator("#summary")).to_contain_text("8 of 56 GPUs used")
        expect(page.tile(SECOND).locator("title")).to_contain_text("reserved for (hidden)")
        page.page.get_by_role("button", name="b0", exact=True).click()
        expect(page.page.locator("#domain-nodes")).to_contain_text("(hidden)/(hidden): 8 GPUs, bound")
        expect(page.page.locator("#gangs-hidden")).to_have_text(
            "1 more are in namespaces whose pods you may not list."
        )
        shown = page.page.locator("body").inner_html()
        for name in ("theirs", "train", "ns/a"):
            assert name not in shown


def test_a_redraw_leaves_the_keyboard_where_it_was_and_open_what_was_open(browser: Browser) -> None:
    with served(browser, reserved_scene()) as page:
        row = page.page.locator("#gang-rows a", has_text="ns/Job/train")
        row.click()
        page.page.locator("#gang summary").first.click()
        row.focus()
        page.live.put(scene_of(cluster_of(waiting_job(2), size=2)))
        expect(page.tile(FIRST)).to_have_attribute("data-state", "free")
        expect(row).to_be_focused()
        expect(page.page.locator("#gang details").first).to_have_attribute("open", "")


def test_a_waiting_gang_is_tried_with_another_size_level_and_model(browser: Browser) -> None:
    pods = waiting_job(2)
    cluster = cluster_of([bound_pod("a", FIRST), *pods], {}, CORDONED, size=2)
    second = cluster.nodes[SECOND]
    second.metadata.labels["nvidia.com/gpu.product"] = "H100"
    with served(browser, scene_of(cluster)) as page:
        form = page.page
        form.locator("#what-if-gang").select_option(label="ns/Job/train")
        answer = form.locator("#what-if-answer")
        form.locator("#what-if-size").fill("7")
        form.get_by_role("button", name="Place it").click()
        expect(answer).to_contain_text("capacity for 6 of 7")
        form.locator("#what-if-size").fill("2")
        form.locator("#what-if-level").select_option("host")
        form.get_by_role("button", name="Place it").click()
        expect(answer).to_contain_text("into one host")
        form.locator("#what-if-level").select_option("")
        form.locator("#what-if-model").select_option("H100")
        form.get_by_role("button", name="Place it").click()
        expect(answer).to_contain_text("capacity for 1 of 2")


def test_the_list_shows_why_a_gang_waits(browser: Browser) -> None:
    pods = waiting_job(2)
    placed = holding(pods, SECOND, state="Waiting", reason="no room: <b>3 of 5</b>")
    with served(browser, scene_of(cluster_of(pods, placed, size=2))) as page:
        expect(page.page.locator("#gang-rows .reason")).to_have_text("no room: <b>3 of 5</b>")


def test_axe_finds_nothing_where_every_state_is_drawn_in_light_and_dark_colours(browser: Browser) -> None:
    with served(browser, reserved_scene()) as page:
        page.page.locator("#gang-rows a", has_text="ns/Job/train").click()
        expect(page.page.locator("#gang .sentence").first).to_be_visible()
        for scheme in ("light", "dark"):
            page.page.emulate_media(color_scheme=scheme)
            found = Axe().run(page.page)
            assert found.violations_count == 0, found.generate_report()


@pytest.mark.promise("R235")
def test_a_block_of_more_nodes_than_one_answer_holds_is_opened_by_its_parts(browser: Browser) -> None:
    grid = nodes.grid(nodes.Shape(nodes=5_200, blocks=1, subblocks=26))
    made = {node.name: msgspec.convert(node.manifest(node.topology_labels), Node) for node in grid}

    def scene(*pods: Pod) -> Scene:
        return scene_of(ClusterReading(pods, made, {}, lambda _: OwnerFacts()))

    with served(browser, scene()) as it:
        it.page.get_by_role("button", name="Show 200 nodes").nth(1).click()
        expect(it.tile("node-b0-s1-h00")).to_have_attribute("data-state", "free")
        expect(it.page.locator("[data-node]")).to_have_count(200)
        it.live.put(scene(bound_pod("late", "node-b0-s1-h00", 8)))
        expect(it.tile("node-b0-s1-h00")).to_have_attribute("data-state", "used")
        expect(it.page.locator("#summary")).to_contain_text("8 of 41600 GPUs used")


def test_what_could_be_read_is_drawn_though_a_part_was_refused(browser: Browser) -> None:
    first = scene_of(cluster_of([]))
    with served(browser, first) as it:
        it.page.route("**/api/nodes?*", lambda route: route.fulfill(status=503, json={"error": "not now"}))
        it.live.put(scene_of(cluster_of([bound_pod("late", FIRST, 8)])))
        expect(it.page.locator("#summary")).to_contain_text("8 of 64 GPUs used")
        expect(it.page.locator("#problem")).to_have_text("not now")
