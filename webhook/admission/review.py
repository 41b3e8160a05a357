"""AdmissionReview v1: decoded once into the few fields that admission reads, and encoded as one.

The rules of the exchange are those of k8s.io/api/admission/v1. A field that is absent, or null,
is None here, because a patch must know whether a parent is there.
"""

from typing import Final

import msgspec

from webhook.kube.struct import Quantities, Struct

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"


class NewOwner(Struct, frozen=True):
    """An owner reference."""

    kind: str = ""
    controller: bool | None = None


class NewManager(Struct, frozen=True):
    """A manager of fields of the pod. operation: "Update", or "Apply". fields_v1: undecoded."""

    manager: str = ""
    operation: str = ""
    fields_v1: msgspec.Raw = msgspec.Raw(b"{}")


class NewMetadata(Struct, frozen=True):
    """The fields of a pod's metadata that are read; a pod from a template has only a generateName.

    uid: empty when a new pod comes to the first webhook; see webhook.admission.injection.
    """

    name: str | None = None
    generate_name: str | None = None
    uid: str | None = None
    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None
    owner_references: list[NewOwner] | None = None
    managed_fields: list[NewManager] | None = None


class NewResources(Struct, frozen=True):
    """Requests and limits; the API server has copied limits of extended resources to requests."""

    requests: Quantities | None = None
    limits: Quantities | None = None


class NewContainer(Struct, frozen=True):
    """A container or an init container."""

    name: str = ""
    resources: NewResources | None = None
    restart_policy: str | None = None


class Gate(Struct, frozen=True):
    """A scheduling gate."""

    name: str = ""


class ClaimName(Struct, frozen=True):
    """A reference to a ResourceClaim, or to its template."""

    name: str = ""


class SchedulingGroup(Struct, frozen=True):
    """The group by which kube-scheduler binds the pod."""

    pod_group_name: str | None = None


class NewRequirement(Struct, frozen=True):
    """A requirement on a label of the node, or on a field, such as its name."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class NewTerm(Struct, frozen=True):
    """A term of required node affinity."""

    match_expressions: list[NewRequirement] | None = None
    match_fields: list[NewRequirement] | None = None


class NewNodeSelector(Struct, frozen=True):
    """Terms of which one must match."""

    node_selector_terms: list[NewTerm] | None = None


class NewNodeAffinity(Struct, frozen=True):
    """Only the required terms."""

    required_during_scheduling_ignored_during_execution: NewNodeSelector | None = None


class NewAffinity(Struct, frozen=True):
    """Only the affinity for nodes."""

    node_affinity: NewNodeAffinity | None = None


class NewPodSpec(Struct, frozen=True):
    """The fields of a pod's spec that are read; the API server has already set priority from the class."""

    node_name: str | None = None
    node_selector: dict[str, str] | None = None
    affinity: NewAffinity | None = None
    containers: list[NewContainer] | None = None
    init_containers: list[NewContainer] | None = None
    scheduling_gates: list[Gate] | None = None
    resource_claims: list[ClaimName] | None = None
    scheduling_group: SchedulingGroup | None = None
    scheduler_name: str | None = None
    priority_class_name: str | None = None
    priority: int | None = None
    preemption_policy: str | None = None


class NewPod(Struct, frozen=True):
    """A pod that is about to be created."""

    metadata: NewMetadata
    spec: NewPodSpec

    @property
    def annotations(self) -> dict[str, str]:
        """Its annotations, empty if it has none."""
        return self.metadata.annotations or {}

    @property
    def required_terms(self) -> list[NewTerm]:
        """The terms of its required node affinity, empty if it has none."""
        node = self.spec.affinity.node_affinity if self.spec.affinity else None
        required = node.required_during_scheduling_ignored_during_execution if node else None
        return (required.node_selector_terms if required else None) or []

    @property
    def all_containers(self) -> list[NewContainer]:
        """Init containers, sidecars among them, and containers."""
        return [*(self.spec.init_containers or ()), *(self.spec.containers or ())]


