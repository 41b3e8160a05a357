"""What the API server decides by itself, rendered in CEL from the configuration.

`decide` is the rule; these objects are the same rule for the API server: which pods to send to the webhook,
which to gate without it, which to refuse. CEL can read neither a YAML text nor a PriorityClass, so the
expressions contain what it needs, and the objects are rendered again whenever the policy changes. The
language: https://kubernetes.io/docs/reference/using-api/cel/
"""

from collections.abc import Mapping
from typing import Any, Final

from labeler.contract import keys
from webhook.policy.name_conditions import list_of, matches, text_of
from webhook.policy.values import ANY_NAMESPACE, Policy
from webhook.workloads import marks

API_VERSION: Final = "admissionregistration.k8s.io/v1"
_MARKS: Final = ("topogate.io/", "gas-")
"""The prefixes of annotations that admission reads, if only to warn about them."""

Object = dict[str, Any]


class RenderError(Exception):
    """The objects cannot be made from this policy; the message says what is missing."""


def objects(policy: Policy, values: Mapping[str, int]) -> list[Object]:
    """All objects. values: of the cluster's PriorityClasses, by name. Raises RenderError."""
    return [
        webhook_configuration(policy),
        *_bound("topogate-tiers", tiers(policy, values)),
        *_bound("topogate-gate-required", gate_required(policy)),
        *_bound("topogate-gate", gate(policy), "MutatingAdmissionPolicy"),
    ]


def render_equally(one: Policy, other: Policy) -> bool:
    """Whether the same objects follow from both, whatever values the PriorityClasses have."""
    names = {tier.priority_class_name for tier in (*one.tiers, *other.tiers)}
    values = {name: number for number, name in enumerate(sorted(names))}
    return objects(one, values) == objects(other, values)


def webhook_configuration(policy: Policy) -> Object:
    """Which pods the API server sends to the webhook: those on which `decide` may have something to do.

    The API server evaluates the conditions at each call. A gated pod always matches, so that the gate comes
    off if another webhook has made it a pod that is left alone. So does one with the note of an earlier call:
    that webhook may have removed the gate itself, as one that sets spec.nodeName has to.
    """
    hook = {
        "name": "pods.topogate.io",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Ignore",
        "reinvocationPolicy": "IfNeeded",
        "matchPolicy": "Equivalent",
        "timeoutSeconds": 3,
        "clientConfig": {
            "service": {"name": "webhook", "namespace": "topogate-system", "path": "/mutate", "port": 443}
        },
        "rules": [{**_PODS, "operations": ["CREATE"], "scope": "Namespaced"}],
        "namespaceSelector": _namespaces(policy),
        "matchConditions": [
            *(_or_injected(each, policy) for each in _NOT_OURS_AT_ALL),
            _condition("may-be-ours", _may_be_ours(policy)),
        ],
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "topogate"},
        "webhooks": [hook],
    }


def tiers(policy: Policy, values: Mapping[str, int]) -> Object:
    """The maximum of each namespace, as a priority: it also applies to pods that have opted out.

    The API server has set spec.priority from the class, so values are compared, not names. Raises RenderError
    for a tier whose class is not among the values.
    """
    limits = _limits(policy, values)
    others = limits.pop(ANY_NAMESPACE, None)
    table = "{" + ", ".join(f"{text_of(name)}: {value}" for name, value in sorted(limits.items())) + "}"
    exempt = sorted(policy.namespaces.keys() - limits.keys() - {ANY_NAMESPACE})
    maximum = f"{table}[?request.namespace]" if limits else "optional.none()"
    if others is not None:
        has_maximum = f"!(request.namespace in {list_of(exempt)})" if exempt else "true"
        maximum = f"{maximum}.or(optional.of({others}))" if limits else f"optional.of({others})"
    else:
        has_maximum = f"request.namespace in {table}" if limits else "false"
    conditions = [_condition("namespace-has-a-maximum", has_maximum)]
    if has_maximum != "false":
        conditions.append(
            _condition("asks-for-gpu-or-is-gated", f"{asks_for_gpu(policy)} || {_gated(policy)}")
        )
    return {
        "failurePolicy": "Fail",
        "matchConstraints": _constraints(policy),
        "matchConditions": conditions,
        "variables": [{"name": "maximum", "expression": maximum}],
        "validations": [
            {
                "expression": "!variables.maximum.hasValue() || "
                "object.spec.?priority.orValue(0) <= variables.maximum.value()",
                "reason": "Forbidden",
                "messageExpression": "'priority ' + string(object.spec.?priority.orValue(0)) + ' (class ' + "
                "object.spec.?priorityClassName.orValue('') + ') is above the maximum of namespace ' + "
                "request.namespace + ', which is ' + string(variables.maximum.orValue(0))",
            }
        ],
    }


