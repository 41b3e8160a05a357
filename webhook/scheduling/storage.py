"""The nodes on which the volumes of a pod can be used, by kube-scheduler's rules. Pure.

A bound claim needs the nodes of its volume. A claim that waits for its first consumer needs a node where a
volume is free or can be provisioned. In all other cases the pod waits, with the reason.

Source of the rules: kube-scheduler's plugins VolumeBinding (with FindMatchingVolume of
k8s.io/component-helpers/storage/volume; CSIStorageCapacity where a driver publishes it) and VolumeZone. How
many volumes a node takes is in volume_counts.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from labeler.contract import keys
from labeler.contract.quantities import QuantityError, parse
from webhook.kube import objects, volume_objects
from webhook.kube.affinity import LabelSelector, NodeSelector
from webhook.kube.drivers import CSIDriver, CSINode, CSIStorageCapacity, VolumeAttachment
from webhook.kube.volume_objects import PersistentVolume, PersistentVolumeClaim, StorageClass
from webhook.placement.eligibility import NAME_FIELD, Requirement, Term, label_holds
from webhook.placement.model import PodClass
from webhook.scheduling.antiaffinity import requirements_of
from webhook.scheduling.convert import node_term

NOTHING_MADE: Final = "kubernetes.io/no-provisioner"
_ZONE_LABELS: Final = (
    keys.ZONE_LABEL,
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)
_STABLE: Final = dict(zip(_ZONE_LABELS[2:], _ZONE_LABELS[:2], strict=True))
_ANYWHERE: Final = (Term((Requirement("", "DoesNotExist"),)),)
"""Terms that match every node: no label has an empty key."""

Alternatives = tuple[Term, ...]
"""Alternative terms: one must match."""


class _UnusableError(Exception):
    """The volume cannot be used on any node now; the message says why."""


@dataclass(frozen=True)
class Storage:
    """Claims by "namespace/name", volumes and StorageClasses by name, in one pass.

    nodes: CSINodes by name. drivers: CSIDrivers by name. attachments: the VolumeAttachments. Without these no
    driver has a limit or lacks capacity.
    """

    claims: Mapping[str, PersistentVolumeClaim]
    volumes: Mapping[str, PersistentVolume]
    classes: Mapping[str, StorageClass]
    nodes: Mapping[str, CSINode] = field(default_factory=dict)
    drivers: Mapping[str, CSIDriver] = field(default_factory=dict)
    capacities: Sequence[CSIStorageCapacity] = ()
    attachments: Sequence[VolumeAttachment] = ()
    _free: dict[str, list[PersistentVolume]] = field(default_factory=dict, init=False, compare=False)
    _reserved: dict[tuple[str, str], list[PersistentVolume]] = field(
        default_factory=dict, init=False, compare=False
    )
    """Volumes by the claim for which they are reserved: namespace and name."""
    _has_free: dict[str, bool] = field(default_factory=dict, init=False, compare=False)
    """For each class whether any of its volumes is free."""
    _fitting: dict[object, list[PersistentVolume]] = field(default_factory=dict, init=False, compare=False)
    _places: dict[object, Alternatives] = field(default_factory=dict, init=False, compare=False)
    """A cache by the requests of claims, since large gangs have many equal claims."""
    _classes: dict[object, tuple[PodClass, tuple[Alternatives, ...], PodClass]] = field(
        default_factory=dict, init=False, compare=False
    )
    """The class with volume rules, by the ids of the class and of the rules, which it keeps alive."""

    def pod_class(self, pod: objects.Pod, pod_class: PodClass) -> PodClass:
        """The pod's class with the node rules of its volumes, or with their problem."""
        if pod_class.problem or not pod.spec.volumes:
            return pod_class
        found: list[Alternatives] = []
        try:
            for volume in pod.spec.volumes:
                found.extend(self._demands(pod, volume))
        except _UnusableError as error:
            return PodClass((), pod_class.rules, problem=str(error))
        demands = tuple(dict.fromkeys(each for each in found if each != _ANYWHERE))
        if not demands:
            return pod_class
        key = id(pod_class), tuple(map(id, demands))
        known = self._classes.get(key)
        if known is None:
            made = replace(pod_class, rules=replace(pod_class.rules, volumes=demands))
            known = self._classes[key] = pod_class, demands, made
        return known[2]

    def _demands(self, pod: objects.Pod, volume: objects.Volume) -> Iterator[Alternatives]:
        claim, what = self._claim(pod, volume)
        name = claim.spec.volume_name
        if not name:
            yield from self._unbound(claim, what)
            return
        if volume_objects.BIND_COMPLETED not in claim.metadata.annotations:
            raise _UnusableError(f"the {what} is not bound yet")
        bound = self.volumes.get(name)
        if bound is None:
            raise _UnusableError(f'the {what} is bound to the missing PersistentVolume "{name}"')
        yield reachable(bound)
        yield from _zones(bound)

    def claim_of(self, pod: objects.Pod, volume: objects.Volume) -> PersistentVolumeClaim | None:
        """The claim behind a volume, if it exists."""
        return self.claims.get(f"{pod.metadata.namespace}/{claim_name(pod, volume)}")

    def _claim(self, pod: objects.Pod, volume: objects.Volume) -> tuple[PersistentVolumeClaim, str]:
        """The claim behind a volume, and its name in messages."""
        name = claim_name(pod, volume)
        what = f'PersistentVolumeClaim "{name}" of volume "{volume.name}"'
        claim = self.claim_of(pod, volume)
        if claim is None:
            raise _UnusableError(f"there is no {what}")
        if volume.ephemeral is not None and (claim.metadata.controller or _NO_OWNER).uid != pod.metadata.uid:
            raise _UnusableError(f"the {what} was not created for this pod")
        if claim.metadata.deletion_timestamp:
            raise _UnusableError(f"the {what} is being deleted")
        if claim.status.phase == "Lost":
            raise _UnusableError(f"the {what} has lost its PersistentVolume")
        return claim, what

    def _unbound(self, claim: PersistentVolumeClaim, what: str) -> Iterator[Alternatives]:
        """The nodes where a volume for the claim is free or can be provisioned. Raises _UnusableError."""
        name = class_name(claim)
        found = self.classes.get(name)
        if found is None:
            why = f'there is no StorageClass "{name}"' if name else "it names no StorageClass"
            raise _UnusableError(f"the {what} is not bound: {why}")
        if found.volume_binding_mode != "WaitForFirstConsumer":
            raise _UnusableError(f'the {what} is not bound yet (StorageClass "{name}" binds at once)')
        chosen = claim.metadata.annotations.get(volume_objects.SELECTED_NODE)
        if chosen:  # a volume is being provisioned there
            yield (Term(fields=(Requirement(NAME_FIELD, "In", (chosen,)),)),)
        terms = self.where_made(claim) if chosen else self._where_found(claim)
        if not terms and found.provisioner != NOTHING_MADE:
            raise _UnusableError(
                f'no CSIStorageCapacity of StorageClass "{name}" has capacity for the {what}'
            )
        if not terms:
            raise _UnusableError(f'no PersistentVolume of StorageClass "{name}" is free for the {what}')
        yield terms

    def _where_found(self, claim: PersistentVolumeClaim) -> Alternatives:
        """The nodes where a volume for a claim is free or can be provisioned; () if there are none."""
        volumes, key = self._reserved_for(claim), _asked_by(claim)
        if not volumes and key in self._places:
            return self._places[key]
        terms = [term for each in self.matching(claim) for term in reachable(each)]
        terms.extend(self.where_made(claim))
        found = _ANYWHERE if _ANYWHERE[0] in terms else _merged(terms)
        if not volumes:
            self._places[key] = found
        return found

    def waits(self, claim: PersistentVolumeClaim) -> bool:
        """Whether a claim needs one of the free volumes, with none reserved for it."""
        annotations = claim.metadata.annotations
        if claim.spec.volume_name or annotations.get(volume_objects.SELECTED_NODE):
            return False
        name = class_name(claim)
        found = self.classes.get(name)
        if found is None or found.volume_binding_mode != "WaitForFirstConsumer":
            return False
        if name not in self._has_free:
            self._has_free[name] = any(map(_is_free, self._of_class(name)))
        return self._has_free[name] and not self._reserved_for(claim)

    def matching(self, claim: PersistentVolumeClaim) -> list[PersistentVolume]:
        """The volumes that can be bound to a claim; a volume reserved for it excludes all others."""
        if volumes := [each for each in self._reserved_for(claim) if _is_enough(each, claim)]:
            return volumes
        key = _asked_by(claim)
        if key not in self._fitting:
            self._fitting[key] = [
                each
                for each in self._of_class(class_name(claim))
                if _is_free(each) and _is_enough(each, claim) and _is_wanted(each, claim)
            ]
        return self._fitting[key]

    def where_made(self, claim: PersistentVolumeClaim) -> Alternatives:
        """The nodes where a volume for the claim can be provisioned, by its class and driver capacity."""
        found = self.classes.get(class_name(claim))
        if found is None or found.provisioner in ("", NOTHING_MADE):
            return ()
        allowed, terms = _allowed(found), self._driver_capacity(claim, found)
        if terms is None:
            return allowed
        if allowed == _ANYWHERE:
            return terms
        return tuple(
            Term((*one.expressions, *other.expressions)) for one, other in itertools.product(allowed, terms)
        )

    def _driver_capacity(self, claim: PersistentVolumeClaim, found: StorageClass) -> Alternatives | None:
        """The nodes where the driver has capacity for a claim; None if it publishes no capacity."""
        driver = self.drivers.get(found.provisioner)
        wanted = claim.spec.resources.requests.get("storage")
        if driver is None or not driver.spec.storage_capacity or wanted is None:
            return None
        terms = [
            Term(requirements_of(each.node_topology)) if _asks(each.node_topology) else _ANYWHERE[0]
            for each in self.capacities
            if each.storage_class_name == found.metadata.name
            and each.node_topology is not None
            and _fits(each, wanted)
        ]
        return _ANYWHERE if _ANYWHERE[0] in terms else _merged(terms)

    def _of_class(self, name: str) -> list[PersistentVolume]:
        if not self._free:
            for volume in self.volumes.values():
                if not volume.metadata.deletion_timestamp:
                    self._free.setdefault(volume.spec.storage_class_name, []).append(volume)
                    if (of := volume.spec.claim_ref) is not None:
                        self._reserved.setdefault((of.namespace, of.name), []).append(volume)
        return self._free.get(name, [])

    def _reserved_for(self, claim: PersistentVolumeClaim) -> list[PersistentVolume]:
        """The volumes of its class that are reserved for a claim."""
        name = class_name(claim)
        self._of_class(name)
        volumes = self._reserved.get((claim.metadata.namespace, claim.metadata.name), ())
        return [
            each for each in volumes if each.spec.storage_class_name == name and _is_reserved_for(each, claim)
        ]


