"""Selectors are evaluated once for devices that are equal to them, and faults are reported."""

import subprocess
import sys

import msgspec
import pytest

from tests.devices.bodies import gpu
from webhook.devices.selectors import Described, SelectorError, Selectors, UndecidedError, described
from webhook.extras import LACKS_CEL
from webhook.kube.devices import Device

OWN = 'device.attributes["gpu.example.com"]'


def seen(number: int = 0, **attributes: str | int | bool) -> Described:
    body = gpu(f"g{number}", uuid=f"GPU-{number}", index=number, **attributes)
    return described("gpu.example.com", msgspec.convert(body, Device))


@pytest.mark.parametrize(
    ("expression", "times"),
    [
        (f'{OWN}.model == "H100"', 1),
        (f'"model" in {OWN}', 1),
        (f'device.driver == "gpu.example.com" && has({OWN}.model)', 1),
        (f'{OWN}[?"model"].orValue("") == "H100"', 1),
        (f"{OWN}.index < 4", 8),
        (f'cel.bind(own, {OWN}, own.model == "H100")', 8),
        (f'{OWN}.exists(name, name == "model")', 8),
    ],
    ids=["a value", "in", "has", "optional", "a value of each", "bound", "a macro over all"],
)
def test_a_selector_is_evaluated_once_for_devices_that_are_equal_to_it(expression: str, times: int) -> None:
    selectors = Selectors()
    for _ in range(2):
        for number in range(8):
            selectors.matches(expression, seen(number, model="H100"))
    assert selectors.evaluations == times


def test_a_truth_value_and_a_number_are_not_taken_for_each_other() -> None:
    selectors = Selectors()
    assert selectors.matches(f"{OWN}.x == true", seen(x=True))
    assert not selectors.matches(f"{OWN}.x == true", seen(x=1))


@pytest.mark.promise("R140")
@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (f"{OWN}.missing == 1", "fails on a device"),
        (f"{OWN}.model", "it is not a boolean"),
        ('ip("10.0.0.1").isLoopback()', "cannot be evaluated here"),
        ("not CEL at all", "cannot be evaluated here"),
    ],
    ids=["a missing attribute", "not a boolean", "a function that is not there", "no CEL"],
)
def test_a_selector_that_fails_reports_how(expression: str, expected: str) -> None:
    with pytest.raises(SelectorError, match=expected):
        Selectors().matches(expression, seen(model="H100"))


@pytest.mark.promise("R140")
def test_an_attribute_of_a_kind_that_is_not_known_is_not_ignored() -> None:
    listed = described("d", msgspec.convert({"name": "g", "attributes": {"x": {"strings": ["a"]}}}, Device))
    with pytest.raises(SelectorError, match="the attribute x has a value of a kind that is not modelled"):
        Selectors().matches("true", listed)


def test_the_time_for_selectors_in_one_pass_is_bounded_and_the_next_continues() -> None:
    now = iter(range(1000))
    selectors = Selectors(lambda: float(next(now)), seconds=3.0)

    def decided() -> int:
        count = 0
        for number in range(8):
            try:
                selectors.matches(f"{OWN}.index >= 0", seen(number))
            except UndecidedError:
                return count
            count += 1
        return count

    first = decided()
    assert 0 < first < 8
    selectors.begin()
    assert decided() > first


def test_a_pass_evaluates_a_selector_even_if_loading_the_interpreter_takes_all_its_time() -> None:
    now = iter((0.0, 5.0, 6.0, 10.0, 15.0))
    selectors = Selectors(lambda: next(now), seconds=3.0)
    assert selectors.matches(f"{OWN}.index >= 0", seen(1))
    with pytest.raises(UndecidedError):
        selectors.matches(f"{OWN}.index >= 0", seen(2))
    selectors.begin()
    assert selectors.matches(f"{OWN}.index >= 0", seen(2))


def test_loading_waits_for_the_first_selector() -> None:
    code = "import sys; import webhook.sweeper.main; print('cel_expr_python' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


WITHOUT_CEL = """
import sys
sys.modules["cel_expr_python"] = None
from webhook import extras
extras.find_spec = lambda name: None
"""


def without_cel(code: str) -> str:
    """What a program prints in an installation without the extra `dra`."""
    program = [sys.executable, "-c", WITHOUT_CEL + code]
    return subprocess.run(program, capture_output=True, text=True, check=True).stdout.strip()


def test_without_the_extra_a_gang_with_claims_waits_and_names_what_is_missing() -> None:
    code = """
from tests.devices.bodies import claim, claim_spec, exactly, gpus, supply
from tests.devices.needed import problem
spec = claim_spec(exactly(1))
print(problem(spec, supply(gpus("n", 8), claims=(claim("c", spec),))))
"""
    assert without_cel(code) == f"its claims cannot be evaluated: {LACKS_CEL}"


def test_without_the_extra_a_selector_is_a_fault_and_no_crash() -> None:
    code = """
from tests.devices.test_selectors import seen
from webhook.devices.selectors import SelectorError, Selectors
try:
    Selectors().matches("true", seen())
except SelectorError as error:
    print(error)
"""
    assert without_cel(code) == LACKS_CEL
