"""CEL selectors of devices, evaluated as the API server and kube-scheduler evaluate them.

The language itself is Google's own implementation (cel-expr-python); quantities and semantic versions, which
Kubernetes adds to it, are added here. It is loaded when the first selector is evaluated: most clusters have
none. A result is cached for as long as the process runs, once for devices that look alike to it.

Source of the rules: k8s.io/dynamic-resource-allocation/cel and k8s.io/apiserver/pkg/cel/library (quantity,
semver, regex). An expression with a function that is not there cannot be evaluated, and says so.
"""

import re
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Final

from webhook.devices.numbers import OPERATIONS, quantity, semver
from webhook.extras import LACKS_CEL
from webhook.kube.devices import Attribute, Device

MOST_RESULTS: Final = 200_000
"""Results that are cached, at some 200 bytes each; beyond that all are forgotten."""

_STRING: Final = r'"[^"\\]*"'
_LOOKUP: Final = re.compile(
    rf"""device\.(?:driver\b
      |(?:attributes|capacity)\[({_STRING})\]\s*(?:\.\s*\??([A-Za-z_]\w*)\b(?!\s*\()|\[\??({_STRING})\]))
      |({_STRING})\s+in\s+device\.(?:attributes|capacity)\[({_STRING})\]""",
    re.VERBOSE,
)
_TEXT: Final = re.compile(r"""(["'])((?:(?!\1)[^\\\n]|\\.)*)\1""")


class SelectorError(Exception):
    """A selector cannot be evaluated, or fails on a device; the text says why."""


class UndecidedError(SelectorError):
    """There was no time left to evaluate it."""


@dataclass(frozen=True)
class Described:
    """What selectors see of a device. Attributes and capacities by (domain, name)."""

    driver: str
    attributes: Mapping[tuple[str, str], object]
    capacity: Mapping[tuple[str, str], str]
    problem: str = ""
    shared: bool = False
    versions: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Those of the attributes that are versions, as written: constraints compare the text."""

    def compared(self, name: tuple[str, str]) -> Hashable:
        """An attribute as constraints compare it, None if it is not there."""
        value = self.attributes.get(name)
        return None if value is None else (type(value), self.versions.get(name) or value)

    def shown(self, name: tuple[str, str]) -> str:
        """An attribute as text, "" if it is not there."""
        value = self.attributes.get(name)
        if value is None or isinstance(value, bool):
            return "" if value is None else str(value).lower()
        return self.versions.get(name) or str(value)

    @cached_property
    def identity(self) -> Hashable:
        """Equal for devices that no selector can tell apart."""
        typed = frozenset((key, type(value), _plain(value)) for key, value in self.attributes.items())
        return self.driver, typed, frozenset(self.capacity.items()), self.problem, self.shared


def described(driver: str, device: Device) -> Described:
    """What selectors see of a device of a driver."""
    attributes: dict[tuple[str, str], object] = {}
    problem = ""
    for name, attribute in device.attributes.items():
        value = _value(attribute)
        if value is None:
            problem = f"the attribute {name} has a value of a kind that is not modelled"
        attributes[_qualified(name, driver)] = value
    versions = {
        _qualified(name, driver): each.version for name, each in device.attributes.items() if each.version
    }
    capacity = {_qualified(name, driver): str(each.value) for name, each in device.capacity.items()}
    return Described(driver, attributes, capacity, problem, device.allow_multiple_allocations, versions)


def _qualified(name: str, driver: str) -> tuple[str, str]:
    domain, slash, rest = name.partition("/")
    return (domain, rest) if slash else (driver, name)


def _value(attribute: Attribute) -> object:
    """The attribute's value, None for a kind that is not known here. Versions are maps, as in `numbers`."""
    for plain in (attribute.number, attribute.truth, attribute.string):
        if plain is not None:
            return plain
    if attribute.version is None:
        return None
    try:
        return semver(attribute.version)
    except ValueError:
        return None


def _plain(value: object) -> Hashable:
    return tuple(sorted(value.items())) if isinstance(value, dict) else value


class Selectors:
    """Results of selectors on devices, cached.

    Anybody may write a selector that is slow, so the work between two calls of begin() is bounded; what is
    beyond that is reported as such, and is continued the next time.
    """

    def __init__(self, clock: Callable[[], float] = lambda: 0.0, seconds: float = 2.0) -> None:
        """clock: in seconds, for the bound."""
        self._clock = clock
        self._seconds = seconds
        self._begun = clock()
        self._known: dict[tuple[str, Hashable], bool | str] = {}
        self.evaluations = 0
        """How many selectors have been evaluated on how many devices: for tests of the cost."""

    def begin(self) -> None:
        """A pass begins: it has all of its time for new decisions."""
        self._begun = self._clock()

    def matches(self, expression: str, device: Described) -> bool:
        """Whether the expression is true of the device. Raises SelectorError."""
        program = _program(expression)
        key = (expression, program.seen_of(device))
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= MOST_RESULTS:
                self._known.clear()
            if self._clock() - self._begun > self._seconds:
                raise UndecidedError(
                    "its selectors are still being evaluated, which continues in the next pass"
                )
            self.evaluations += 1
            known = self._known[key] = program.evaluate(device)
        if isinstance(known, str):
            raise SelectorError(known)
        return known