_NO_OWNER: Final = objects.OwnerReference()


def claim_name(pod: objects.Pod, volume: objects.Volume) -> str:
    """The name of the claim behind a volume; for an ephemeral volume it is derived from the pod's name."""
    named: Any = (volume.persistent_volume_claim or {}).get("claimName")
    return str(named or "") if volume.ephemeral is None else f"{pod.metadata.name}-{volume.name}"


def class_name(claim: PersistentVolumeClaim) -> str:
    """The StorageClass that a claim names, "" for none. The old annotation has priority, as in Kubernetes."""
    old = claim.metadata.annotations.get(volume_objects.CLASS_BEFORE_IT_WAS_A_FIELD)
    return old if old is not None else claim.spec.storage_class_name or ""


def _asked_by(claim: PersistentVolumeClaim) -> object:
    """A key of a claim: claims with equal keys can use the same volumes and be provisioned in the same
    places.
    """
    spec = claim.spec
    selector = None if spec.selector is None else requirements_of(spec.selector)
    asked = str(spec.resources.requests.get("storage"))
    modes = frozenset(spec.access_modes)
    return class_name(claim), asked, spec.volume_mode, modes, selector, spec.volume_attributes_class_name


def reachable(volume: PersistentVolume) -> Alternatives:
    """The nodes that can access a volume."""
    affinity = volume.spec.node_affinity
    required: NodeSelector | None = affinity.required if affinity is not None else None
    return _ANYWHERE if required is None else tuple(map(node_term, required.node_selector_terms))


