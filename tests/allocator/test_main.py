"""What the command line accepts, and what it reports as unknown."""

import subprocess
import sys

import pytest


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "labeler.allocator.main", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={"PATH": "/usr/bin:/bin"},
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "which node is this? give --node-name, or set NODE_NAME"),
        (("--node-name=n",), "KUBERNETES_SERVICE_HOST is not set, so this is no pod"),
        (("--node-name=n", "--server=https://x", "--ca-file=/none"), "--ca-file: there is no file /none"),
        (("--shares=0",), "'0' is not a whole number from 1 to 1000"),
        (("--plan-seconds=soon",), "'soon' is not a number of seconds from 0 to 30"),
        (("--vendor=acme",), "invalid choice: 'acme'"),
    ],
)
def test_a_mistake_is_reported_in_a_sentence(arguments: tuple[str, ...], words: str) -> None:
    result = run(*arguments)
    assert result.returncode == 2
    assert words in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("missing", ["grpc", "google.protobuf"])
def test_without_the_extra_it_names_what_is_missing(missing: str) -> None:
    """As in the image topogate, which has no device plugin to run."""
    code = (
        f"import sys; sys.modules[{missing!r}] = None; from labeler.allocator.main import main; "
        "sys.exit(main([]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 2
    assert "install topogate[allocator]" in done.stderr
    assert "Traceback" not in done.stderr
