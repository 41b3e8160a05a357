"""The pure placement core: it finds the best assignment of a gang on a snapshot, or why there is none."""

from webhook.placement.budget import Budget
from webhook.placement.check import check
from webhook.placement.eligibility import Requirement, Rules, Taint, Term, Toleration
from webhook.placement.mix import Mix, MixClass
from webhook.placement.model import (
    Anchor,
    Assignment,
    Card,
    CardRequest,
    CardShare,
    Gang,
    Member,
    Mode,
    Nearest,
    NodeInfo,
    NoFit,
    Objective,
    Options,
    Placed,
    PodClass,
    Slice,
    Slots,
    Spread,
    Usage,
    vector,
)
from webhook.placement.place import place
from webhook.placement.snapshot import Snapshot
from webhook.placement.topology import PlacementError, Topology

__all__ = [
    "Anchor",
    "Assignment",
    "Budget",
    "Card",
    "CardRequest",
    "CardShare",
    "Gang",
    "Member",
    "Mix",
    "MixClass",
    "Mode",
    "Nearest",
    "NoFit",
    "NodeInfo",
    "Objective",
    "Options",
    "Placed",
    "PlacementError",
    "PodClass",
    "Requirement",
    "Rules",
    "Slice",
    "Slots",
    "Snapshot",
    "Spread",
    "Taint",
    "Term",
    "Toleration",
    "Topology",
    "Usage",
    "check",
    "place",
    "vector",
]  # fmt: skip