def _zones(volume: PersistentVolume) -> Iterator[Alternatives]:
    """The zone and region labels of a bound volume. A node without these labels is not excluded."""
    untold = Term(tuple(Requirement(key, "DoesNotExist") for key in _ZONE_LABELS))
    for key in _ZONE_LABELS:
        value = volume.metadata.labels.get(key)
        if value is None:
            continue
        values = tuple(value.split("__"))
        terms = [Term((Requirement(key, "In", values),)), untold]
        if key in _STABLE:  # the node may have the newer label
            terms.append(Term((Requirement(key, "DoesNotExist"), Requirement(_STABLE[key], "In", values))))
        yield tuple(terms)


def _allowed(found: StorageClass) -> Alternatives:
    """The nodes where volumes of a class can be provisioned."""
    if not found.allowed_topologies:
        return _ANYWHERE
    return tuple(
        Term(tuple(Requirement(each.key, "In", tuple(each.values)) for each in term.match_label_expressions))
        for term in found.allowed_topologies
    )


def _merged(terms: list[Term]) -> Alternatives:
    """The terms with those on one label merged, since a class may have a volume on each node."""
    values: dict[str, dict[str, None]] = {}
    others: dict[Term, None] = {}
    for term in terms:
        only = (*term.expressions, *term.fields)
        if len(only) == 1 and only[0].operator == "In" and not term.fields:
            values.setdefault(only[0].key, {}).update(dict.fromkeys(only[0].values))
        else:
            others[term] = None
    joined = [Term((Requirement(key, "In", tuple(sorted(each))),)) for key, each in values.items()]
    return (*joined, *others)