@lru_cache(maxsize=1024)
def _program(expression: str) -> "_Program":
    return _Program(expression)


class _Program:
    """One expression, compiled, and what of a device it looks at."""

    def __init__(self, expression: str) -> None:
        self._shown = expression if len(expression) <= 100 else f"{expression[:97]}..."
        self._domains = {text for _, text in _TEXT.findall(expression) if "\\" not in text}
        self._names = _names(expression)
        try:
            self._compiled: Any = _environment().compile(expression)
            self._fault = ""
        except ModuleNotFoundError:
            self._fault = LACKS_CEL
        except RuntimeError as error:
            message = str(error).removeprefix("INVALID_ARGUMENT: ").splitlines()[0]
            self._fault = f"the selector {self._shown!r} cannot be evaluated here: {message}"

    def seen_of(self, device: Described) -> Hashable:
        """Equal for devices of which the expression says the same."""
        if self._names is None:
            return device.identity
        attributes = tuple(_plain(device.attributes.get(name)) for name in self._names)
        types_of_values = tuple(type(device.attributes.get(name)) for name in self._names)
        capacity = tuple(device.capacity.get(name) for name in self._names)
        return device.driver, device.problem, attributes, types_of_values, capacity

    def evaluate(self, device: Described) -> bool | str:
        """Whether the expression is true of the device, or why that cannot be said."""
        if self._fault or device.problem:
            return self._fault or device.problem
        found = self._compiled.eval(data={"device": self._variable(device)})
        kind = found.type().name()
        if kind == "BOOL":
            return bool(found.value())
        message = found.value() if kind == "ERROR" else f"it is not a boolean, but {kind}"
        return f"the selector {self._shown!r} fails on a device: {message}"

    def _variable(self, device: Described) -> dict[str, Any]:
        """The device as expressions see it; a domain that it has nothing of is empty, not missing."""
        domains = {*self._domains, device.driver}
        attributes: dict[str, dict[str, Any]] = {domain: {} for domain in domains}
        capacity: dict[str, dict[str, Any]] = {domain: {} for domain in domains}
        for (domain, name), value in device.attributes.items():
            attributes.setdefault(domain, {})[name] = value
        for (domain, name), amount in device.capacity.items():
            capacity.setdefault(domain, {})[name] = quantity(amount)
        return {
            "driver": device.driver,
            "attributes": attributes,
            "capacity": capacity,
            "allowMultipleAllocations": device.shared,
        }


def _names(expression: str) -> tuple[tuple[str, str], ...] | None:
    """The attributes and capacities that an expression looks at, None if its text does not tell."""
    found: set[tuple[str, str]] = set()
    for domain, name, text, inside, of in _LOOKUP.findall(expression):
        if domain:
            found.add((domain[1:-1], name or text[1:-1]))
        elif of:
            found.add((of[1:-1], inside[1:-1]))
    rest = _LOOKUP.sub("", expression)
    return None if "device" in rest else tuple(sorted(found))


@lru_cache(maxsize=1)
def _environment() -> Any:
    """The language with what Kubernetes adds to it."""
    # Loaded here: few clusters have a selector, and it takes some 20 MB.
    from cel_expr_python import cel
    from cel_expr_python.ext import ext_bindings, ext_math, ext_optional, ext_strings

    types = {
        "map": cel.Type.Map(cel.Type.STRING, cel.Type.DYN),
        "int": cel.Type.INT,
        "bool": cel.Type.BOOL,
        "string": cel.Type.STRING,
        "double": cel.Type.DOUBLE,
        "strings": cel.Type.List(cel.Type.STRING),
    }
    functions = [
        cel.FunctionDecl(
            name,
            [
                cel.Overload(
                    id=f"topogate_{name}_{number}",
                    return_type=types[each.returns],
                    parameters=[types[kind] for kind in each.takes],
                    is_member=each.is_member,
                    impl=each.function,
                )
                for number, each in enumerate(overloads)
            ],
        )
        for name, overloads in OPERATIONS.items()
    ]
    extensions = [
        ext_bindings.ExtBindings(),
        ext_strings.ExtStrings(),
        ext_optional.ExtOptional(),
        ext_math.ExtMath(),
    ]
    return cel.NewEnv(variables={"device": cel.Type.DYN}, functions=functions, extensions=extensions)
