"""Ports of clusters that are started side by side."""

import subprocess
import sys
from collections.abc import Iterable
from typing import Final

import pytest

from hack.local import controlplane
from hack.local.controlplane import free_port

OTHER: Final = """
import sys
from hack.local import controlplane
draws = map(int, sys.argv[1:])
controlplane._chance = type("Drawn", (), {"randrange": lambda self, _: next(draws)})()
print(controlplane.free_port(), flush=True)
sys.stdin.read()
"""


class Drawn:
    """What is drawn instead of a random number."""

    def __init__(self, numbers: Iterable[int]) -> None:
        self.numbers = iter(numbers)

    def randrange(self, _stop: int) -> int:
        return next(self.numbers)


def test_a_port_is_given_once_however_late_its_program_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        controlplane, "_chance", Drawn(number for each in range(9000, 9900) for number in (each, each))
    )
    assert len({free_port() for _ in range(20)}) == 20


def test_a_port_of_one_process_is_given_to_no_other_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = [str(number) for number in range(8000, 8900)]
    command = [sys.executable, "-c", OTHER, *draws]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        port = int(other.stdout.readline())
        monkeypatch.setattr(controlplane, "_chance", Drawn(map(int, draws)))
        assert free_port() != port
    monkeypatch.setattr(controlplane, "_chance", Drawn(map(int, draws)))
    assert free_port() == port
