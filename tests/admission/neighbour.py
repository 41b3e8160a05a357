"""Another webhook of the cluster, in the test's own process: it does what a test asks."""

import base64
import contextlib
import json
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from hack.local.cluster import Cluster
from tests.admission.harness import HOSTS, WEBHOOKS, Webhook, configuration, gpu_pod
from tests.support import delete
from webhook.admission import certificates
from webhook.kube.client import Api

Behaviour = Callable[[dict[str, Any]], list[dict[str, Any]]]
"""From the pod under review to a JSON Patch."""


class Neighbour:
    """A server under TLS. Set `behave` to patch, or `raw` to answer with any bytes, or `hang`."""

    def __init__(self) -> None:
        self.pair = certificates.issue(HOSTS)
        self.behave: Behaviour = lambda _pod: []
        self.raw: bytes | None = None
        self.status = 200
        self.hang_seconds = 0.0
        self.calls = 0
        self.name = ""
        neighbour = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                neighbour.calls += 1
                time.sleep(neighbour.hang_seconds)
                body = neighbour.raw if neighbour.raw is not None else neighbour.answer(review)
                self.send_response(neighbour.status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                with contextlib.suppress(OSError):  # the API server may have given up
                    self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        with tempfile.TemporaryDirectory() as folder:
            certificate, key = Path(folder, "c"), Path(folder, "k")
            certificate.write_bytes(self.pair.certificate)
            key.write_bytes(self.pair.key)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, key)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.server.server_address[1]}"

    def answer(self, review: dict[str, Any]) -> bytes:
        patch = json.dumps(self.behave(review["request"]["object"])).encode()
        response = {
            "uid": review["request"]["uid"],
            "allowed": True,
            "patchType": "JSONPatch",
            "patch": base64.b64encode(patch).decode(),
        }
        review = {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}
        return json.dumps(review).encode()

    def install(self, api: Api, name: str, conditions: Sequence[dict[str, str]] = ()) -> None:
        """Have the API server call it for opted-in pods; names sort before or after "topogate"."""
        self.name = name
        made = configuration(Webhook(Path(), Path(), pair=self.pair, port=0))
        made["metadata"]["name"] = name
        (hook,) = made["webhooks"]
        hook |= {
            "name": "neighbour.example.com",
            "failurePolicy": "Fail",
            "matchConditions": list(conditions),
        }
        hook["clientConfig"] = {**hook["clientConfig"], "url": f"{self.url}/mutate"}
        api.request("POST", WEBHOOKS, body=made)

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@contextlib.contextmanager
def neighbour() -> Iterator[Neighbour]:
    made = Neighbour()
    try:
        yield made
    finally:
        made.close()


@contextlib.contextmanager
def installed(cluster: Cluster, namespace: str, name: str) -> Iterator[Neighbour]:
    """One that the API server calls, until the end, for the pods of an opted-in namespace."""
    api = cluster.api()
    with neighbour() as made:
        made.install(api, name)

        def is_called() -> bool:
            before = made.calls
            query = {"dryRun": "All"}
            api.request("POST", f"/api/v1/namespaces/{namespace}/pods", body=gpu_pod(), query=query)
            return made.calls > before

        cluster.wait_for("the neighbour to be called", is_called)
        try:
            yield made
        finally:
            delete(api, f"{WEBHOOKS}/{name}")
            cluster.wait_for("the neighbour to be forgotten", lambda: not is_called())
