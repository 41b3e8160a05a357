"""The pane of a chosen gang: its plan, its Events, and that it covers nothing."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from playwright.sync_api import Browser, Page, expect

from tests.browser.served_pages import box_of, served
from tests.ui.busy import NAMES, busy_scene
from tests.ui.pictures import placement_of
from tests.ui.scenes import SETTINGS, NoEvents, cluster_of, scene_of, waiting_job
from webhook.inquiry.next_pass import PassFacts
from webhook.kube.client import ApiError
from webhook.kube.objects import Pod
from webhook.sweeper.observe.gangs import OwnerFacts
from webhook.ui.detail import detail
from webhook.ui.redact import EVERYTHING

WAITS = "Gang research/Job/train-405b cannot be placed: 40 pods do not fit into one block."


class Events(NoEvents):
    """An API server with two Events of the Jobs train-405b and embed each, in any namespace."""

    def json(self, method: str, path: str, **options: Any) -> Any:
        return {"items": [each for name in ("train-405b", "embed") for each in events_of(name)]}


class NoRights(NoEvents):
    def json(self, method: str, path: str, **options: Any) -> Any:
        raise ApiError(403, "Forbidden", "events.events.k8s.io is forbidden")


def events_of(name: str) -> list[dict[str, Any]]:
    about = {"regarding": {"name": name}, "metadata": {}}
    waited = {"reason": "GangWaits", "type": "Warning", "note": WAITS, "series": {"count": 7}}
    made = {"reason": "SuccessfulCreate", "type": "Normal", "note": f"Created pod: {name}-0"}
    return [{**about, **waited, "eventTime": ago(3)}, {**about, **made, "eventTime": ago(300)}]


def ago(minutes: int) -> str:
    return (datetime.now(UTC) - timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def choose(page: Page, gang: str) -> None:
    page.locator("#gang-rows a", has_text=gang).click()
    expect(page.locator("#gang h2")).to_have_text(gang)


def unfold(page: Page, summary: str) -> Any:
    """The lines below a summary of the pane, once they are seen."""
    page.locator("#gang summary", has_text=summary).click()
    lines = page.locator(f"#gang ul.{summary.lower()} li")
    expect(lines.first).to_be_visible()
    return lines


def test_the_plan_shows_which_rank_is_on_which_node_or_which_pods_wait(browser: Browser) -> None:
    with served(browser, busy_scene()) as it:
        choose(it.page, "search/Job/embed")
        expect(it.page.locator("#gang summary").first).to_have_text("Plan: 6 pods")
        nodes = NAMES[32:38]
        expect(unfold(it.page, "Plan")).to_have_text(
            [f"{rank} embed-{rank}: {node}" for rank, node in enumerate(nodes)]
        )
        choose(it.page, "research/Job/train-405b")
        expect(it.page.locator("#gang summary").first).to_have_text("Plan: none yet for 40 pods")
        lines = it.page.locator("#gang ul.plan li")  # still unfolded
        expect(lines).to_have_text([re.compile(f"train-405b-{number}: waits") for number in range(40)])


def test_events_show_what_how_long_ago_and_how_often_the_latest_first(browser: Browser) -> None:
    with served(browser, busy_scene(), events=Events()) as it:
        choose(it.page, "research/Job/train-405b")
        expect(it.page.locator("#gang summary").last).to_have_text("Events: 2")
        lines = unfold(it.page, "Events")
        expect(lines).to_have_text(
            [f"GangWaits 3 min ago, 7 times: {WAITS}", "SuccessfulCreate 5 h ago: Created pod: train-405b-0"]
        )
        expect(lines.first.locator("time")).to_have_attribute("title", re.compile("^20.*Z$"))
        expect(lines.first).to_have_class("warning")


def test_events_that_cannot_be_read_are_shown_as_missing(browser: Browser) -> None:
    with served(browser, busy_scene(), events=NoRights()) as it:
        choose(it.page, "search/Job/embed")
        expect(it.page.locator("#gang summary").last).to_contain_text("Events: 0 (they cannot be read: ")
        expect(it.page.locator("#gang summary").first).to_have_text("Plan: 6 pods")


def test_the_reason_stands_out_also_where_it_is_that_of_the_last_try(browser: Browser) -> None:
    pods = waiting_job(9)
    placement = placement_of([], "", pods[0], state="Waiting", reason=reason_of(pods))
    with served(browser, scene_of(cluster_of(pods, placement))) as it:
        choose(it.page, "ns/Job/train")
        expect(it.page.locator("#gang .sentence.now")).to_have_text(
            re.compile("^Last attempt: .* has capacity for 8 of 9")
        )
        expect(it.page.locator("#gang .sentence", has_text="Now: the same.")).to_have_class("sentence ")


def reason_of(pods: list[Pod]) -> str:
    """Why these wait, as the sweeper would have written it."""
    scene = scene_of(cluster_of(pods))
    facts = PassFacts(lambda _: OwnerFacts())
    lines = detail(scene.gangs[0], scene, SETTINGS, facts, EVERYTHING).sentences
    return next(line.removeprefix("Now: ") for line in lines if line.startswith("Now: "))


def test_the_map_is_as_high_as_its_blocks_beside_a_long_pane(browser: Browser) -> None:
    with served(browser, scene_of(cluster_of(waiting_job(9)))) as it:
        it.page.set_viewport_size({"width": 1280, "height": 800})
        choose(it.page, "ns/Job/train")
        unfold(it.page, "Plan")
        domains, gangs, side = (box_of(it.page, each) for each in ("#domains", "#gangs", "#side"))
        assert side["height"] > 2 * domains["height"], "the pane is the longer one"
        assert gangs["y"] - (domains["y"] + domains["height"]) < 40


def test_the_pane_covers_no_chart_when_one_scrolls_to_the_end(browser: Browser) -> None:
    with served(browser, busy_scene(), events=Events()) as it:
        it.page.set_viewport_size({"width": 1280, "height": 800})
        expect(it.page.locator("#charts canvas")).to_have_count(4)
        choose(it.page, "research/Job/train-405b")
        for is_unfolded in (False, True):
            if is_unfolded:
                unfold(it.page, "Plan")
            it.page.evaluate("scrollTo(0, document.body.scrollHeight)")
            side, charts = (box_of(it.page, each) for each in ("#side", "#time"))
            assert side["y"] + side["height"] <= charts["y"]
