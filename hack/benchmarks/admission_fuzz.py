"""Post a great many damaged reviews at a real webhook and watch it stay whole.

Each body is a review of the table of pod shapes, as it is or damaged in one of several ways, or random
bytes. Wanted: only 200 and 400, every 200 a proper AdmissionReview whose patch decodes, the same worker
at the end as at the start, and memory that does not grow after the first quarter.
"""

import argparse
import base64
import collections
import http.client
import json
import random
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

import yaml

from tests.admission.harness import HOSTS, Webhook
from tests.admission.reviews import review
from tests.admission.shapes import POLICY, SHAPES
from webhook.admission import certificates

THREADS: Final = 4
MOST_GROWTH_KIB: Final = 4096
_JUNK: Final[list[Any]] = [
    None,
    True,
    -1,
    1e300,
    2**70,
    "",
    "x" * 5000,
    "\ud800",
    [],
    [[]],
    {},
    {"a": {"b": []}},
    "\x00\n",
]


def damaged(rng: random.Random) -> bytes:
    """One body; a seeded generator makes the same ones again."""
    way = rng.choice(
        ("whole", "whole", "value", "value", "remove", "cut", "flip", "insert", "random", "deep")
    )
    if way == "random":
        return rng.randbytes(rng.randrange(400))
    body = json.loads(
        json.dumps(review(rng.choice(SHAPES).pod, namespace=rng.choice(("open", "capped", "steered"))))
    )
    if way in ("value", "remove", "deep"):
        place, key = _somewhere(body, rng)
        if way == "remove":
            del place[key]
        elif way == "value":
            place[key] = rng.choice(_JUNK)
        else:
            place[key] = json.loads("[" * 900 + "]" * 900)
    text = bytearray(json.dumps(body).encode())
    if way == "cut":
        del text[rng.randrange(len(text)) :]
    for _ in range(rng.randrange(1, 8) if way in ("flip", "insert") else 0):
        position = rng.randrange(len(text))
        text[position : position + (way == "flip")] = rng.randbytes(1)
    return bytes(text)


def _somewhere(body: Any, rng: random.Random) -> tuple[Any, Any]:
    """A container of the document and one of its keys, at any depth."""
    place = body
    while True:
        key = rng.choice(list(place) if isinstance(place, dict) else range(len(place)))
        if not isinstance(place[key], dict | list) or not place[key] or rng.random() < 0.15:
            return place, key
        place = place[key]


def fault_of(status: int, answer: bytes) -> str:
    """What is wrong with an answer, "" if nothing."""
    if status == 400:
        return "" if answer.strip() and b"Traceback" not in answer else "a 400 without a sentence"
    if status != 200:
        return f"HTTP {status}"
    found = json.loads(answer)
    response = found["response"]
    if found["kind"] != "AdmissionReview" or not response["uid"] or "allowed" not in response:
        return "no proper AdmissionReview"
    if ("patch" in response) != ("patchType" in response):
        return "patch without patchType, or the reverse"
    if "patch" in response and not isinstance(json.loads(base64.b64decode(response["patch"])), list):
        return "a patch that is no list"
    return ""


class FuzzRun:
    """The counters of one run."""

    def __init__(self, webhook: Webhook, count: int, seed: int) -> None:
        """Prepare; nothing is sent yet."""
        self.webhook, self.count, self.seed = webhook, count, seed
        self.statuses: collections.Counter[int] = collections.Counter()
        self.faults: list[str] = []
        self.memory: list[int] = []

    def worker(self) -> str:
        """Process id of gunicorn's worker."""
        assert self.webhook.process is not None
        pid = self.webhook.process.pid
        return Path(f"/proc/{pid}/task/{pid}/children").read_text().strip()

    def resident_kib(self) -> int:
        """Resident memory of the worker."""
        status = Path(f"/proc/{self.worker()}/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])

    def send(self, index: int, count: int) -> None:
        """Send a share of the bodies over one kept-alive connection."""
        rng = random.Random(f"{self.seed} {index} {len(self.memory)}")
        connection = http.client.HTTPSConnection("127.0.0.1", self.webhook.port, context=self.webhook.tls())
        for _ in range(count):
            body = damaged(rng)
            try:
                connection.request("POST", "/mutate", body, {"Content-Type": "application/json"})
                with connection.getresponse() as response:
                    status, answer = response.status, response.read()
                fault = fault_of(status, answer)
            except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
                status, fault = 0, f"{type(error).__name__}: {error}"
                connection.close()
            self.statuses[status] += 1
            if fault:
                self.faults.append(f"{fault} on {body[:300]!r}")
        connection.close()

    def run(self) -> None:
        """Send all in four quarters, and take the memory after each."""
        for _ in range(4):
            share = self.count // 4 // THREADS
            threads = [threading.Thread(target=self.send, args=(index, share)) for index in range(THREADS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.memory.append(self.resident_kib())
            sent = sum(self.statuses.values())
            print(f"  {sent:7} sent, {self.memory[-1]} KiB resident, {dict(self.statuses)}", flush=True)


def main(argv: list[str] | None = None) -> int:
    """Run the fuzzer; 1 if anything was not as wanted."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}  # none is needed
        context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
        config = {"clusters": [cluster], "users": [{"name": "u", "user": {}}], "contexts": [context]}
        (folder / "kubeconfig").write_text(yaml.safe_dump({**config, "current-context": "x"}))
        webhook = Webhook(folder, folder / "kubeconfig", pair=certificates.issue(HOSTS))
        webhook.write_policy(POLICY.format(capped="capped", steered="steered", intel="intel"))
        webhook.start(ready=False)
        try:
            webhook.wait(lambda: webhook.get("/healthz")[0] == 200, "the webhook to answer")
            return _report(FuzzRun(webhook, options.count, options.seed))
        finally:
            webhook.stop()


def _report(run: FuzzRun) -> int:
    before, started = run.worker(), time.monotonic()
    run.run()
    if run.worker() != before:
        run.faults.append("the worker was replaced")
    growth = run.memory[-1] - run.memory[0]
    if growth > MOST_GROWTH_KIB:
        run.faults.append(f"memory grew by {growth} KiB after the first quarter")
    for word in ("Traceback", "review_failed"):
        if word in run.webhook.log:
            run.faults.append(f"{word} in the log: {run.webhook.log[run.webhook.log.index(word) :][:300]}")
    print(f"{sum(run.statuses.values())} bodies in {time.monotonic() - started:.0f} s, {dict(run.statuses)}, "
          f"memory {growth:+} KiB after the first quarter, {len(run.faults)} faults")  # fmt: skip
    for fault in run.faults[:10]:
        print("FAULT:", fault)
    return 1 if run.faults else 0


if __name__ == "__main__":
    sys.exit(main())
