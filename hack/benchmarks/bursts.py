"""Calls of the webhook in bursts with pauses, as kube-apiserver makes them: how many fail open.

kube-apiserver keeps connections that it has opened and not used. One that the server closes while it is
being taken into use is a call without an answer, and its pod is created without a gate.
"""

import argparse
import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from hack.benchmarks.admission import usual_review
from hack.local.build import ROOT, cache_folder, toolchain
from tests.admission.alone import serving
from tests.admission.harness import Webhook

SOURCE: Final = ROOT / "hack" / "bursts"


def caller() -> Path:
    """The program of hack/bursts, built once for each version of its source."""
    files = sorted(SOURCE.iterdir())
    digest = hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:16]
    binary = cache_folder() / f"bursts-{digest}"
    if not binary.exists():
        binary.parent.mkdir(parents=True, exist_ok=True)
        partial = binary.with_name(f"{binary.name}.{os.getpid()}")
        environment = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"}
        command = [toolchain(), "build", "-trimpath", "-buildvcs=false", "-o", str(partial), "."]
        subprocess.run(command, cwd=SOURCE, env=environment, check=True)
        partial.rename(binary)
    return binary


def bursts(webhook: Webhook, *options: str) -> dict[str, Any]:
    """Call a webhook; returns what hack/bursts prints."""
    authority, body = webhook.folder / "authority.crt", webhook.folder / "review.json"
    authority.write_bytes(webhook.pair.authority)
    body.write_bytes(usual_review())
    url = f"{webhook.url}/mutate"
    command = [str(caller()), "-url", url, "-ca", str(authority), "-body", str(body), *options]
    result = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return dict(json.loads(result.stdout))


def main(argv: list[str] | None = None) -> int:
    """Run the bursts; 1 if any call failed."""
    parser = argparse.ArgumentParser(prog="hack/bench bursts", description=__doc__.split("\n")[0])
    parser.add_argument("--calls", type=int, default=50_000)
    parser.add_argument("--burst", type=int, default=1000, help="calls between two pauses of 4 to 10 s")
    options = parser.parse_args(argv)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        webhook = stack.enter_context(serving(folder))
        found = bursts(webhook, "-calls", str(options.calls), "-burst", str(options.burst))
    print(f"{found['calls']} calls in bursts of {options.burst}, {found['seconds']:.0f} s in all:")
    print(f"{found['failed']} failed {found['errors'] or ''}")
    print(
        f"{found['opened']} connections opened, {found['spares']} of them never used, "
        f"{found['closedByServer']} closed by the webhook"
    )
    return 1 if found["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
