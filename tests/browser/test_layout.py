"""What the page answers at a glance, of small and large clusters, on a laptop and on a phone."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from hack.benchmarks.page import synthetic
from tests.browser.served_pages import Served, box_of, served
from tests.ui.busy import CORDONED, FAILING, busy_scene
from tests.ui.scenes import COUNTING, GRID, SETTINGS, Changes, cluster_of, scene_of
from webhook.ui.live import Artist, Scene

LAPTOP = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 800}
LONGEST = "research/Job/train-405b"


def large(nodes: int) -> Scene:
    return Artist(synthetic(nodes), SETTINGS, COUNTING).scene()


def sized(it: Served, size: dict[str, int]) -> Page:
    it.page.set_viewport_size(size)  # type: ignore[arg-type]
    expect(it.page.locator("#charts canvas")).to_have_count(4)
    return it.page


def bottom(page: Page, selector: str, nth: int = 0) -> float:
    box = box_of(page, selector, nth)
    return box["y"] + box["height"]


@pytest.fixture(scope="module")
def busy_page(browser: Browser) -> Iterator[Served]:
    """The page of the busy cluster, opened once."""
    with served(browser, busy_scene()) as it:
        yield it


@pytest.fixture
def busy(busy_page: Served) -> Iterator[Served]:
    """The same, with nothing chosen and all gangs shown after each test."""
    yield busy_page
    busy_page.page.keyboard.press("Escape")
    for select in ("#of-namespace", "#of-state", "#of-model"):
        busy_page.page.locator(select).select_option("")


@pytest.mark.promise("R191")
def test_the_first_screen_shows_what_waits_why_and_where_there_is_free_capacity(busy: Served) -> None:
    page = sized(busy, LAPTOP)
    first = page.locator("#waiting-list li").first
    expect(first).to_contain_text(LONGEST)
    expect(first).to_contain_text("capacity for 6 of 40")
    rows = page.locator("#room-rows tr")
    expect(rows).to_contain_text(["48", "120 in b3"])
    for selector in ("#waiting", "#room", "#domains"):
        assert bottom(page, selector) <= LAPTOP["height"]
    expect(page.locator("#summary")).to_have_text("64 nodes, 228 of 504 GPUs used, 7 gangs wait")


@pytest.mark.promise("R191")
def test_a_node_that_fails_and_one_out_of_use_are_named_first(busy: Served) -> None:
    expect(busy.page.locator("#troubles-list li")).to_contain_text([FAILING, CORDONED])
    busy.page.get_by_role("button", name=FAILING).click()
    expect(busy.page.locator("#domain-nodes")).to_contain_text("avoided: pods of 3 gangs failed there")


@pytest.mark.promise("R191")
def test_a_block_shows_who_has_it(busy: Served) -> None:
    busy.page.get_by_role("button", name="b2", exact=True).click()
    holders = busy.page.locator("#domain-nodes .holders li")
    expect(holders).to_have_text(
        ["search/Job/embed: 48 GPUs, 6 pods", "vision/Job/detector: 32 GPUs, 4 pods"]
    )
    holders.first.get_by_role("link").click()
    expect(busy.page.locator("#gang h2")).to_have_text("search/Job/embed")


def test_the_list_of_gangs_grows_with_the_page_and_the_map_uses_the_width(busy: Served) -> None:
    page = sized(busy, LAPTOP)
    assert bottom(page, "#gang-rows tr.gang", 12) <= bottom(page, "#gangs")
    hidden = page.locator("#gang-table").evaluate("""each => {
        const within = [];
        for (let at = each; at !== document.body; at = at.parentElement) within.push(at);
        const scrolls = (at) => getComputedStyle(at).overflowY !== "visible";
        return within.some((at) => at.scrollHeight > at.clientHeight + 1 && scrolls(at));
    }""")
    assert not hidden, "a box within the page scrolls"
    assert box_of(page, "#domains")["width"] > 0.65 * LAPTOP["width"]


def test_gpus_of_no_known_model_have_one_name_everywhere(browser: Browser) -> None:
    labels: Changes = {GRID[0].name: {"metadata": {"labels": GRID[0].topology_labels}}}
    with served(browser, scene_of(cluster_of([], changes=labels))) as it:
        expect(it.page.locator("#room-rows")).to_contain_text("(unknown)")
        expect(it.page.locator("#charts figcaption").first).to_contain_text("(unknown)")


@pytest.mark.promise("R191")
def test_the_table_is_filtered_by_namespace_state_and_model(busy: Served) -> None:
    rows = busy.page.locator("#gang-rows tr.gang")
    expect(rows).to_have_count(13)
    busy.page.locator("#of-namespace").select_option("research")
    expect(rows).to_have_count(4)
    busy.page.locator("#of-state").select_option("Waiting")
    expect(rows).to_have_count(1)
    expect(busy.page.locator("#gangs-count")).to_have_text("1 of 13 gangs")
    busy.page.locator("#of-namespace").select_option("")
    busy.page.locator("#of-model").select_option("NVIDIA-A100-SXM4-80GB")
    expect(rows).to_have_count(2)


@pytest.mark.promise("R191")
def test_the_table_is_sorted_by_a_column_both_ways(busy: Served) -> None:
    first = busy.page.locator("#gang-rows tr.gang").first
    busy.page.get_by_role("button", name="GPUs", exact=True).click()
    expect(first).to_contain_text("guest/Job/quick")
    expect(busy.page.locator('#gang-head [data-key="gpus"]')).to_have_attribute("aria-sort", "ascending")
    busy.page.get_by_role("button", name="GPUs", exact=True).click()
    expect(first).to_contain_text(LONGEST)


@pytest.mark.promise("R191")
def test_a_chosen_gang_has_an_address_that_opens_it_again(browser: Browser) -> None:
    with served(browser, busy_scene()) as it:
        it.page.locator("#gang-rows a", has_text="search/Job/embed").click()
        expect(it.page.locator("#gang h2")).to_have_text("search/Job/embed")
        address = it.page.url
        assert "#/gang/search/" in address
        it.page.keyboard.press("Escape")
        expect(it.page.locator("#gang")).to_be_hidden()
        other = it.page.context.new_page()
        other.goto(address)
        expect(other.locator("#gang h2")).to_have_text("search/Job/embed")
        expect(other.locator("svg rect.chosen")).to_have_count(6)
        other.goto(address.partition("#")[0] + "#/gang/research/train-8b")
        expect(other.locator("#gang h2")).to_have_text("research/Job/train-8b")
        other.close()


def test_the_answer_of_what_if_stands_above_its_form_and_on_the_screen(browser: Browser) -> None:
    with served(browser, busy_scene()) as it:
        page = sized(it, LAPTOP)
        page.locator("#what-if-gang").select_option(label="vision/Job/pretrain")
        page.locator("#what-if-size").fill("4")
        page.get_by_role("button", name="Place it").click()
        expect(page.locator("#what-if-answer")).to_contain_text("It fits")
        expect(page.locator("svg rect.what-if")).to_have_count(4)
        assert bottom(page, "#what-if-answer") <= bottom(page, "#what-if-size") <= LAPTOP["height"]


def test_axes_of_the_charts_have_units_and_end_at_round_numbers(busy: Served) -> None:
    captions = busy.page.locator("#charts figcaption")
    expect(captions).to_have_count(4)
    expect(captions.nth(0)).to_contain_text("of 504")
    # Later lines are drawn over earlier ones, and p50 is never above p95.
    expect(captions.nth(2)).to_have_text(re.compile("p95.*p50"))
    expect(captions.nth(3)).to_contain_text("%")
    tops = busy.page.evaluate("""async () => {
        const history = await import("/static/history.js");
        const durations = [59, 61, 18600, 200000].map(history.roundDuration);
        return durations.concat([1, 3, 122].map(history.roundUp));
    }""")
    assert tops == [60, 120, 21600, 432000, 1, 5, 200]


def test_charts_of_one_sample_show_ten_minutes_and_three_round_marks(busy: Served) -> None:
    expect(busy.page.locator("#charts canvas")).to_have_count(4)
    shown = busy.page.evaluate("""async () => {
        const { charts } = await import("/static/history.js");
        return [...charts.values()].map(({ chart: { scales: { x, y }, axes }, chart }) =>
            [x.max - x.min, axes[1].values(chart, axes[1].splits(chart, 1, y.min, y.max))]);
    }""")
    assert [seconds for seconds, _ in shown] == [pytest.approx(600)] * 4
    marks = [each for _, each in shown]
    assert marks == [
        ["0", "100", "200"],
        ["0", "100", "200"],
        ["0 s", "3 h", "6 h"],
        ["0 %", "50 %", "100 %"],
    ]


@pytest.mark.promise("R235")
def test_up_to_5000_nodes_are_all_drawn_within_the_first_screen(browser: Browser) -> None:
    with served(browser, large(5000)) as it:
        page = sized(it, LAPTOP)
        expect(page.locator("#domains svg.dense")).to_have_count(100)
        assert bottom(page, "#domains") <= LAPTOP["height"]
        box = box_of(page, "#domains svg.dense")
        page.mouse.move(box["x"] + 2, box["y"] + 2)
        expect(page.locator("#tip")).to_contain_text("8 of 8 GPUs used")
        page.mouse.click(box["x"] + 2, box["y"] + 2)
        expect(page.locator("#domain-nodes h2")).to_contain_text("Node node-b0-s0-h00")


@pytest.fixture(scope="module")
def largest() -> Scene:
    return large(65_000)


@pytest.mark.promise("R235")
@pytest.mark.when_changed("webhook/ui")
def test_more_nodes_are_summed_up_by_block_until_one_is_opened(browser: Browser, largest: Scene) -> None:
    with served(browser, largest) as it:
        page = sized(it, LAPTOP)
        expect(page.locator("#domains .rack")).to_have_count(130)
        assert bottom(page, "#map") < 2 * LAPTOP["height"], "gangs are less than two screens away"
        page.get_by_role("button", name="Show 500 nodes of b3", exact=True).click()
        expect(page.locator('[data-domain="1/b3"] svg.nodes')).to_have_count(10)


def test_axe_finds_nothing_and_nothing_is_wider_than_the_screen(browser: Browser) -> None:
    is_accessible_and_fits(browser, busy_scene())


@pytest.mark.when_changed("webhook/ui")
def test_axe_finds_nothing_on_the_page_of_a_large_cluster(browser: Browser, largest: Scene) -> None:
    for scene in (large(5000), largest):
        is_accessible_and_fits(browser, scene)


def is_accessible_and_fits(browser: Browser, scene: Scene) -> None:
    """On a laptop and on a phone, before a gang is chosen and after."""
    with served(browser, scene) as it:
        for element in (None, "#gang-rows a"):
            if element:
                it.page.locator(element).first.click()
                expect(it.page.locator("#gang .sentence").first).to_be_visible()
            for size in (LAPTOP, PHONE):
                page = sized(it, size)
                assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
                found: Any = Axe().run(page)
                assert found.violations_count == 0, found.generate_report()


def test_on_a_phone_gangs_come_before_the_map_and_parts_are_a_thumb_away(busy: Served) -> None:
    page = sized(busy, PHONE)
    assert bottom(page, "#waiting") < bottom(page, "#gangs") < bottom(page, "#map")
    reason = page.locator("#gang-rows .reason").first
    assert reason.evaluate("each => each.scrollWidth <= each.clientWidth")
    page.locator("#jump").get_by_role("button", name="Map").click()
    expect(page.locator("#domains")).to_be_in_viewport()
    button = box_of(page, "#jump button")
    assert button["height"] >= 44
    assert button["y"] > PHONE["height"] / 2
