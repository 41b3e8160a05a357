"""The page of a still scene as a process that anybody may connect to; it prints its port."""

import logging
from typing import Any

from tests.ui.scenes import cluster_of, page_of, scene_of
from tests.ui.test_rights import MINE, Granted
from webhook.ui.serve import PageServer, options


def tell(arbiter: Any) -> None:
    print(arbiter.LISTENERS[0].sock.getsockname()[1], flush=True)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    app = page_of(scene_of(cluster_of([])), Granted(MINE)).application
    PageServer({**options("127.0.0.1:0"), "when_ready": tell}, lambda: app).run()
