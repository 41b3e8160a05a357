"""Who has which GPUs: those of pods that stand somewhere, and of nodes that are reserved for later pods."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from webhook.extensions.fair_order.account_use import Rates
from webhook.identity_cache import IdentityCache
from webhook.kube.objects import Node, Pod
from webhook.policy.values import Policy
from webhook.scheduling import convert
from webhook.scheduling.gpus import Counting
from webhook.scheduling.nodes import node_of
from webhook.sweeper.decide.reservations import Reservation
from webhook.sweeper.observe.view import View, is_usable

MOST_MODELS: Final = 32
OTHER: Final = "other"
"""What models beyond MOST_MODELS are called, and in the metrics accounts beyond a number."""

AccountOf = Callable[[str], str]
"""Namespace -> account."""


class PodGpus(NamedTuple):
    """GPUs of a pod that stands on a node, or is planned there."""

    account: str
    model: str
    gpus: int
    pod: Pod


class GpuCounts:
    """GPUs and models by one policy, each read once an object. What is kept only saves work."""

    def __init__(self, policy: Policy, counting: Counting) -> None:
        self.policy = policy
        self._counting = counting
        self._gpus = IdentityCache[str, int]()
        self._models = IdentityCache[str, str]()
        self._sizes = IdentityCache[str, int]()

    def end_pass(self) -> None:
        """Forget what was not asked for since the last round."""
        self._gpus.end_pass()
        self._models.end_pass()
        self._sizes.end_pass()

    def gpus(self, pod: Pod) -> int:
        """A pod's GPUs. Of claims on devices, where those make a GPU pod, each counts as one."""
        return self._gpus.get(pod.metadata.uid, self._count, pod)

    def capacity(self, view: View) -> int:
        """The GPUs of all nodes that take pods."""
        return sum(map(self._size, filter(is_usable, view.nodes.values())))

    def model_on(self, view: View, node: str) -> str:
        """The model of a node's GPUs, "" if it is not known."""
        there = view.nodes.get(node)
        return self._models.get(node, self._model_of, there) if there is not None else ""

    def model_wanted(self, pod: Pod) -> str:
        """The model that a pod's nodeSelector names, "" if it does not."""
        selector = pod.spec.node_selector
        return self._model(selector) if selector else ""

    def in_use(self, view: View, account: AccountOf) -> Iterator[PodGpus]:
        """Each pod that has GPUs: bound, released, or planned."""
        accounts: dict[str, str] = {}
        for pod, node in view.placed_pods():
            gpus = self.gpus(pod)
            if gpus:
                namespace = pod.metadata.namespace
                name = accounts.get(namespace)
                if name is None:
                    name = accounts[namespace] = account(namespace)
                yield PodGpus(name, self.model_on(view, node), gpus, pod)

    def reserved(
        self, view: View, account: AccountOf, stages: Mapping[str, Reservation]
    ) -> Iterator[tuple[str, str, int]]:
        """Account, model and GPUs of what stands empty for pods of placed gangs that are yet to be made."""
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
                taken[node] = taken.get(node, 0) + self.gpus(pod)
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
            gpus = self._counting.gpus(convert.requests_of(pod.spec))
        except ValueError:
            return 0  # it cannot be read, so kube-scheduler does not bind it either
        return gpus or (len(pod.spec.resource_claims) if self.policy.resource_claims else 0)


def added(rates: Rates, found: Iterator[tuple[str, str, int]]) -> Rates:
    """GPUs by account and model, with these; models beyond MOST_MODELS of an account are summed as one."""
    summed = {account: dict(models) for account, models in rates.items()}
    for account, model, gpus in found:
        models = summed.setdefault(account, {})
        name = model if model in models or len(models) < MOST_MODELS else OTHER
        models[name] = models.get(name, 0) + gpus
    return summed
