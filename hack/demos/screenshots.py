"""Pictures of the page for the README, light and dark: a small cluster and a gang that waits.

    python -m hack.demos.screenshots FOLDER

Needs Chromium. The cluster is synthetic; the server and the browser are real.
"""

import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from playwright.sync_api import sync_playwright
from werkzeug.serving import make_server

from hack.benchmarks.page import app_of
from hack.local.controlplane import free_port
from tests.browser.conftest import CHROMIUM, FLAGS
from tests.ui.scenes import GRID, SECRET, Changes, bound_pod, cluster_of, scene_of, waiting_job

SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
"""What Chromium is told that the person prefers."""


def main(folder: Path) -> int:
    """Write light.png and dark.png."""
    sizes = (8, 4, 2, 0, 8, 8)
    busy = [
        bound_pod(f"eval-{number}", node.name, gpus)
        for number, (node, gpus) in enumerate(zip(GRID, sizes, strict=False))
        if gpus
    ]
    waiting = waiting_job(
        3,
        annotations={"topogate.io/required-topology": "block"},
        creationTimestamp=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    )
    cordoned: Changes = {GRID[7].name: {"spec": {"unschedulable": True}}}
    scene = scene_of(cluster_of([*busy, *waiting], changes=cordoned, size=3))
    server = make_server("127.0.0.1", free_port(), app_of(scene), threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        for scheme in SCHEMES:
            page = browser.new_page(viewport={"width": 1100, "height": 700}, color_scheme=scheme)
            page.goto(f"http://127.0.0.1:{server.server_port}/?secret={SECRET}")
            page.locator("#gang-rows button").first.click()
            page.wait_for_selector("#gang .sentence")
            page.screenshot(path=folder / f"{scheme}.png")
            page.close()
        browser.close()
    server.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
