"""All extensions, and the conditions that switch them on. They are imported only when they are loaded."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any, Final

from webhook.configuration.settings import Avoid, Settings
from webhook.kube.objects import Pod
from webhook.policy.values import Policy
from webhook.sweeper.extension import Extension, HookInput, Switch
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.pods import PodTrait
from webhook.sweeper.observe.view import View
from webhook.workloads.native_gangs import POD_GROUPS
from webhook.workloads.own_domains import domain_requests_of


def _has_fair_order(given: HookInput) -> bool:
    return given.policy is not None and given.policy.fair_order is not None


def _serves_device_claims(given: HookInput) -> bool:
    return given.served.get("deviceclasses.resource.k8s.io") == "v1"


def _serves_pod_groups(given: HookInput) -> bool:
    return POD_GROUPS in given.served


def _wants_nodes(given: HookInput) -> bool:
    return given.settings.scale_up.is_on


def _has_node_health(given: HookInput) -> bool:
    settings = given.settings
    return settings.bad_nodes.avoid is not Avoid.OFF or settings.spare_nodes.per_block > 0


def _has_exclusive_pods(given: HookInput) -> bool:
    return bool(given.view.index.of[PodTrait.OWN_DOMAIN])


def _is_exclusive(pod: Pod) -> bool:
    return bool(domain_requests_of(pod))


def _load(module: str, name: str) -> Extension:
    found = getattr(import_module(f"webhook.extensions.{module}"), name)
    assert isinstance(found, Extension)
    return found


_SERVED: Final = {"deviceclasses.resource.k8s.io": "v1", POD_GROUPS: "v1"}
_DEVICE_CLAIMS: Final = partial(_load, "device_claims", "DEVICE_CLAIMS")

SWITCHES: Final = (
    Switch(_has_fair_order, partial(_load, "fair_order.fair_order", "FAIR_ORDER")),
    Switch(_serves_device_claims, _DEVICE_CLAIMS),
    Switch(_serves_pod_groups, partial(_load, "native_gangs.pod_group_gangs", "NATIVE_GANGS")),
    Switch(_has_node_health, partial(_load, "node_health.node_health", "NODE_HEALTH")),
    Switch(_wants_nodes, partial(_load, "scale_up.scale_up", "SCALE_UP")),
    Switch(
        _has_exclusive_pods,
        partial(_load, "exclusive_topology.exclusive_topology", "EXCLUSIVE_TOPOLOGY"),
        needs=_is_exclusive,
    ),
)


def completed(
    gangs: Sequence[PodGang],
    view: View,
    settings: Settings,
    owners_of: Callable[[str], Mapping[str, Any] | None],
) -> Sequence[PodGang]:
    """The gangs, completed by all extensions, for questions of users.

    owners_of: the owners of a kind ("jobs.batch") by "namespace/name", None if they are unknown.
    """
    for extension in all_extensions():
        seen = with_owners(extension, view, owners_of)
        gangs = extension.complete_gangs(HookInput(seen, settings, gangs=gangs))
    return gangs


def with_owners(
    extension: Extension, view: View, owners_of: Callable[[str], Mapping[str, Any] | None]
) -> View:
    """The view with the owners that an extension reads; see completed."""
    found = {each: owners_of(each.name) for each in extension.owners}
    objects: dict[Hashable, Mapping[str, Any]] = {
        each: owners for each, owners in found.items() if owners is not None
    }
    return replace(view, objects={**view.objects, **objects})


def resource_extensions() -> Iterator[Extension]:
    """The extensions that add resources to nodes and pods; no other is imported."""
    yield _DEVICE_CLAIMS()


def running(settings: Settings, policy: Policy | None, view: View) -> list[Extension]:
    """The extensions that the sweeper has on with these settings, where the cluster serves what they need."""
    given = HookInput(view, settings, policy, served=_SERVED)
    return [switch.load() for switch in SWITCHES if switch.is_on(given)]


def all_extensions() -> Iterator[Extension]:
    """Every extension, on or off, for questions of users."""
    return (each.load() for each in SWITCHES)
