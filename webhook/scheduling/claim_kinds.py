"""Classes of PersistentVolumeClaims that the same volumes fit, and sizes of volumes. Pure."""

from typing import NamedTuple

from labeler.contract.quantities import QuantityError, parse
from webhook.kube.volume_objects import PersistentVolume, PersistentVolumeClaim
from webhook.placement.eligibility import Requirement
from webhook.scheduling.antiaffinity import requirements_of
from webhook.scheduling.storage import class_name


class ClaimKind(NamedTuple):
    """Claims that fit the same volumes. size: in thousandths of a byte."""

    size: int
    class_name: str
    mode: str
    access: tuple[str, ...]
    requirements: tuple[Requirement, ...] | None
    attributes: str


def kind_of(claim: PersistentVolumeClaim) -> ClaimKind | None:
    """The kind of a claim; None if its size is unreadable."""
    try:
        size = parse(claim.spec.resources.requests.get("storage", 0))
    except QuantityError:
        return None
    return ClaimKind(
        size,
        class_name(claim),
        claim.spec.volume_mode,
        tuple(sorted(claim.spec.access_modes)),
        None if claim.spec.selector is None else requirements_of(claim.spec.selector),
        claim.spec.volume_attributes_class_name,
    )


def leaves(kind: ClaimKind, other: ClaimKind) -> bool:
    """Whether claims of a kind leave enough volumes for another kind, since each takes the smallest that
    fits.

    That holds if the other kind differs only by a larger size. Its count includes these claims too.
    """
    return kind[1:] == other[1:] and kind.size < other.size


def size_of(volume: PersistentVolume) -> int:
    """The size in thousandths of a byte; 0 if it is unreadable."""
    try:
        return parse(volume.spec.capacity.get("storage", 0))
    except QuantityError:
        return 0
