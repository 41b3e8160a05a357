"""Pictures of the page for the README, light and dark: a small cluster and a gang that waits.

    python -m hack.demos.screenshots FOLDER

Needs Chromium. The cluster is synthetic; the server and the browser are real.
"""

import sys
import threading
from pathlib import Path
from typing import Literal

from playwright.sync_api import sync_playwright
from werkzeug.serving import make_server

from hack.benchmarks.page import app_of
from hack.local.controlplane import free_port
from tests.browser.conftest import CHROMIUM, FLAGS
from tests.ui.busy import busy_scene
from tests.ui.scenes import SECRET

SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
"""What Chromium takes for the preference of the person."""


def main(folder: Path) -> int:
    """Write light.png and dark.png."""
    server = make_server("127.0.0.1", free_port(), app_of(busy_scene()), threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        for scheme in SCHEMES:
            page = browser.new_page(viewport={"width": 1280, "height": 800}, color_scheme=scheme)
            page.goto(f"http://127.0.0.1:{server.server_port}/?secret={SECRET}")
            page.locator("#gang-rows a").first.click()
            page.wait_for_selector("#gang .sentence")
            page.screenshot(path=folder / f"{scheme}.png")
            page.close()
        browser.close()
    server.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
