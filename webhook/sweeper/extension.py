"""What an extension of the sweeper is: a descriptor, and hooks that are pure functions of input and memory.

An extension sees what a hook gives it, and nothing else: it holds no client, no cache and no other part of
the sweeper. A hook takes the memory that the hook before has left and returns another, both frozen. With an
empty memory it decides the same a little later, so what must not be lost goes into the extension's record: a
ConfigMap that the sweeper reads and writes for it. docs/contributing/extensions.md tells how to write one.

The core imports no extension. `main` gives it Switches: each tells by the settings whether its extension is
on, and imports it only then.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from webhook.policy.values import Policy
from webhook.scheduling.antiaffinity import NamespaceLabels
from webhook.sweeper.decide.orders import Cause, NewPlan
from webhook.sweeper.decide.reservations import Reservation
from webhook.sweeper.metrics import GaugeSpec
from webhook.sweeper.observe.gangs import GangKey, PodGang
from webhook.sweeper.observe.view import View
from webhook.sweeper.settings import Settings

Gauges = Mapping[str, Mapping[tuple[str, ...], float]]
"""Name of a gauge -> label values, in the order of its labels -> value. It shows just these from then on."""


@dataclass(frozen=True)
class RecordSpec:
    """A ConfigMap of topogate-system in which what an extension remembers outlives every process.

    The installation makes it. name: the ConfigMap's. seconds: between two writes, and between two attempts.
    written: the gauge that tells when it was written last, in seconds since 1970.
    """

    name: str
    seconds: float = 60.0
    written: GaugeSpec | None = None


# --- hooks --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OrderInput:
    """What the order of gangs may depend on.

    gangs: all that wait, by priority, then age. settings: the sweeper's. policy: admission's, None if it is
    not known. namespaces: their labels, None while they are not known. causes: why gangs found no place when
    they were asked about last. stages: by Placement ("namespace/name"), nodes that are reserved for pods of
    its gang that are yet to be made. record: the data of the extension's record, in the first pass after it
    was read, and again until the hook has taken it in; else None. cpu_seconds: a clock of the CPU time of
    this thread, for work that is to take a bounded share of it.
    """

    gangs: Sequence[PodGang]
    view: View
    settings: Settings
    policy: Policy | None
    namespaces: NamespaceLabels | None
    causes: Mapping[GangKey, Cause]
    stages: Mapping[str, Reservation]
    record: Mapping[str, str] | None
    cpu_seconds: Callable[[], float]


@dataclass(frozen=True)
class Ordered:
    """Gangs in the order in which they are placed. sentences: by Placement, what its gang is told of that."""

    gangs: Sequence[PodGang]
    sentences: Mapping[str, str] = field(default_factory=dict)
    gauges: Gauges = field(default_factory=dict)


@dataclass(frozen=True)
class PassEnd:
    """What has become of a pass.

    placed: the plans that were written. may_write: whether the record may be written now.
    """

    view: View
    policy: Policy | None
    placed: Sequence[NewPlan]
    may_write: bool


@dataclass(frozen=True)
class EndOrders:
    """What is to be done after a pass. record: keys to write into the extension's record, None for none."""

    record: Mapping[str, str] | None = None
    gauges: Gauges = field(default_factory=dict)


@dataclass(frozen=True)
class ExplainInput:
    """What `topogate explain` knows of a gang that waits.

    gangs: all that wait. record: the data of the extension's record, None for whoever may not read it.
    namespaces: their labels, None likewise. now: seconds since 1970.
    """

    gang: PodGang
    gangs: Sequence[PodGang]
    record: Mapping[str, str] | None
    namespaces: NamespaceLabels | None
    now: float


# --- descriptor ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Extension:
    """One optional feature.

    memory: the empty one, which the first hook is given. gauges: that its hooks set. Hooks, each None where
    the feature does not need it: order_gangs puts the gangs into the order in which they are placed;
    after_pass takes in what has become of the pass. explain: further lines of `topogate explain`.
    """

    name: str
    memory: Any = None
    record: RecordSpec | None = None
    gauges: tuple[GaugeSpec, ...] = ()
    order_gangs: Callable[[OrderInput, Any], tuple[Ordered, Any]] | None = None
    after_pass: Callable[[PassEnd, Any], tuple[EndOrders, Any]] | None = None
    explain: Callable[[ExplainInput], Iterable[str]] | None = None

    @property
    def all_gauges(self) -> tuple[GaugeSpec, ...]:
        """Also those of its record."""
        of_record = self.record.written if self.record is not None else None
        return self.gauges if of_record is None else (*self.gauges, of_record)


@dataclass(frozen=True)
class Switch:
    """An extension that may be on. is_on: by settings and policy, asked in each pass. load: imports it."""

    is_on: Callable[[Settings, Policy | None], bool]
    load: Callable[[], Extension]
