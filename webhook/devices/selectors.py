"""CEL selectors of devices, evaluated as in the API server and kube-scheduler.

The interpreter is Google's (cel-expr-python). This package adds quantities and semantic versions, as
Kubernetes does. The interpreter is loaded for the first selector, since most clusters have none. Results are
cached for the life of the process, once for all devices that are equal to a selector.

Source of the rules: k8s.io/dynamic-resource-allocation/cel and k8s.io/apiserver/pkg/cel/library (quantity,
semver, regex). An expression with an unknown function is reported as one that cannot be evaluated.
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
"""The most cached results, at about 200 bytes each; beyond that the cache is cleared."""

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
    """There is no time left in this pass to evaluate it."""


@dataclass(frozen=True)
class Described:
    """A device as selectors see it. Attributes and capacities by (domain, name)."""

    driver: str
    attributes: Mapping[tuple[str, str], object]
    capacity: Mapping[tuple[str, str], str]
    problem: str = ""
    shared: bool = False
    versions: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """The text of version attributes, which constraints compare."""

    def compared(self, name: tuple[str, str]) -> Hashable:
        """The value of an attribute for constraints, None if it is missing."""
        value = self.attributes.get(name)
        return None if value is None else (type(value), self.versions.get(name) or value)

    def shown(self, name: tuple[str, str]) -> str:
        """An attribute as text, "" if it is missing."""
        value = self.attributes.get(name)
        if value is None or isinstance(value, bool):
            return "" if value is None else str(value).lower()
        return self.versions.get(name) or str(value)

    @cached_property
    def identity(self) -> Hashable:
        """A key that is equal for devices that no selector can distinguish."""
        typed = frozenset((key, type(value), _plain(value)) for key, value in self.attributes.items())
        return self.driver, typed, frozenset(self.capacity.items()), self.problem, self.shared


def described(driver: str, device: Device) -> Described:
    """A driver's device as selectors see it."""
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
    """The value of an attribute, None for an unknown type. Versions are maps, as in `numbers`."""
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

    Users may write slow selectors, so the work between two calls of begin() is bounded. Work beyond that
    raises UndecidedError and continues after the next call.
    """

    def __init__(self, clock: Callable[[], float] = lambda: 0.0, seconds: float = 2.0) -> None:
        """clock: in seconds. seconds: the time between two calls of begin()."""
        self._clock = clock
        self._seconds = seconds
        self._begun = clock()
        self._known: dict[tuple[str, Hashable], bool | str] = {}
        self.evaluations = 0
        """The number of evaluations of a selector on a device, for tests of the cost."""
        self._evaluated_before = 0

    def begin(self) -> None:
        """Start a pass with its full time for new evaluations, and for one at least on a slow machine."""
        self._begun = self._clock()
        self._evaluated_before = self.evaluations

    def matches(self, expression: str, device: Described) -> bool:
        """Whether the expression matches the device. Raises SelectorError."""
        program = _program(expression)
        key = (expression, program.seen_of(device))
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= MOST_RESULTS:
                self._known.clear()
            is_over = self._clock() - self._begun > self._seconds
            if is_over and self.evaluations > self._evaluated_before:
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
    """A compiled expression, and the attributes that it reads."""

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
        """A key that is equal for devices with the same result."""
        if self._names is None:
            return device.identity
        attributes = tuple(_plain(device.attributes.get(name)) for name in self._names)
        types_of_values = tuple(type(device.attributes.get(name)) for name in self._names)
        capacity = tuple(device.capacity.get(name) for name in self._names)
        return device.driver, device.problem, attributes, types_of_values, capacity

    def evaluate(self, device: Described) -> bool | str:
        """Whether the expression matches the device, or why it cannot be evaluated."""
        if self._fault or device.problem:
            return self._fault or device.problem
        found = self._compiled.eval(data={"device": self._variable(device)})
        kind = found.type().name()
        if kind == "BOOL":
            return bool(found.value())
        message = found.value() if kind == "ERROR" else f"it is not a boolean, but {kind}"
        return f"the selector {self._shown!r} fails on a device: {message}"

    def _variable(self, device: Described) -> dict[str, Any]:
        """The CEL variable of the device. A domain without attributes is empty, not missing."""
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
    """The attributes and capacities that an expression reads, None if its text does not show them."""
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
    """The CEL environment with Kubernetes' additions."""
    # Imported here, since few clusters have selectors and it takes about 20 MB.
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
