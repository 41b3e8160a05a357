"""Devices that say many things of themselves, and selectors of them at random."""

import random
from typing import Any, Final

Body = dict[str, Any]
DRIVER: Final = "gpu.example.com"
OTHER: Final = "dra.example.com"
DEVICES: Final = 30
"""Within what one claim may be given."""
MODELS: Final = ("H100", "h100", "A100-80GB", "", "Ünïcode ☃")
VERSIONS: Final = ("1.2.3", "1.10.0", "1.2.3-rc.1", "1.2.3-rc.11", "1.2.3+build.5", "0.0.1")
AMOUNTS: Final = ("40Gi", "80Gi", "81920Mi", "1500m", "1.5", "0", "3k", "12e3", "141Gi")
MAPS: Final = (
    f'device.attributes["{DRIVER}"]',
    f'device.attributes["{OTHER}"]',
    "device.attributes[device.driver]",
)


def devices(dice: random.Random) -> list[Body]:
    """Each lacks something."""
    made = []
    for number in range(DEVICES):
        attributes: Body = {
            "model": {"string": dice.choice(MODELS)},
            "version": {"version": dice.choice(VERSIONS)},
            "index": {"int": dice.choice((0, 1, 2, 7, -3, 2**62))},
            "healthy": {"bool": dice.random() < 0.5},
            f"{OTHER}/fabric": {"string": dice.choice(("f0", "f1", "H100"))},
            f"{OTHER}/index": {"int": number % 3},
        }
        capacity: Body = {name: {"value": dice.choice(AMOUNTS)} for name in ("memory", "cores")}
        capacity[f"{OTHER}/memory"] = {"value": dice.choice(AMOUNTS)}
        made.append(
            {
                "name": f"d{number}",
                "attributes": {name: each for name, each in attributes.items() if dice.random() < 0.85},
                "capacity": {name: each for name, each in capacity.items() if dice.random() < 0.85},
            }
        )
    return made


def selector(dice: random.Random, depth: int = 2) -> str:
    """An expression, which the API server may yet refuse."""
    if depth and dice.random() < 0.5:
        left, right = selector(dice, depth - 1), selector(dice, depth - 1)
        kind = dice.choice(("&&", "||", "&&", "!", "?"))
        if kind == "!":
            return f"!({left})"
        if kind == "?":
            return f"(({left}) ? ({right}) : ({selector(dice, 0)}))"
        return f"(({left}) {kind} ({right}))"
    return str(dice.choice(_LEAVES)(dice))


def _map(dice: random.Random) -> str:
    return dice.choice(MAPS)


def _text(dice: random.Random) -> str:
    return '"' + dice.choice((*MODELS, "f0", "f1", "100", "H", DRIVER)) + '"'


def _attribute(dice: random.Random, name: str) -> str:
    found = _map(dice)
    kind = dice.random()
    if kind < 0.15:
        return f'{found}["{name}"]'
    if kind < 0.3:
        return f'{found}[?"{name}"].orValue({_default(dice, name)})'
    if kind < 0.45:
        return f"{found}.?{name}.orValue({_default(dice, name)})"
    return f"{found}.{name}"


def _default(dice: random.Random, name: str) -> str:
    return {
        "model": _text(dice),
        "fabric": _text(dice),
        "index": str(dice.choice((0, 2, -1))),
        "healthy": dice.choice(("true", "false")),
        "version": f'semver("{dice.choice(VERSIONS)}")',
    }[name]


def _amount(dice: random.Random) -> str:
    domain = dice.choice((DRIVER, OTHER))
    text = f'device.capacity["{domain}"].{dice.choice(("memory", "cores"))}'
    return text if dice.random() < 0.8 else f'quantity("{dice.choice(AMOUNTS)}")'


def _equals(dice: random.Random) -> str:
    name = dice.choice(("model", "fabric", "index", "healthy", "version"))
    return f"{_attribute(dice, name)} {dice.choice(('==', '!='))} {_default(dice, name)}"