def _is_enough(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether a volume is large enough for a claim and has its mode."""
    try:
        wanted = parse(claim.spec.resources.requests.get("storage", 0))
        large_enough = parse(volume.spec.capacity.get("storage", 0)) >= wanted
    except QuantityError:
        return False
    mode, attributes = claim.spec.volume_mode, claim.spec.volume_attributes_class_name
    is_of_mode = volume.spec.volume_mode == mode and volume.spec.volume_attributes_class_name == attributes
    return large_enough and is_of_mode


def _asks(selector: LabelSelector | None) -> bool:
    """Whether a selector has any requirement."""
    return selector is not None and bool(selector.match_labels or selector.match_expressions)


def _fits(capacity: CSIStorageCapacity, wanted: str | int | float) -> bool:
    """Whether there is capacity for a volume of this size, in whole bytes as in kube-scheduler."""
    most = capacity.capacity if capacity.maximum_volume_size is None else capacity.maximum_volume_size
    try:
        return most is not None and -(-parse(most) // 1000) >= -(-parse(wanted) // 1000)
    except QuantityError:
        return False


def _is_reserved_for(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    reference = volume.spec.claim_ref
    return (
        reference is not None
        and (reference.namespace, reference.name) == (claim.metadata.namespace, claim.metadata.name)
        and reference.uid in ("", claim.metadata.uid)
    )


def _is_free(volume: PersistentVolume) -> bool:
    return volume.spec.claim_ref is None and volume.status.phase == "Available"


def _is_wanted(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether a volume has the access modes and labels that a claim asks for."""
    if not set(claim.spec.access_modes) <= set(volume.spec.access_modes):
        return False
    selector = claim.spec.selector
    labels = volume.metadata.labels
    return selector is None or all(label_holds(each, labels) for each in requirements_of(selector))
