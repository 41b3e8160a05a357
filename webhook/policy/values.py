"""The operator's policy as frozen values; lookups that admission needs are precomputed.

`file` reads the YAML and reports its faults.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import translate
from functools import cached_property, lru_cache
from typing import Final

from labeler.contract import keys
from webhook.placement.eligibility import Term, label_holds
from webhook.policy.fair import FairOrder
from webhook.text import LONGEST_LABEL_VALUE, quote, sentence_list

DEFAULT_GPU_RESOURCES: Final = (
    "nvidia.com/gpu",
    "nvidia.com/gpu.shared",
    "amd.com/gpu",
    keys.I915,
    keys.XE,
    "nvidia.com/mig-*",
)
"""With renameByDefault NVIDIA's plugin appends `.shared` to the resource name of time-sliced GPUs."""
DEFAULT_EXCLUDED_NAMESPACES: Final = (
    "kube-system",
    "kube-public",
    "kube-node-lease",
    "topogate-system",
    "topogate-labeler",
)
DEFAULT_SCHEDULER_NAMES: Final = ("default-scheduler",)
ANY_NAMESPACE: Final = "*"
EVERY_CLASS: Final = ("*",)
LONGEST_MODEL_NAME: Final = 100
PRODUCT_LABEL: Final = "nvidia.com/gpu.product"
SHARED_RESOURCE: Final = ".shared"
_PRODUCT_SUFFIX: Final = re.compile(r"(-MIG-[0-9a-z.+]+)?(-SHARED)?$")
"""What NVIDIA's feature discovery appends to the product of GPUs that it shares or divides."""


@dataclass(frozen=True)
class Tier:
    """One step of priority that users may ask for by name."""

    name: str
    priority_class_name: str


@dataclass(frozen=True)
class GpuModel:
    """A GPU model of the catalogue.

    labels: of nodes with this GPU; they become the pod's nodeSelector, for time-sliced GPUs too: NVIDIA's
    feature discovery appends -SHARED to the product only where their resource keeps its name. resources: the
    only GPU resources (names or shell patterns) that a pod on this model may ask for; empty means any.
    """

    name: str
    labels: dict[str, str]
    aliases: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()

    @cached_property
    def _resource_pattern(self) -> re.Pattern[str]:
        return _any_of(self.resources)

    def serves(self, resource: str) -> bool:
        """Whether this model offers that GPU resource; if it offers the whole, also its shares."""
        either = (resource, resource.removesuffix(SHARED_RESOURCE))
        return not self.resources or any(self._resource_pattern.match(name) for name in either)

    def _is_admitted_by(self, terms: Collection[Term]) -> bool:
        """Whether a node with the model's labels may meet a required node affinity with these terms.

        An empty term matches no node.
        """
        found = [term.expressions for term in terms if term.expressions or term.fields]
        wanted = ([each for each in expressions if each.key in self.labels] for expressions in found)
        return not terms or any(all(label_holds(each, self.labels) for each in own) for own in wanted)

    def can_serve(
        self, resources: Collection[str], selector: Mapping[str, str], terms: Collection[Term]
    ) -> bool:
        """Whether a namespace's default may be this model for a pod that requests these.

        terms: of its required node affinity. What the author wrote overrides a default.
        """
        return not any(self.obstacle(resources, selector)) and self._is_admitted_by(terms)

    def obstacle(self, resources: Collection[str], selector: Mapping[str, str]) -> tuple[str, str]:
        """Why a pod that asks for these GPU resources can never run on the model, "" if it can.

        selector: its nodeSelector. Returns a word for metrics, and a sentence.
        """
        if foreign := [each for each in resources if not self.serves(each)]:
            offered, asked = sentence_list(self.resources), sentence_list(foreign)
            return "model-resource", f"GPU model {self.name} offers {offered}, but the pod asks for {asked}"
        for key, value in self.labels.items():
            if (there := selector.get(key, value)) != value:
                needed, its_own = quote(value, LONGEST_LABEL_VALUE), quote(there, LONGEST_LABEL_VALUE)
                return "model-selector", (
                    f"GPU model {self.name} needs nodeSelector {key}={needed}, "
                    f"but the pod has {key}={its_own}; remove one of the two"
                )
        return "", ""


