"""Calls of the webhook in bursts with pauses, as kube-apiserver makes them.

kube-apiserver keeps connections that it has opened and not used. One that the server closes while it is
being taken into use is a call without an answer, and its pod is created without a gate.
"""

import hashlib
import json
import os
import subprocess
from pathlib import Path
from typing import Any, Final

from hack.local.build import ROOT, cache_folder, toolchain
from tests.admission.harness import Webhook
from tests.admission.reviews import usual_review

SOURCE: Final = ROOT / "tests" / "admission" / "bursting"


def caller() -> Path:
    """The program of tests/admission/bursting, built once for each version of its source."""
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
    """Call a webhook; returns what it prints."""
    authority, body = webhook.folder / "authority.crt", webhook.folder / "review.json"
    authority.write_bytes(webhook.pair.authority)
    body.write_bytes(usual_review())
    url = f"{webhook.url}/mutate"
    command = [str(caller()), "-url", url, "-ca", str(authority), "-body", str(body), *options]
    result = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return dict(json.loads(result.stdout))
