"""Which parts of a pod template a GPUTask may have. Pure.

The Job is created with the controller's rights, so anything not known to stay inside the pod is refused: the
lists name what is allowed, and a field of a later Kubernetes is refused until it has been reviewed. They
follow the baseline of the Pod Security Standards
(https://kubernetes.io/docs/concepts/security/pod-security-standards/), with its volumes at "restricted".
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

TEMPLATE: Final = frozenset({"metadata", "spec"})
METADATA: Final = frozenset({"labels", "annotations", "creationTimestamp", "name"})
POD: Final = frozenset(
    {
        "activeDeadlineSeconds", "affinity", "automountServiceAccountToken", "containers", "dnsConfig",
        "dnsPolicy", "enableServiceLinks", "hostAliases", "hostname", "imagePullSecrets", "initContainers",
        "nodeSelector", "os", "resourceClaims", "resources", "restartPolicy", "schedulerName",
        "securityContext", "serviceAccountName", "setHostnameAsFQDN", "shareProcessNamespace", "subdomain",
        "terminationGracePeriodSeconds", "tolerations", "topologySpreadConstraints", "volumes",
    }
)  # fmt: skip
CONTAINER: Final = frozenset(
    {
        "args", "command", "env", "envFrom", "image", "imagePullPolicy", "lifecycle", "livenessProbe", "name",
        "ports", "readinessProbe", "resizePolicy", "resources", "restartPolicy", "securityContext",
        "startupProbe", "stdin", "stdinOnce", "terminationMessagePath", "terminationMessagePolicy", "tty",
        "volumeDevices", "volumeMounts", "workingDir",
    }
)  # fmt: skip
VOLUMES: Final = frozenset(
    {
        "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "name", "persistentVolumeClaim",
        "projected", "secret",
    }
)  # fmt: skip
POD_SECURITY: Final = frozenset(
    {
        "fsGroup", "fsGroupChangePolicy", "runAsGroup", "runAsNonRoot", "runAsUser", "seccompProfile",
        "supplementalGroups", "supplementalGroupsPolicy",
    }
)  # fmt: skip
CONTAINER_SECURITY: Final = frozenset(
    {
        "allowPrivilegeEscalation", "capabilities", "privileged", "readOnlyRootFilesystem", "runAsGroup",
        "runAsNonRoot", "runAsUser", "seccompProfile",
    }
)  # fmt: skip
CAPABILITIES: Final = frozenset(
    {
        "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE",
        "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
    }
)  # fmt: skip
RESOURCES: Final = frozenset({"claims", "limits", "requests"})
PROFILES: Final = ("RuntimeDefault", "Localhost")
DEFAULT_SCHEDULER: Final = "default-scheduler"
APPARMOR: Final = "container.apparmor.security.beta.kubernetes.io/"
"""Annotations by which the API server sets a container's AppArmor profile."""
_APPARMOR_PROFILES: Final = ("runtime/default", "localhost/")
_MOST_LEVELS: Final = 50
"""A pod template has a dozen levels. Copying, comparing and JSON encoding recurse over them."""

_INSTEAD: Final = "; a GPUTask may not, write a Job for that"


def first_fault(template: Mapping[str, Any]) -> str:
    """What a template may not have, as a sentence that names the place, "" if everything is allowed.

    If it is "", the parts from which a Job is created have the shapes of a pod template.
    """
    if _is_deeper(template, _MOST_LEVELS):
        return f"template is nested more than {_MOST_LEVELS} levels deep: that is not a pod template"
    return next(_faults(template), "")


def _faults(template: Mapping[str, Any]) -> Iterator[str]:
    yield from _unknown(template, TEMPLATE, "template")
    yield from _metadata(template.get("metadata"))
    spec = template.get("spec")
    if isinstance(spec, dict):
        yield from _spec(spec)
    else:
        yield "template.spec is missing: it must have containers, as a pod's spec"


def _metadata(metadata: Any) -> Iterator[str]:
    yield from _unknown(metadata, METADATA, "template.metadata")
    for field in ("labels", "annotations"):
        yield from _no_texts((metadata or {}).get(field), f"template.metadata.{field}")
    for key, value in ((metadata or {}).get("annotations") or {}).items():
        if key.startswith(APPARMOR) and not str(value).startswith(_APPARMOR_PROFILES):
            where = f"template.metadata.annotations: {key[:100]}"
            yield f"{where} is neither runtime/default nor localhost/...{_INSTEAD}"


