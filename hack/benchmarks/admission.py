"""What admission costs: CPU of the webhook beside a Flask app that does nothing, alternately within one run.

Both have the same gunicorn, TLS, body and clients. CPU is the worker's own time from /proc, so the clients do
not count. Absolute figures belong to the machine; only the ratio is meant to be compared.
"""

import argparse
import contextlib
import http.client
import os
import re
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from flask import Flask, Response, request

from hack.local.cluster import Cluster
from hack.observing.observer import cpu_seconds, spread
from tests.admission.harness import HOSTS, Webhook, install_classes
from tests.admission.reviews import usual_review
from webhook.admission import certificates, serve

CONNECTIONS: Final = 8


class NoOpServer(serve.Server):
    """The webhook's server around an app that reads the body and gives a fixed answer."""

    def load(self) -> Flask:
        super().load()  # the same threads in the background
        app = Flask("no-op", static_folder=None)
        find_uid = re.compile(rb'"uid":\s*"([^"]+)"')  # the request's own is the first of a review
        answer = (
            b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview",'
            b'"response":{"uid":"%s","allowed":true}}'
        )

        @app.post("/mutate")
        def mutate() -> Response:
            uid = find_uid.search(request.get_data(cache=False))
            return Response(answer % (uid[1] if uid else b""), content_type="application/json")

        @app.get("/readyz")
        def readyz() -> Response:
            return Response("ok")

        return app


class NoOp(Webhook):
    """Started like the webhook, by this file instead of webhook.admission.serve."""

    module = "hack.benchmarks.admission"


@dataclass(frozen=True)
class LoadRound:
    """One measurement: requests a second and the server's CPU microseconds a request."""

    per_second: float
    cpu_microseconds: float


def worker_pid(server: Webhook) -> int:
    """Process id of gunicorn's one worker."""
    assert server.process is not None
    pid = server.process.pid
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


@contextlib.contextmanager
def pinned(*servers: Webhook) -> Iterator[None]:
    """Servers on one core, the clients on the others.

    Unpinned, Python's lock is handed from core to core, which costs more than what is compared here.
    """
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > 1:
        for server in servers:
            task = Path(f"/proc/{worker_pid(server)}/task")
            for thread in task.iterdir():
                os.sched_setaffinity(int(thread.name), cores[:1])
        os.sched_setaffinity(0, cores[1:])
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def load(server: Webhook, body: bytes, seconds: float) -> LoadRound:
    """Post the body over kept-alive connections for so long."""
    counts = [0] * CONNECTIONS
    stop = threading.Event()

    def post(index: int) -> None:
        connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=server.tls())
        while not stop.is_set():
            connection.request("POST", "/mutate", body, {"Content-Type": "application/json"})
            with connection.getresponse() as response:
                response.read()
                if response.status != 200:
                    raise RuntimeError(f"HTTP {response.status}")
            counts[index] += 1
        connection.close()

    threads = [threading.Thread(target=post, args=(index,)) for index in range(CONNECTIONS)]
    before, started = cpu_seconds(worker_pid(server)), time.perf_counter()
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    stop.set()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - started
    return LoadRound(sum(counts) / took, (cpu_seconds(worker_pid(server)) - before) / sum(counts) * 1e6)


@contextlib.contextmanager
def started(kind: type[Webhook], cluster: Cluster, folder: Path) -> Iterator[Webhook]:
    """A server that is ready, and stopped afterwards."""
    folder.mkdir(parents=True)
    server = kind(folder, cluster.kubeconfig, pair=certificates.issue(HOSTS))
    try:
        yield server.start()
    finally:
        server.stop()


def compare_servers(cluster: Cluster, folder: Path, rounds: int, seconds: float) -> float:
    """Measure both alternately; returns the ratio of the medians of CPU."""
    body = usual_review()
    found: dict[str, list[LoadRound]] = {"no-op": [], "webhook": []}
    with started(NoOp, cluster, folder / "noop") as noop, started(Webhook, cluster, folder / "own") as own:
        for server in (noop, own):
            load(server, body, 1.0)  # warm up: all threads of the pool are there then
        with pinned(noop, own):
            for _ in range(rounds):
                found["no-op"].append(load(noop, body, seconds))
                found["webhook"].append(load(own, body, seconds))
    print(f"\nThe app under its server: {len(body)} bytes a review, {CONNECTIONS} kept-alive connections,")
    print(f"{rounds} rounds of {seconds:g} s each in turns; medians (lowest to highest)")
    for name, measured in found.items():
        cpu, rate = [r.cpu_microseconds for r in measured], [r.per_second for r in measured]
        print(f"   {name:8} CPU {spread(cpu)} us a request; {spread(rate)} requests/s")
    ratios = [
        own.cpu_microseconds / noop.cpu_microseconds
        for own, noop in zip(found["webhook"], found["no-op"], strict=True)
    ]
    print(f"   webhook / no-op: CPU {spread(ratios, 2)}")
    return statistics.median(ratios)


def main(argv: list[str] | None = None) -> int:
    """Compare; 1 if the webhook costs more than --limit times the no-op's CPU."""
    arguments = sys.argv[1:] if argv is None else argv
    if "--cert-dir" in arguments:  # started by this file as the no-op server
        serve.Server = NoOpServer  # type: ignore[misc]
        return serve.main(arguments)
    parser = argparse.ArgumentParser(prog="hack/bench admission", description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="length of a round")
    parser.add_argument("--limit", type=float, default=1.15, help="most CPU against the no-op's")
    options = parser.parse_args(arguments)
    with Cluster.fresh() as cluster:
        install_classes(cluster)
        ratio = compare_servers(cluster, cluster.folder / "servers", options.rounds, options.seconds)
    if ratio > options.limit:
        print(f"\nFAILED: {ratio:.2f} times the CPU of the no-op app, more than {options.limit}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
