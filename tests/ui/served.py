"""The page of a still scene as a process that every local user may connect to; it prints its port."""

import logging
from typing import Any

from flask import request

from tests.ui.scenes import cluster_of, page_of, scene_of
from tests.ui.viewers import MINE, Granted
from webhook.admission import worker
from webhook.configuration.store import ConfigurationStore
from webhook.kube.access import UserInfo
from webhook.ui.serve_page import PageServer, options


def report(arbiter: Any) -> None:
    print(arbiter.LISTENERS[0].sock.getsockname()[1], flush=True)


class Named(Granted):
    """Viewers who say their names."""

    def viewer(self) -> UserInfo:
        return UserInfo(request.headers.get("X-Name", "somebody"))


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    # No client is answered because a slow one had had its time.
    worker.FIRST_BYTE_SECONDS = worker.REQUEST_SECONDS = 3600.0
    app = page_of(scene_of(cluster_of([])), Named(MINE)).application
    # gunicorn would replace a worker that has got no CPU for half a minute, and close all of its streams.
    served = {**options("127.0.0.1:0"), "when_ready": report, "timeout": 0}
    PageServer(served, lambda: app, ConfigurationStore([])).run()
