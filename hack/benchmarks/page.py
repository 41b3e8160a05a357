"""What the page costs: drawing the cluster, serving a viewer, and the time until a browser shows it.

Synthetic nodes with 8 GPUs, a tenth of them used, and a gang that waits, without an API server. "first" is
the drawing after the start, "again" one in which nothing has changed, both in CPU time; "viewer" the server's
CPU time for what a browser asks at each version: a picture, the nodes of one block, a gang of 64 pods that
waits, and what is new of the history; "sent" its size; "shown" the time in a headless Chromium from the
address to the first domain on the screen, left out where none is installed.
"""

import argparse
import logging
import resource
import statistics
import sys
import threading
import time
from collections.abc import Callable
from typing import Final, cast

import msgspec
from flask import Flask
from werkzeug.serving import make_server

from hack.local import nodes
from hack.local.controlplane import free_port
from tests.browser.conftest import CHROMIUM, FLAGS
from tests.ui.scenes import COUNTING, SECRET, SETTINGS, NoEvents, StillLive, bound_pod, waiting_job
from webhook.inquiry.cluster_state import ClusterReading
from webhook.kube.client import Api
from webhook.kube.objects import Node
from webhook.sweeper.observe.gangs import OwnerFacts
from webhook.ui.live import Artist, Live, Scene
from webhook.ui.page_app import create_app
from webhook.ui.pages import PageDependencies
from webhook.ui.viewer_access import COOKIE, LaptopAccess

BLOCK: Final = 500
GANG: Final = 64


def synthetic(count: int) -> ClusterReading:
    """Nodes in blocks of BLOCK, a bound pod on every tenth, and a gang that waits."""
    grid = nodes.grid(nodes.Shape(count, max(1, count // BLOCK), 10))
    made: dict[str, Node] = {}
    for node in grid:
        body = node.manifest(node.topology_labels)
        body["metadata"]["uid"] = node.name
        made[node.name] = msgspec.convert(body, Node)
    pods = tuple(bound_pod(f"p{number}", name) for number, name in enumerate(list(made)[::10]))
    return ClusterReading((*pods, *waiting_job(GANG)), made, {}, lambda _: OwnerFacts(GANG))


def seconds(work: Callable[[], object]) -> float:
    """CPU seconds of this process for one piece of work."""
    began = time.process_time()
    work()
    return time.process_time() - began


def shown(scene: Scene) -> float | None:
    """Seconds in a browser until the first domain is there, None without a browser."""
    if not CHROMIUM:
        return None
    from playwright.sync_api import sync_playwright

    app = app_of(scene)
    server = make_server("127.0.0.1", free_port(), app, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        page = browser.new_page()
        began = time.monotonic()
        page.goto(f"http://127.0.0.1:{server.server_port}/?secret={SECRET}")
        page.wait_for_selector("#domains .domain", timeout=60_000)
        took = time.monotonic() - began
        browser.close()
    server.shutdown()
    return took


def app_of(scene: Scene) -> Flask:
    """The page over one scene."""
    live, api = cast(Live, StillLive(scene)), cast(Api, NoEvents())
    return create_app(PageDependencies(live, SETTINGS, COUNTING, LaptopAccess("bench", SECRET), api))


def measure(count: int, repeats: int) -> str:
    """A row of the table."""
    artist = Artist(synthetic(count), SETTINGS, COUNTING)
    first = seconds(artist.scene)
    again = statistics.median(seconds(artist.scene) for _ in range(repeats))
    scene = artist.scene()
    client = app_of(scene).test_client()
    client.set_cookie(COOKIE, SECRET, domain="localhost")
    domain, gang = scene.picture.domains[0].id, scene.gangs[0].id
    paths = ["/api/picture", f"/api/nodes?domain={domain}", f"/api/gang?id={gang}"]
    paths.append(f"/api/history?since={scene.at}")
    size = sum(len(client.get(path).data) for path in paths)

    def look() -> None:
        for path in paths:
            client.get(path)

    viewer = statistics.median(seconds(look) for _ in range(repeats))
    browser = shown(scene)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return (
        f"{count:>7} {first:>8.2f} s {again:>8.3f} s {viewer * 1000:>8.1f} ms {size / 1024:>8.0f} KiB "
        f"{memory:>6.0f} MiB  {'-' if browser is None else f'{browser:.2f} s'}"
    )


def main(argv: list[str] | None = None) -> int:
    """Print the measurements."""
    parser = argparse.ArgumentParser(prog="hack/bench page", description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="*", default=[5000, 65_000])
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args(argv)
    print("  nodes      first      again      viewer        sent    memory   shown")
    for count in args.nodes:
        print(measure(count, args.repeats), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
