"""All extensions, and the conditions that switch them on. They are imported only when they are loaded."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from webhook.configuration.settings import Avoid, Settings
from webhook.kube.objects import Pod
from webhook.policy.values import Policy
from webhook.sweeper.extension import Extension, GangsInput, Switch, SwitchInput
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.membership import domain_requests_of
from webhook.sweeper.observe.pods import PodTrait
from webhook.sweeper.observe.view import View
from webhook.workloads.native_gangs import POD_GROUPS


def _has_fair_order(given: SwitchInput) -> bool:
    return given.policy is not None and given.policy.fair_order is not None


def _fair_order() -> Extension:
    from webhook.extensions.fair_order.fair_order import FAIR_ORDER

    return FAIR_ORDER


def _serves_device_claims(given: SwitchInput) -> bool:
    return given.served.get("deviceclasses.resource.k8s.io") == "v1"


def _device_claims() -> Extension:
    from webhook.extensions.device_claims import DEVICE_CLAIMS

    return DEVICE_CLAIMS


def _serves_pod_groups(given: SwitchInput) -> bool:
    return POD_GROUPS in given.served


def _native_gangs() -> Extension:
    from webhook.extensions.native_gangs.pod_group_gangs import NATIVE_GANGS

    return NATIVE_GANGS


def _wants_nodes(given: SwitchInput) -> bool:
    return given.settings.scale_up.is_on


def _scale_up() -> Extension:
    from webhook.extensions.scale_up.scale_up import SCALE_UP

    return SCALE_UP


def _has_node_health(given: SwitchInput) -> bool:
    settings = given.settings
    return settings.bad_nodes.avoid is not Avoid.OFF or settings.spare_nodes.per_block > 0


def _node_health() -> Extension:
    from webhook.extensions.node_health.node_health import NODE_HEALTH

    return NODE_HEALTH


def _has_exclusive_pods(given: SwitchInput) -> bool:
    return given.view is not None and bool(given.view.index.of[PodTrait.EXCLUSIVE])


def _exclusive_topology() -> Extension:
    from webhook.extensions.exclusive_topology.exclusive_topology import EXCLUSIVE_TOPOLOGY

    return EXCLUSIVE_TOPOLOGY


def _is_exclusive(pod: Pod) -> bool:
    return bool(domain_requests_of(pod))


_SERVED: Final = {"deviceclasses.resource.k8s.io": "v1", POD_GROUPS: "v1"}

SWITCHES: Final = (
    Switch(_has_fair_order, _fair_order),
    Switch(_serves_device_claims, _device_claims),
    Switch(_serves_pod_groups, _native_gangs),
    Switch(_has_node_health, _node_health),
    Switch(_wants_nodes, _scale_up),
    Switch(_has_exclusive_pods, _exclusive_topology, needs=_is_exclusive),
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
        if extension.complete_gangs is not None:
            seen = with_owners(extension, view, owners_of)
            gangs = extension.complete_gangs(GangsInput(gangs, seen, settings))
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
    yield _device_claims()


def running(settings: Settings, policy: Policy | None, view: View) -> list[Extension]:
    """The extensions that the sweeper has on with these settings, where the cluster serves what they need."""
    given = SwitchInput(settings, policy, _SERVED, view)
    return [switch.load() for switch in SWITCHES if switch.is_on(given)]


def all_extensions() -> Iterator[Extension]:
    """Every extension, on or off, for questions of users."""
    return (each.load() for each in SWITCHES)