def _spec(spec: dict[str, Any]) -> Iterator[str]:
    yield from _unknown(spec, POD, "template.spec")
    if spec.get("schedulerName") not in (None, "", DEFAULT_SCHEDULER):
        yield f"template.spec.schedulerName names another scheduler{_INSTEAD}"
    yield from _no_texts(spec.get("nodeSelector"), "template.spec.nodeSelector")
    yield from _security(spec.get("securityContext"), POD_SECURITY, "template.spec.securityContext")
    if not spec.get("containers"):
        yield "template.spec.containers is missing"
    for field in ("initContainers", "containers"):
        yield from _no_list(spec.get(field), f"template.spec.{field}")
        for where, container in _mappings(spec.get(field), f"template.spec.{field}"):
            yield from _container(container, where)
    yield from _no_list(spec.get("volumes"), "template.spec.volumes")
    for where, volume in _mappings(spec.get("volumes"), "template.spec.volumes"):
        yield from _unknown(volume, VOLUMES, where)


def _is_deeper(value: Any, levels: int) -> bool:
    """Whether lists and mappings are nested deeper than this many levels; without recursion."""
    level = [value]
    for _ in range(levels):
        inner = [each for each in level if isinstance(each, dict | list)]
        level = [each for item in inner for each in (item.values() if isinstance(item, dict) else item)]
    return any(isinstance(each, dict | list) for each in level)


def _container(container: dict[str, Any], where: str) -> Iterator[str]:
    yield from _unknown(container, CONTAINER, where)
    resources = container.get("resources")
    yield from _unknown(resources, RESOURCES, f"{where}.resources")
    for field in ("requests", "limits"):
        yield from _no_texts((resources or {}).get(field), f"{where}.resources.{field}")
    yield from _no_list(container.get("env"), f"{where}.env")
    yield from _no_list(container.get("ports"), f"{where}.ports")
    for place, port in _mappings(container.get("ports"), f"{where}.ports"):
        if port.get("hostPort") or port.get("hostIP"):
            yield f"{place} takes a port of the node{_INSTEAD}"
    yield from _container_security(container.get("securityContext"), f"{where}.securityContext")
    for field in ("livenessProbe", "readinessProbe", "startupProbe"):
        yield from _handler(container.get(field), f"{where}.{field}")
    lifecycle = container.get("lifecycle")
    for field in ("postStart", "preStop"):
        if isinstance(lifecycle, dict):
            yield from _handler(lifecycle.get(field), f"{where}.lifecycle.{field}")


def _container_security(security: Any, where: str) -> Iterator[str]:
    yield from _security(security, CONTAINER_SECURITY, where)
    if not isinstance(security, dict):
        return
    if security.get("privileged") not in (None, False):
        yield f"{where}.privileged is set{_INSTEAD}"
    capabilities = security.get("capabilities") or {}
    added = capabilities.get("add") or [] if isinstance(capabilities, dict) else ["?"]
    for name in added if isinstance(added, list) else ["?"]:
        if not isinstance(name, str) or name not in CAPABILITIES:
            yield f"{where}.capabilities adds {str(name)[:40]}{_INSTEAD}"


def _handler(handler: Any, where: str) -> Iterator[str]:
    """Probes and hooks: the kubelet itself sends these requests, from the node's network."""
    for field in ("httpGet", "tcpSocket"):
        action = handler.get(field) if isinstance(handler, dict) else None
        if isinstance(action, dict) and action.get("host"):
            yield f"{where}.{field} names a host{_INSTEAD}"


def _security(context: Any, known: frozenset[str], where: str) -> Iterator[str]:
    yield from _unknown(context, known, where)
    profile = context.get("seccompProfile") if isinstance(context, dict) else None
    if isinstance(profile, dict) and profile.get("type") not in PROFILES:
        yield f"{where}.seccompProfile is neither {' nor '.join(PROFILES)}{_INSTEAD}"


def _unknown(value: Any, known: frozenset[str], where: str) -> Iterator[str]:
    if value is None:
        return
    if not isinstance(value, dict):
        yield f"{where} must be a mapping"
        return
    for key in value:
        if key not in known and value[key] is not None:
            yield f"{where} sets {str(key)[:60]}{_INSTEAD}"


def _no_list(value: Any, where: str) -> Iterator[str]:
    if value is not None and not (isinstance(value, list) and all(isinstance(each, dict) for each in value)):
        yield f"{where} must be a list of mappings"


def _no_texts(value: Any, where: str) -> Iterator[str]:
    """Check labels, annotations, selectors and amounts: keys are text and values are not lists."""
    if value is None:
        return
    if not isinstance(value, dict) or any(isinstance(each, dict | list) for each in value.values()):
        yield f"{where} must be a mapping of texts"


def _mappings(value: Any, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The mappings of a list with their places."""
    for index, item in enumerate(value if isinstance(value, list) else ()):
        if isinstance(item, dict):
            yield f"{where}[{index}]", item
