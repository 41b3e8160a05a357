"""The use of accounts: decayed GPU-seconds, a leader's knowledge of them, and their record.

Times are seconds of one monotonic clock; use before the leader's start comes from the record.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from math import exp2, expm1, isfinite, log
from typing import Any, Final, NamedTuple

from webhook.identity_cache import IdentityCache
from webhook.kube.objects import Node, Pod
from webhook.policy.fair import FairOrder
from webhook.policy.values import Policy
from webhook.scheduling import convert
from webhook.scheduling.gpus import Counting
from webhook.scheduling.nodes import node_of
from webhook.sweeper.decide.reservations import Reservation
from webhook.sweeper.observe.view import View, is_usable

# --- use ----------------------------------------------------------------------------------------------
# Decayed use: GPU-seconds by account and model, which halve after each half-life.
#
# Sums are exact: the same GPUs for the same time give the same result in one step or in many. Use never
# exceeds `window` seconds of the GPUs, so a clock jump cannot make it large.

Use = dict[str, dict[str, float]]
"""Account -> model -> decayed GPU-seconds."""

Rates = Mapping[str, Mapping[str, int]]
"""Account -> model -> its current GPUs."""


def window(half_life: float) -> float:
    """The limit of decayed use for one steadily used GPU, in seconds; use / window is GPUs on average."""
    return half_life / log(2)


def gained(gpus: float, seconds: float, half_life: float) -> float:
    """The decayed use of so many GPUs during the last seconds."""
    return gpus * window(half_life) * -expm1(-max(0.0, seconds) * log(2) / half_life)


def advanced(use: Use, seconds: float, rates: Rates, half_life: float) -> Use:
    """Use after so many seconds with these GPUs; amounts below one GPU-second are dropped."""
    factor = exp2(-max(0.0, seconds) / half_life)
    after: Use = {}
    for account in use.keys() | rates.keys():
        before, now = use.get(account, {}), rates.get(account, {})
        models = {
            model: before.get(model, 0.0) * factor + gained(now.get(model, 0), seconds, half_life)
            for model in before.keys() | now.keys()
        }
        if left := {model: amount for model, amount in models.items() if amount >= 1.0 or now.get(model)}:
            after[account] = left
    return after


def add(use: Use, account: str, model: str, amount: float) -> None:
    """Add decayed GPU-seconds."""
    models = use.setdefault(account, {})
    models[model] = models.get(model, 0.0) + amount


# --- record -------------------------------------------------------------------------------------------
# The saved use that the next leader continues from: the text of one key of a ConfigMap.
#
# Its size is bounded: accounts with the least use are left out first.

NAME: Final = "topogate-use"
KEY: Final = "use.json"
MOST_BYTES: Final = 500_000
"""etcd accepts 1.5 MB for an object."""

MOST_AMOUNT: Final = 1e15
"""GPU-seconds; a million GPUs in use for thirty years."""

_VERSION: Final = 1


class RecordError(ValueError):
    """The record cannot be used; the message says why."""


@dataclass(frozen=True)
class Record:
    """Use at a time (seconds since 1970), with the GPUs of accounts then and the policy that counted it.

    rates and fair are for display; the sweeper does not use them.
    """

    at: float
    use: Use = field(default_factory=dict)
    rates: Rates = field(default_factory=dict)
    fair: FairOrder = field(default_factory=FairOrder)


def encode(use: Use, at: float, fair: FairOrder, rates: Rates | None = None) -> str:
    """The text of a record, at most MOST_BYTES long. rates: the GPUs of accounts at that time."""
    totals = {account: sum(models.values()) for account, models in use.items()}
    accounts: dict[str, Any] = {}
    left = MOST_BYTES - 1000 - len(json.dumps(fair.model_costs))
    for account in sorted(totals, key=lambda each: (-totals[each], each)):
        amounts = {model: round(amount, 1) for model, amount in sorted(use[account].items())}
        entry: dict[str, Any] = {"weight": fair.weight(account), "gpuSeconds": amounts}
        if now := (rates or {}).get(account):
            entry["gpus"] = dict(sorted(now.items()))
        left -= len(json.dumps({account: entry}))
        if left < 0:
            break
        accounts[account] = entry
    document = {
        "version": _VERSION,
        "at": datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds"),
        "halfLifeSeconds": fair.half_life_seconds,
        "accountLabel": fair.account_label,
        "modelCosts": dict(fair.model_costs),
        "accounts": accounts,
    }
    return json.dumps(document)


def decode(text: str) -> Record:
    """The record of a text. Raises RecordError."""
    try:
        document = json.loads(text)
        if document["version"] != _VERSION:
            raise RecordError(f"it is of version {document['version']!r}, not {_VERSION}")
        accounts = document["accounts"]
        use = {account: _amounts(each["gpuSeconds"]) for account, each in accounts.items()}
        weights = {account: _amount(each["weight"]) for account, each in accounts.items()}
        if not all(weights.values()):
            raise RecordError("a weight is 0")
        fair = FairOrder(
            half_life_seconds=max(1.0, _amount(document["halfLifeSeconds"])),
            account_label=str(document.get("accountLabel", "")),
            weights=weights,
            model_costs=_amounts(document.get("modelCosts", {})),
        )
        now = {account: _amounts(each["gpus"]) for account, each in accounts.items() if "gpus" in each}
        rates = {account: {model: int(gpus) for model, gpus in each.items()} for account, each in now.items()}
        return Record(datetime.fromisoformat(document["at"]).timestamp(), use, rates, fair)
    except RecordError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise RecordError(f"{type(error).__name__}: {error}") from None


def _amounts(values: Mapping[str, Any]) -> dict[str, float]:
    return {model: _amount(value) for model, value in values.items()}


def _amount(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise RecordError(f"{value!r} is not an amount")
    if not 0 <= value <= MOST_AMOUNT:
        raise RecordError(f"{value!r} is not a possible amount of use")
    return float(value)


# --- book ---------------------------------------------------------------------------------------------
# A leader's knowledge of use: sums that continue from pass to pass, and placed overdue gangs.


class Ran(NamedTuple):
    """GPUs that have been in use for the last seconds."""

    account: str
    model: str
    gpus: int
    seconds: float


@dataclass(frozen=True)
class Book:
    """Use by account and model at the time `at`, which is None before the first pass.

    served_at: when an overdue gang of an account was last placed.
    """

    use: Use = field(default_factory=dict)
    rates: Rates = field(default_factory=dict)
    at: float | None = None
    served_at: Mapping[str, float] = field(default_factory=dict)

    def with_rates(self, now: float, rates: Rates, fair: FairOrder) -> "Book":
        """Count the previous rates until now, and set new ones."""
        use, at = self.use, now
        if self.at is not None:
            use = advanced(use, now - self.at, self.rates, fair.half_life_seconds)
            at = max(now, self.at)
        return replace(self, use=use, at=at, rates=rates)

    def begun(self, use: Use, ago: float, running: Iterable[Ran], now: float, fair: FairOrder) -> "Book":
        """Start from the use `ago` seconds before now, plus the pods that have run since."""
        grown = advanced(use, ago, {}, fair.half_life_seconds)
        for each in running:
            seconds = min(each.seconds, max(0.0, ago))
            add(grown, each.account, each.model, gained(each.gpus, seconds, fair.half_life_seconds))
        return replace(self, use=grown, at=now)

    def with_served(self, account: str, now: float, fair: FairOrder) -> "Book":
        """Record a placed overdue gang: no gang of the account is overdue again for the longest wait."""
        return replace(self, served_at={**self.served_lately(now, fair), account: now})

    def served_lately(self, now: float, fair: FairOrder) -> dict[str, float]:
        """The accounts with an overdue gang placed less than the longest wait ago, and when."""
        wait = fair.maximum_wait_seconds
        return {account: at for account, at in self.served_at.items() if now - at < wait}


# --- GPUs of accounts ---------------------------------------------------------------------------------
# The GPUs of placed pods, and of nodes that are reserved for later pods.

MOST_MODELS: Final = 32
OTHER: Final = "other"
"""The name of all models beyond MOST_MODELS and, in metrics, of all accounts beyond a number."""

AccountOf = Callable[[str], str]
"""Namespace -> account."""


class PodGpus(NamedTuple):
    """The GPUs of a pod that is on a node or planned there."""

    account: str
    model: str
    gpus: int
    pod: Pod


class GpuCounts:
    """GPUs and models by one policy, computed once for each object. The caches only save work."""

    def __init__(self, policy: Policy, counting: Counting) -> None:
        self.policy = policy
        self._counting = counting
        self._requests = Counting(policy.gpu_requests)
        self._gpus = IdentityCache[str, int]()
        self._models = IdentityCache[str, str]()
        self._sizes = IdentityCache[str, int]()

    def end_pass(self) -> None:
        """Drop cache entries that were not used since the last call."""
        self._gpus.end_pass()
        self._models.end_pass()
        self._sizes.end_pass()

    def gpus(self, view: View, pod: Pod) -> int:
        """A pod's GPUs, including those of claims if the policy counts claims.

        A claim whose request is unknown in this pass counts as one GPU.
        """
        gpus = self._gpus.get(pod.metadata.uid, self._count, pod)
        claims = pod.spec.resource_claims
        if gpus or not claims or not self.policy.resource_claims:
            return gpus
        known = (each.devices_of(pod, self.policy.is_gpu_class) for each in view.added)
        return next((count for count in known if count is not None), len(claims))

    def capacity(self, view: View) -> int:
        """The GPUs of all usable nodes."""
        return sum(map(self._size, filter(is_usable, view.nodes.values())))

    def model_on(self, view: View, node: str) -> str:
        """The model of a node's GPUs, "" if unknown."""
        there = view.nodes.get(node)
        return self._models.get(node, self._model_of, there) if there is not None else ""

    def model_wanted(self, pod: Pod) -> str:
        """The model that a pod's nodeSelector names, "" if it does not."""
        selector = pod.spec.node_selector
        return self._model(selector) if selector else ""

    def in_use(self, view: View, account: AccountOf) -> Iterator[PodGpus]:
        """All pods with GPUs that are bound, released or planned."""
        accounts: dict[str, str] = {}
        for pod, node in view.placed_pods():
            gpus = self.gpus(view, pod)
            if gpus:
                namespace = pod.metadata.namespace
                name = accounts.get(namespace)
                if name is None:
                    name = accounts[namespace] = account(namespace)
                yield PodGpus(name, self.model_on(view, node), gpus, pod)

    def reserved(
        self, view: View, account: AccountOf, stages: Mapping[str, Reservation]
    ) -> Iterator[tuple[str, str, int]]:
        """Account, model and GPUs of free capacity that is reserved for later pods of placed gangs."""
        nodes = {
            node: key
            for key, reservation in stages.items()
            for node in reservation.nodes
            if node in view.nodes
        }
        if not nodes:
            return
        taken: dict[str, int] = {}
        for pod, node in view.placed_pods():
            if node in nodes:
                taken[node] = taken.get(node, 0) + self.gpus(view, pod)
        for node, key in nodes.items():
            gpus = self._size(view.nodes[node]) - taken.get(node, 0)
            if gpus > 0:
                yield account(key.partition("/")[0]), self.model_on(view, node), gpus

    def _size(self, node: Node) -> int:
        return self._sizes.get(node.metadata.name, self._count_on, node)

    def _count_on(self, node: Node) -> int:
        return self._counting.gpus(node_of(node).allocatable)

    def _model_of(self, node: Node) -> str:
        return self._model(node.metadata.labels)

    def _model(self, labels: Mapping[str, str]) -> str:
        return self.policy.model_of_node(labels) or self._counting.model(labels)

    def _count(self, pod: Pod) -> int:
        try:
            return self._requests.gpus(convert.requests_of(pod.spec))
        except ValueError:
            return 0  # unreadable requests: kube-scheduler does not bind the pod either


def added(rates: Rates, found: Iterator[tuple[str, str, int]]) -> Rates:
    """Rates plus these GPUs; models beyond MOST_MODELS of an account are summed as OTHER."""
    summed = {account: dict(models) for account, models in rates.items()}
    for account, model, gpus in found:
        models = summed.setdefault(account, {})
        name = model if model in models or len(models) < MOST_MODELS else OTHER
        models[name] = models.get(name, 0) + gpus
    return summed
