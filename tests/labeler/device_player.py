"""Runs under umockdev-wrapper: plays devices to the real udev source and prints what comes of them.

Reads one JSON command a line from standard input, answers one JSON line each on standard output:
``add`` (umockdev's device text), ``remove`` (a path), ``event`` (path, action), ``look`` -> labels,
``notes`` -> annotations, ``discover`` -> the GPUs, ``opened`` -> how often each file was; ``watch`` starts
the labeler's loop, after which every publication is a line ``{"published": labels}``, and returns once the
loop listens for events.
"""

import ctypes
import json
import select
import socket
import sys
import threading
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from labeler.agent import Agent
from labeler.labels import Wanted
from labeler.publisher import LabelChange
from labeler.sources import Context
from labeler.sources.udev import create

LISTEN_SECONDS = 90


class Testbed:
    """The few functions of libumockdev that are needed."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libumockdev.so.0")
        self._library.umockdev_testbed_new.restype = ctypes.c_void_p
        self._testbed = ctypes.c_void_p(self._library.umockdev_testbed_new())
        self._library.umockdev_testbed_get_root_dir.restype = ctypes.c_char_p
        self._root = Path(self._library.umockdev_testbed_get_root_dir(self._testbed).decode())

    def add(self, text: str) -> None:
        error = ctypes.c_void_p()
        if not self._library.umockdev_testbed_add_from_string(
            self._testbed, text.encode(), ctypes.byref(error)
        ):
            raise SystemExit(f"umockdev does not take these devices:\n{text}")

    def event(self, path: str, action: str) -> None:
        self._wait_until_listeners_take_more()
        self._library.umockdev_testbed_uevent(self._testbed, path.encode(), action.encode())

    def wait_until_received(self) -> None:
        """Wait until a monitor listens: earlier messages of the kernel about a card are stored nowhere."""
        deadline = time.monotonic() + LISTEN_SECONDS
        while not any(self._root.glob("event*")):
            if time.monotonic() > deadline:
                raise SystemExit(f"nobody listens for events after {LISTEN_SECONDS} seconds")
            time.sleep(0.01)

    def remove(self, path: str) -> None:
        self._wait_until_listeners_take_more()
        self._library.umockdev_testbed_uevent(self._testbed, path.encode(), b"remove")
        self._library.umockdev_testbed_remove_device(self._testbed, path.encode())

    def _wait_until_listeners_take_more(self) -> None:
        """Wait for each monitor that is behind: libumockdev ends the process if a listener's queue is full.

        A monitor listens at a UNIX socket ``event*``, where net.unix.max_dgram_qlen messages may wait.
        """
        for path in self._root.glob("event*"):
            with socket.socket(socket.AF_UNIX, socket.SOCK_RAW) as probe:
                try:
                    probe.connect(str(path))
                except OSError:
                    continue  # nobody listens there any more
                if not select.select([], [probe], [], 60)[1]:
                    raise SystemExit(f"who listens at {path} has read nothing for 60 seconds")


class Teller:
    """The loop's output: every publication is recorded."""

    def publish(self, want: Wanted) -> LabelChange:
        send({"published": dict(want.labels)})
        return LabelChange()


_lock = threading.Lock()


def send(answer: object) -> None:
    with _lock:
        print(json.dumps(answer), flush=True)


opened: Counter[str] = Counter()


def count_opened(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and isinstance(arguments[0], str):
        opened[arguments[0]] += 1


def main(options: dict[str, Any]) -> None:
    group_level = options.pop("pci-group-level", 0)
    source = create(options, Context("node"))
    agent = Agent({"udev": source}, Teller(), pci_group_level=group_level)
    testbed = Testbed()
    for line in sys.stdin:
        command = json.loads(line)
        match command["do"]:
            case "add":
                testbed.add(command["text"])
            case "remove":
                testbed.remove(command["path"])
            case "event":
                testbed.event(command["path"], command["action"])
            case "look":
                send(dict(agent.discover().labels))
                continue
            case "notes":
                send(dict(agent.discover().annotations))
                continue
            case "discover":
                send([asdict(gpu) for gpu in source.discover().gpus or ()])
                continue
            case "opened":
                send(opened)
                continue
            case "watch":
                threading.Thread(target=agent.run, args=(3600.0,), daemon=True).start()
                testbed.wait_until_received()
                continue
        send("done")


if __name__ == "__main__":
    sys.addaudithook(count_opened)
    main(json.loads(sys.argv[1]))