def _orders(dice: random.Random) -> str:
    return f"{_attribute(dice, 'index')} {dice.choice(('<', '<=', '>', '>='))} {dice.choice((0, 1, 2, 7))}"


def _counts(dice: random.Random) -> str:
    sum_ = f"{_attribute(dice, 'index')} {dice.choice('+-*%')} {dice.choice((1, 2, 3))}"
    return f"{sum_} == {dice.choice((0, 1, 3))}"


def _reads(dice: random.Random) -> str:
    method = dice.choice(("startsWith", "endsWith", "contains", "matches"))
    return f"{_attribute(dice, dice.choice(('model', 'fabric')))}.{method}({_text(dice)})"


def _rewrites(dice: random.Random) -> str:
    kind = dice.choice(("lowerAscii() == ", "upperAscii() == ", 'replace("0", "1") == ', "trim() != "))
    return f"{_attribute(dice, 'model')}.{kind}{_text(dice)}"


def _sizes(dice: random.Random) -> str:
    return f"size({_attribute(dice, 'model')}) {dice.choice(('>', '=='))} {dice.choice((0, 4, 9))}"


def _has(dice: random.Random) -> str:
    name = dice.choice(("model", "fabric", "index", "memory"))
    if dice.random() < 0.5:
        return f"has({dice.choice(MAPS[:2])}.{name})"
    return f'"{name}" in {_map(dice)}'


def _lists(dice: random.Random) -> str:
    return f"{_attribute(dice, 'index')} in [0, 2, {dice.choice((1, 7))}]"


def _exists(dice: random.Random) -> str:
    macro = dice.choice(("exists", "all", "exists_one"))
    return f"[{_text(dice)}, {_text(dice)}].{macro}(each, each == {_attribute(dice, 'model')})"


def _names(dice: random.Random) -> str:
    return f'{_map(dice)}.{dice.choice(("exists", "all"))}(name, name.startsWith("{dice.choice("mifv")}"))'


def _quantities(dice: random.Random) -> str:
    one, other = _amount(dice), _amount(dice)
    return dice.choice(
        (
            f"{one}.compareTo({other}) {dice.choice(('<', '==', '>='))} 0",
            f"{one}.isGreaterThan({other})",
            f"{one}.isLessThan({other})",
            f"{one} == {other}",
            f"{one}.isInteger() && {one}.asInteger() > 5",
            f"{one}.sign() == 1",
            f"{one}.asApproximateFloat() > 2.5",
            f"{one}.add({other}).compareTo({one}) > 0",
            f'{one}.sub(3).isLessThan(quantity("{dice.choice(AMOUNTS)}"))',
        )
    )


def _versions(dice: random.Random) -> str:
    one, other = _attribute(dice, "version"), f'semver("{dice.choice(VERSIONS)}")'
    return dice.choice(
        (
            f"{one}.compareTo({other}) {dice.choice(('<', '==', '>='))} 0",
            f"{one}.isGreaterThan({other})",
            f"{one}.isLessThan({other})",
            f"{one}.major() == {dice.choice((0, 1))}",
            f"{one}.minor() > {dice.choice((1, 2))} || {one}.patch() == 3",
        )
    )


def _binds(dice: random.Random) -> str:
    return f"cel.bind(own, {_map(dice)}, has(own.model) && own.model == {_text(dice)})"


def _driver(dice: random.Random) -> str:
    return f"device.driver {dice.choice(('==', '!='))} {_text(dice)}"


def _shared(_: random.Random) -> str:
    return "device.allowMultipleAllocations"


def _checks(dice: random.Random) -> str:
    return f"{dice.choice(('isQuantity', 'isSemver'))}({_attribute(dice, 'model')})"


_LEAVES: Final = (
    *(_equals, _equals, _orders, _counts, _reads, _rewrites, _sizes, _has, _has, _lists, _exists, _names),
    *(_quantities, _quantities, _versions, _versions, _binds, _driver, _shared, _checks),
)