class Resource(Struct, frozen=True):
    """A resource's group, version and plural name."""

    group: str = ""
    version: str = ""
    resource: str = ""


class Envelope(Struct, frozen=True):
    """One admission request without its object."""

    uid: str = ""
    resource: Resource = Resource()
    sub_resource: str = ""
    namespace: str = ""
    operation: str = ""

    @property
    def is_pod_creation(self) -> bool:
        """Whether it creates a pod: no subresource, no update."""
        resource = self.resource
        return (
            self.operation == "CREATE"
            and resource.resource == "pods"
            and not resource.group
            and not self.sub_resource
        )


class Request(Envelope, frozen=True):
    """One admission request; `object` is None if it is not a pod."""

    object: NewPod | None = None


class Status(Struct, frozen=True):
    """Why a request is denied."""

    message: str
    code: int
    reason: str = "Forbidden"


class _Response(Struct, frozen=True, omit_defaults=True):
    uid: str
    allowed: bool
    patch_type: str | None = None
    patch: bytes | None = None  # msgspec writes bytes as base64, which is what the API server reads
    warnings: tuple[str, ...] = ()
    status: Status | None = None


class _ReviewIn(Struct, frozen=True):
    api_version: str = ""
    kind: str = ""
    request: Request | None = None


class _EnvelopeIn(Struct, frozen=True):
    api_version: str = ""
    kind: str = ""
    request: Envelope | None = None


class _ReviewOut(Struct, frozen=True):
    api_version: str
    kind: str
    response: _Response


class ReviewError(Exception):
    """The body is not an AdmissionReview v1 that can be answered; the text says why, without quoting it."""


_review_decoder: Final = msgspec.json.Decoder(_ReviewIn)
_envelope_decoder: Final = msgspec.json.Decoder(_EnvelopeIn)
_encoder: Final = msgspec.json.Encoder()


def decode_request(body: bytes) -> Request:
    """Read an AdmissionReview in one pass.

    Raises ReviewError. Never returns a request without a uid, nor a pod's creation without the pod.
    """
    try:
        review = _review_decoder.decode(body)
    except msgspec.ValidationError as error:
        review = _without_pod(body, error)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ReviewError(f"body is not an AdmissionReview: {_without_content(error)}") from None
    if review.api_version != API_VERSION or review.kind != KIND:
        raise ReviewError(f"only {API_VERSION} {KIND} is answered; check admissionReviewVersions")
    if review.request is None or not review.request.uid:
        raise ReviewError("AdmissionReview has no request.uid")
    if review.request.is_pod_creation and review.request.object is None:
        raise ReviewError("request.object is not a pod: it is null")
    return review.request


def _without_pod(body: bytes, error: msgspec.ValidationError) -> _ReviewIn:
    """A review whose object cannot be read as a pod, which is fine for anything but a pod's creation."""
    try:
        review = _envelope_decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as worse:
        raise ReviewError(f"body is not an AdmissionReview: {_without_content(worse)}") from None
    if review.request is not None and review.request.is_pod_creation:
        raise ReviewError(f"request.object is not a pod: {_without_content(error)}") from None
    request = None if review.request is None else Request(**msgspec.structs.asdict(review.request))
    return _ReviewIn(api_version=review.api_version, kind=review.kind, request=request)


def encode_response(
    uid: str, *, patch: bytes | None = None, denial: str | None = None, warnings: tuple[str, ...] = ()
) -> bytes:
    """Answer a request: with a JSON Patch, with a denial, or with neither."""
    response = _Response(
        uid=uid,
        allowed=denial is None,
        patch_type="JSONPatch" if patch else None,
        patch=patch or None,
        warnings=warnings,
        status=None if denial is None else Status(message=denial, code=403),
    )
    return _encoder.encode(_ReviewOut(api_version=API_VERSION, kind=KIND, response=response))


def _without_content(error: Exception) -> str:
    """A decoder's message, short; msgspec names types and paths but does not quote the input."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return "not UTF-8"
    return str(error).encode("ascii", "replace").decode()[:200]
