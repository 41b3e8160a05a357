"""Kubernetes quantities as exact integers, rounded up as the API server and kube-scheduler round them.

The API server rounds every quantity of a resource list up to thousandths; kube-scheduler adds those exactly
and only then rounds the total up, cpu to thousandths and everything else to whole units. So sums are made in
thousandths here, and `in_units` is the last step. Grammar: k8s.io/apimachinery/pkg/api/resource.
"""

import re
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Final

CPU: Final = "cpu"
"""The one resource that is counted in thousandths of its unit."""

PODS: Final = "pods"
"""The resource of which every pod takes one."""

_NUMBER: Final = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))([eE][+-]?[0-9]+|[A-Za-z]*)")
_MOST: Final = 10**33
"""Larger amounts (in thousandths) count as this: no node holds them, and a user may write 1e999999999."""
_DIGITS: Final = 60
_SUFFIXES: Final[Mapping[str, Fraction]] = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    **{suffix: Fraction(1000**power) for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Fraction(1024**power) for power, suffix in enumerate("KMGTPE", start=1)},
}


class QuantityError(ValueError):
    """The text is not a Kubernetes quantity."""


def exact(text: str) -> Fraction:
    """The exact amount in its unit: "100m" -> 1/10. Raises QuantityError if the text is not a quantity."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise QuantityError(f"{text!r} is not a quantity; write for example 500m, 2, 1.5 or 16Gi")
    number, suffix = match.groups()
    if suffix in _SUFFIXES:
        factor = _SUFFIXES[suffix]
    elif suffix[-1:].isdigit():
        exponent = int(suffix[1:8])  # further digits change nothing: it is far out of range already
        factor = Fraction(10) ** max(-2 * _DIGITS, min(2 * _DIGITS, exponent))
    else:
        raise QuantityError(
            f"{text!r} is not a quantity: unknown suffix {suffix!r}; write for example 500m or 16Gi"
        )
    return _fraction(number) * factor


@lru_cache(maxsize=65536)
def _parse_text(text: str) -> int:
    value = exact(text) * 1000
    rounded_up = min(_MOST, -(-abs(value).numerator // value.denominator))
    return rounded_up if value >= 0 else -rounded_up


def _fraction(number: str) -> Fraction:
    """The number, exactly up to 60 digits before and after the point, and never less than it is."""
    if len(number) <= _DIGITS:
        return Fraction(number)
    sign = -1 if number[0] == "-" else 1
    rounded_up, _, rest = number.lstrip("+-").partition(".")
    rounded_up = rounded_up.lstrip("0")
    if len(rounded_up) > _DIGITS:
        return Fraction(sign * _MOST)
    above = Fraction(bool(rest[_DIGITS:].strip("0")), 10**_DIGITS)
    return sign * (Fraction(f"{rounded_up or 0}.{rest[:_DIGITS] or 0}") + above)


def parse(quantity: str | int | float) -> int:
    """Thousandths of the unit, rounded away from zero: "100m" -> 100, "1Gi" -> 1073741824000.

    Raises QuantityError for anything that is not a quantity.
    """
    if isinstance(quantity, bool):
        raise QuantityError(f"{quantity!r} is not a quantity; write a number, or text such as 500m or 16Gi")
    if isinstance(quantity, int):
        return quantity * 1000
    return _parse_text(quantity if isinstance(quantity, str) else repr(quantity))


def parse_all(quantities: Mapping[str, str | int | float]) -> dict[str, int]:
    """Each resource's thousandths. Raises QuantityError that names the resource."""
    parsed = {}
    for resource, quantity in quantities.items():
        try:
            parsed[resource] = parse(quantity)
        except QuantityError as error:
            raise QuantityError(f"resource {resource}: {error}") from None
    return parsed


def in_units(thousandths: Mapping[str, int]) -> dict[str, int]:
    """The vector that placement computes with: cpu in thousandths, the rest in whole units, rounded up."""
    return {
        resource: amount if resource == CPU else -(-amount // 1000)
        for resource, amount in thousandths.items()
    }
