"""Quantities and semantic versions, which Kubernetes adds to CEL: their values and functions.

In expressions both are maps with one key that no attribute has, so that CEL compares them as maps.
Source: k8s.io/apiserver/pkg/cel/library (quantity, semverlib, regex). Pure.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from labeler.contract.quantities import exact

QUANTITY: Final = "topogate quantity"
SEMVER: Final = "topogate semver"

Value = dict[str, str]

_SEMVER: Final = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(?:-((?:0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)(?:\.(?:0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*))*))?"
    r"(\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)
_INT64: Final = range(-(2**63), 2**63)


def quantity(text: str) -> Value:
    """The value of a quantity. Raises ValueError for an invalid one."""
    number = exact(text)
    return {QUANTITY: f"{number.numerator}/{number.denominator}"}


def semver(text: str) -> Value:
    """The value of a version, without its build. Raises ValueError for an invalid one."""
    match = _SEMVER.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a semantic version")
    return {SEMVER: text.partition("+")[0]}


def _amount(value: Value) -> Fraction:
    if QUANTITY not in value:
        raise ValueError("no such overload: it is not a quantity")
    return Fraction(value[QUANTITY])


def _order(value: Value) -> tuple[Any, ...]:
    """The sort key of a version (semver.org, 11)."""
    match = _SEMVER.fullmatch(value.get(SEMVER, ""))
    if match is None:
        raise ValueError("no such overload: it is not a semantic version")
    numbers, before = tuple(map(int, match.groups()[:3])), match[4]
    if before is None:
        return (*numbers, 1, ())
    parts = tuple((0, int(each), "") if each.isdigit() else (1, 0, each) for each in before.split("."))
    return (*numbers, 0, parts)


def _compare(one: Value, other: Value) -> int:
    if QUANTITY in one:
        a, b = _amount(one), _amount(other)
        return (a > b) - (a < b)
    before, after = _order(one), _order(other)
    return (before > after) - (before < after)


def _is(read: Callable[[str], Value]) -> Callable[[str], bool]:
    def is_one(text: str) -> bool:
        try:
            read(text)
        except ValueError:
            return False
        return True

    return is_one


def _as_integer(value: Value) -> int:
    amount = _amount(value)
    if amount.denominator != 1 or amount.numerator not in _INT64:
        raise ValueError("cannot convert value to integer")
    return int(amount)


def _is_integer(value: Value) -> bool:
    amount = _amount(value)
    return amount.denominator == 1 and amount.numerator in _INT64


def _made(amount: Fraction) -> Value:
    return {QUANTITY: f"{amount.numerator}/{amount.denominator}"}


def _sign(value: Value) -> int:
    amount = _amount(value)
    return (amount > 0) - (amount < 0)


@dataclass(frozen=True)
class Overload:
    """A signature of a function: its parameter types (for a method the target first) and its result type."""

    function: Callable[..., Any]
    takes: tuple[str, ...]
    returns: str
    is_member: bool = True


OPERATIONS: Final[dict[str, tuple[Overload, ...]]] = {
    "quantity": (Overload(quantity, ("string",), "map", False),),
    "isQuantity": (Overload(_is(quantity), ("string",), "bool", False),),
    "semver": (Overload(semver, ("string",), "map", False),),
    "isSemver": (Overload(_is(semver), ("string",), "bool", False),),
    "compareTo": (Overload(_compare, ("map", "map"), "int"),),
    "isGreaterThan": (Overload(lambda a, b: _compare(a, b) > 0, ("map", "map"), "bool"),),
    "isLessThan": (Overload(lambda a, b: _compare(a, b) < 0, ("map", "map"), "bool"),),
    "sign": (Overload(_sign, ("map",), "int"),),
    "isInteger": (Overload(_is_integer, ("map",), "bool"),),
    "asInteger": (Overload(_as_integer, ("map",), "int"),),
    "asApproximateFloat": (Overload(lambda a: float(_amount(a)), ("map",), "double"),),
    "add": (
        Overload(lambda a, b: _made(_amount(a) + _amount(b)), ("map", "map"), "map"),
        Overload(lambda a, b: _made(_amount(a) + b), ("map", "int"), "map"),
    ),
    "sub": (
        Overload(lambda a, b: _made(_amount(a) - _amount(b)), ("map", "map"), "map"),
        Overload(lambda a, b: _made(_amount(a) - b), ("map", "int"), "map"),
    ),
    "major": (Overload(lambda a: _order(a)[0], ("map",), "int"),),
    "minor": (Overload(lambda a: _order(a)[1], ("map",), "int"),),
    "patch": (Overload(lambda a: _order(a)[2], ("map",), "int"),),
}