def gate_required(policy: Policy) -> Object:
    """Refuses a GPU pod without a gate, except pods that admission leaves alone."""
    return {
        "failurePolicy": "Fail",
        "matchConstraints": _constraints(policy),
        "matchConditions": [*_not_left_alone(policy), _served(policy), _NOT_PLACED_BY_KUEUE],
        "validations": [
            {
                "expression": f"!({asks_for_gpu(policy)}) || {_gated(policy)}",
                "reason": "Forbidden",
                "message": f"a GPU pod of this namespace must carry the gate {policy.gate}; the webhook that "
                "adds it did not answer, or has another list of GPU resources",
            }
        ],
    }


def gate(policy: Policy) -> Object:
    """Adds the gate where `decide` would, in the API server itself; CPU-only pods are left to the webhook.

    It adds an empty note, too: the webhook then takes no class and no selector of the pod for its own.
    """
    value = "Object.spec.schedulingGates{name: " + text_of(policy.gate) + "}"
    return {
        "failurePolicy": "Ignore",
        "reinvocationPolicy": "IfNeeded",
        "matchConstraints": _constraints(policy),
        "matchConditions": [
            *_not_left_alone(policy),
            _served(policy),
            _condition("not-gated", f"!({_gated(policy)})"),
            _condition("asks-for-gpu-or-requests-topology", f"{asks_for_gpu(policy)} || {_has_request()}"),
            _NOT_PLACED_BY_KUEUE,
        ],
        "mutations": [
            {
                "patchType": "JSONPatch",
                "jsonPatch": {
                    # A list that contains the gate, as one value, makes the API server (1.36.3) panic.
                    "expression": "(has(object.spec.schedulingGates) ? [] "
                    ": [JSONPatch{op: 'add', path: '/spec/schedulingGates', value: []}]) "
                    f"+ [JSONPatch{{op: 'add', path: '/spec/schedulingGates/-', value: {value}}}] "
                    "+ (object.metadata.?uid.orValue('') != '' ? [] "
                    f": [JSONPatch{{op: 'add', path: '/metadata/uid', value: '{keys.INJECTION_NOTE}:{{}}'}}])"
                },
            }
        ],
    }


# --- conditions ---------------------------------------------------------------------------------------


def _condition(name: str, expression: str) -> Object:
    return {"name": name, "expression": expression}


_NOT_OURS_AT_ALL: Final = (
    _condition("not-bound", "object.spec.?nodeName.orValue('') == ''"),
    _condition(
        "not-opted-out",
        f"object.metadata.?annotations[?'{keys.INJECT_ANNOTATION}'].orValue('') != '{keys.INJECT_NO}'",
    ),
    _condition(
        "not-a-mirror-pod", f"!('{keys.MIRROR_POD_ANNOTATION}' in object.metadata.?annotations.orValue({{}}))"
    ),
    _condition(
        "not-of-a-daemonset",
        "!object.metadata.?ownerReferences.orValue([])"
        ".exists(o, o.kind == 'DaemonSet' && o.?controller.orValue(false))",
    ),
)
_NOT_PLACED_BY_KUEUE: Final = _condition(
    "not-placed-by-kueue",
    f"!object.spec.?schedulingGates.orValue([]).exists(g, g.name == '{marks.KUEUE_TOPOLOGY_GATE}') || "
    f"object.spec.schedulingGates.exists(g, g.name == '{marks.KUEUE_ADMISSION_GATE}')",
)
"""See webhook.admission.kueue. The last one everywhere: overlays name the others by their number."""
_PODS: Final = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
ADOPTED: Final = " || object.spec.schedulingGroup.?podGroupName.orValue('') != ''"
"""Added to a condition where Kubernetes' own PodGroups are placed by topogate."""
IS_INTEL: Final = f"k.startsWith({text_of(keys.INTEL_PREFIX)})"
_CONTAINERS: Final = "(dyn(object.spec.containers) + dyn(object.spec.?initContainers.orValue([])))"