@dataclass(frozen=True)
class NamespaceRules:
    """What applies in one namespace: tier names and a model name of the same policy, or "" for none."""

    default_tier: str = ""
    maximum_tier: str = ""
    default_gpu_model: str = ""


_NO_RULES: Final = NamespaceRules()


@dataclass(frozen=True)
class CommonFacts:
    """What admission and the sweeper both need to know.

    gate_prefix: the beginning of every gate that the sweeper serves. gpu_resources: names or shell patterns.
    excluded_namespaces: those of the file, and always the cluster's own and ours. scheduler_names: the
    kube-schedulers whose pods are placed; pods of others are left alone. keep_managed_fields: whether gated
    and released pods keep their managedFields; see admission.managers.
    """

    gate_prefix: str = keys.GATE_PREFIX
    gpu_resources: tuple[str, ...] = DEFAULT_GPU_RESOURCES
    excluded_namespaces: frozenset[str] = frozenset(DEFAULT_EXCLUDED_NAMESPACES)
    scheduler_names: tuple[str, ...] = DEFAULT_SCHEDULER_NAMES
    keep_managed_fields: bool = False


@dataclass(frozen=True)
class Policy(CommonFacts):
    """What admission and the task controller need.

    tiers: lowest first, so that a maximum allows all before it. namespaces: by name; the entry "*" applies to
    namespaces without an entry (entries are not merged). topology_levels: the names that topology requests
    may use, coarsest first. resource_claims: whether a pod that refers to ResourceClaims is a GPU pod too;
    device_classes: the DeviceClasses, names or shell patterns, one of which its claims must name for that.
    fair_order: the order among gangs of one priority, None for the oldest first. adopts_native_gangs: whether
    pods of Kubernetes' own PodGroups (spec.schedulingGroup) are gated and placed like others (gangs.native:
    adopt), or left to kube-scheduler (leave). binds_by_pod_group: whether gangs get a PodGroup of ours, by
    which kube-scheduler binds each as one (binding.mode: podgroup), or each pod is bound by itself (pinned).
    """

    gpu_models: tuple[GpuModel, ...] = ()
    tiers: tuple[Tier, ...] = ()
    namespaces: dict[str, NamespaceRules] = field(default_factory=dict)
    topology_levels: tuple[str, ...] = keys.LEVEL_NAMES
    resource_claims: bool = False
    fair_order: FairOrder | None = None
    device_classes: tuple[str, ...] = EVERY_CLASS
    adopts_native_gangs: bool = True
    binds_by_pod_group: bool = False

    @property
    def gate(self) -> str:
        """The scheduling gate that pods get; another one with this prefix is of the pod's author."""
        return self.gate_prefix + keys.GATE_NAME

    @cached_property
    def gpu_requests(self) -> tuple[str, ...]:
        """The resources, names or shell patterns, of which a GPU pod requests one.

        gpu_resources, and those by which any pod may request devices of a DeviceClass without a claim.
        """
        classes = self.device_classes if self.resource_claims else ()
        return (*self.gpu_resources, *(keys.DEVICE_CLASS + name for name in classes))

    @cached_property
    def _gpu_names(self) -> frozenset[str]:
        return frozenset(self.gpu_requests)

    @cached_property
    def _gpu_pattern(self) -> re.Pattern[str]:
        return _any_of(tuple(name for name in self.gpu_requests if _is_pattern(name)))

    @cached_property
    def _models(self) -> dict[str, GpuModel]:
        return {
            normal_model_name(name): model
            for model in self.gpu_models
            for name in (model.name, *model.aliases)
        }

    @cached_property
    def _tiers(self) -> dict[str, Tier]:
        return {tier.name: tier for tier in self.tiers}

    @cached_property
    def _tier_names(self) -> tuple[str, ...]:
        return tuple(tier.name for tier in self.tiers)

    def serves_gate(self, name: str) -> bool:
        """Whether the sweeper serves pods with that scheduling gate."""
        return name.startswith(self.gate_prefix)

    def is_gpu_resource(self, resource: str) -> bool:
        """Whether asking for this resource makes a pod a GPU pod."""
        return resource in self._gpu_names or self._gpu_pattern.match(resource) is not None

    @cached_property
    def _class_pattern(self) -> re.Pattern[str]:
        return _any_of(self.device_classes)

    @property
    def takes_every_class(self) -> bool:
        """Whether a claim on any device makes a pod a GPU pod."""
        return self.device_classes == EVERY_CLASS

    def is_gpu_class(self, device_class: str) -> bool:
        """Whether devices of this DeviceClass are GPUs."""
        return self._class_pattern.match(device_class) is not None

    def gpu_model(self, name: str) -> GpuModel | None:
        """The catalogue's entry; case and punctuation do not matter."""
        if len(name) > LONGEST_MODEL_NAME:
            return None  # its beginning may be a model's name, but not the requested one
        return self._models.get(normal_model_name(name))

    def model_of_node(self, labels: Mapping[str, str]) -> str:
        """The catalogue's model whose labels a node has, "" if there is none.

        The product label of a shared or divided GPU counts as its model.
        """
        if product := labels.get(PRODUCT_LABEL):
            labels = {**labels, PRODUCT_LABEL: _PRODUCT_SUFFIX.sub("", product)}
        fits = (each.name for each in self.gpu_models if each.labels.items() <= labels.items())
        return next(fits, "")

    def nearest_model_names(self, name: str) -> list[str]:
        """Up to three names of the catalogue that the writer may have meant, nearest first."""
        found = get_close_matches(normal_model_name(name), self._models, n=5, cutoff=0.5)
        return list(dict.fromkeys(self._models[near].name for near in found))[:3]

    def no_model(self, name: str) -> str:
        """The error for an unknown model, with similar names."""
        nearest = self.nearest_model_names(name)
        hint = f" did you mean {sentence_list(nearest, 'or')}?" if nearest else ""
        known = list(dict.fromkeys([*nearest, *(model.name for model in self.gpu_models)]))
        return f"no GPU model {quote(name)};{hint} known: {sentence_list(known)}"

    def no_tier(self, name: str, namespace: str) -> str:
        """The error for an unknown tier, with those that the namespace may use."""
        return f"no tier {quote(name)}; {self._allowed(namespace)}"

    def above_maximum(self, what: str, namespace: str) -> str:
        """The error for a request above the namespace's maximum, with what is allowed."""
        return f"{what} is above the maximum of namespace {namespace}; {self._allowed(namespace)}"

    def _allowed(self, namespace: str) -> str:
        return f"allowed here: {sentence_list(self.allowed_tiers(namespace))}"

    def tier(self, name: str) -> Tier | None:
        """The tier of that name."""
        return self._tiers.get(name)

    def tier_of_class(self, priority_class_name: str) -> Tier | None:
        """The tier that stands for that PriorityClass."""
        return next((tier for tier in self.tiers if tier.priority_class_name == priority_class_name), None)

    def rules(self, namespace: str) -> NamespaceRules:
        """What applies in that namespace."""
        return self.namespaces.get(namespace) or self.namespaces.get(ANY_NAMESPACE) or _NO_RULES

    def maximum_class(self, namespace: str) -> str:
        """The PriorityClass of the highest tier allowed in that namespace, "" without a maximum."""
        tier = self.tier(self.rules(namespace).maximum_tier)
        return tier.priority_class_name if tier else ""

    def allowed_tiers(self, namespace: str) -> tuple[str, ...]:
        """Names of the tiers that pods of that namespace may ask for, lowest first."""
        names = self._tier_names
        maximum = self.rules(namespace).maximum_tier
        return names[: names.index(maximum) + 1] if maximum else names


def normal_model_name(name: str) -> str:
    """A model's name without case, blanks and punctuation: "RTX 4090" and "rtx-4090" are one."""
    return _normal(name[:LONGEST_MODEL_NAME])  # cut first: what a user writes must not fill the cache


@lru_cache(maxsize=1024)
def _normal(name: str) -> str:
    return "".join(char for char in name.casefold() if char.isalnum())


def _is_pattern(name: str) -> bool:
    return any(char in name for char in "*?[")


def _any_of(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """One expression that matches what any shell pattern matches; without patterns it matches nothing."""
    return re.compile("|".join(translate(pattern) for pattern in patterns) if patterns else r"(?!)")