def _not_left_alone(policy: Policy) -> list[Object]:
    """A group that is not a PodGroup is of an unknown kind: it is always left to kube-scheduler."""
    expression = f"!has(object.spec.schedulingGroup){ADOPTED if policy.adopts_native_gangs else ''}"
    return [*_NOT_OURS_AT_ALL, _condition("not-of-a-scheduling-group", expression)]


def _served(policy: Policy) -> Object:
    served = list_of(["", *policy.scheduler_names])
    return _condition("not-of-another-scheduler", f"object.spec.?schedulerName.orValue('') in {served}")


def asks_for_gpu(policy: Policy, *more: str) -> str:
    """Whether any container asks for some of a GPU resource, or of one for which `more` is true.

    The API server has already copied limits to requests.
    """
    is_gpu = " || ".join([*matches("k", policy.gpu_requests), *more])
    requests = "c.?resources.?requests.orValue({})"
    asks = f"{_CONTAINERS}.exists(c, {requests}.exists(k, ({is_gpu}) && string({requests}[k]) != '0'))"
    claims = " || object.spec.?resourceClaims.orValue([]).size() > 0"
    return asks + (claims if policy.resource_claims else "")


def _may_be_ours(policy: Policy) -> str:
    ours = " || ".join(f"a.startsWith({text_of(mark)})" for mark in _MARKS)
    asks = asks_for_gpu(policy, IS_INTEL)
    beside = f"{list_of(marks.CPU_POD_LABELS)}.exists(l, l in object.metadata.?labels.orValue({{}}))"
    marked = f"object.metadata.?annotations.orValue({{}}).exists(a, {ours})"
    return f"{asks} || {_gated(policy)} || {marked} || {beside} || {_HAS_NOTE}"


def _or_injected(condition: Object, policy: Policy) -> Object:
    return _condition(condition["name"], f"{condition['expression']} || {_gated(policy)} || {_HAS_NOTE}")


_HAS_NOTE: Final = f"object.metadata.?uid.orValue('').startsWith('{keys.INJECTION_NOTE}:')"


def _gated(policy: Policy) -> str:
    prefix = text_of(policy.gate_prefix)
    return f"object.spec.?schedulingGates.orValue([]).exists(g, g.name.startsWith({prefix}))"


def _has_request() -> str:
    request_keys = list_of(sorted(keys.REQUEST_ANNOTATIONS))
    return f"{request_keys}.exists(key, key in object.metadata.?annotations.orValue({{}}))"


# --- pieces -------------------------------------------------------------------------------------------


def _limits(policy: Policy, values: Mapping[str, int]) -> dict[str, int]:
    """The highest priority of each namespace that has a maximum."""
    limits = {}
    for namespace, rules in policy.namespaces.items():
        tier = policy.tier(rules.maximum_tier)
        if tier is None:
            continue
        if tier.priority_class_name not in values:
            raise RenderError(
                f"namespaces.{namespace}.maximumTier: the value of PriorityClass {tier.priority_class_name} "
                "is not known; pass the file with it as well"
            )
        limits[namespace] = values[tier.priority_class_name]
    return limits


def _namespaces(policy: Policy) -> Object:
    excluded = {"key": "kubernetes.io/metadata.name", "operator": "NotIn"}
    return {
        "matchLabels": {keys.INJECTION_LABEL: keys.INJECTION_ENABLED},
        "matchExpressions": [{**excluded, "values": sorted(policy.excluded_namespaces)}],
    }


def _constraints(policy: Policy) -> Object:
    return {
        "namespaceSelector": _namespaces(policy),
        "resourceRules": [{**_PODS, "operations": ["CREATE"]}],
    }


def _bound(name: str, spec: Object, kind: str = "ValidatingAdmissionPolicy") -> list[Object]:
    """A policy and its binding."""
    actions = {"validationActions": ["Deny"]} if kind.startswith("Validating") else {}
    return [
        {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec},
        {
            "apiVersion": API_VERSION,
            "kind": f"{kind}Binding",
            "metadata": {"name": name},
            "spec": {"policyName": name, **actions},
        },
    ]
