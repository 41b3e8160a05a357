"""Requests for nodes as API objects: which are created and deleted. Pure.

PodTemplates come first, then the request that names them. A crash between the two leaves PodTemplates whose
names say for what they are: the next leader goes on with them, or, where the gang wants them no more, deletes
them. One that is there without our label is somebody else's, and left alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from labeler.contract import keys
from webhook.extensions.scale_up.attempts import MOST_WRITES, NodeAsk, Steps
from webhook.extensions.scale_up.provisioning import (
    REQUESTS,
    TEMPLATES,
    ProvisioningRequest,
    RequestTemplate,
    request_body,
)
from webhook.kube.objects import Metadata
from webhook.kube.placements import owner_reference
from webhook.sweeper.extension import ObjectWrite
from webhook.sweeper.extension_settings import ScaleUp
from webhook.text import counted

_MOST_ORPHANS: Final = 4 * MOST_WRITES
"""PodTemplates without a request that are deleted in one pass."""

Templates = Mapping[str, RequestTemplate]
"""By "namespace/name"."""


def request_name(ask: NodeAsk, choices: ScaleUp) -> str:
    """The name of a request, another one for each class and parameters."""
    salt = repr((choices.provisioning_class, sorted(choices.parameters.items())))
    return ask.want.name(ask.attempt, salt)


def writes(
    decided: Steps, choices: ScaleUp, requests: Sequence[ProvisioningRequest], templates: Templates
) -> list[ObjectWrite]:
    """What creates and deletes requests as decided. requests, templates: that are there."""
    found: list[ObjectWrite] = []
    live = {each.metadata.name for each in requests}
    for ask in decided.asks:
        name = request_name(ask, choices)
        live.add(name)
        found += _creations(ask, name, choices, templates)
    reason = "its gang does not want these nodes, or has them"
    found += [ObjectWrite.delete(REQUESTS, each.metadata, reason) for each in decided.withdrawn]
    orphans = (
        ObjectWrite.delete(TEMPLATES, each.metadata, "no request names it")
        for each in templates.values()
        if each.metadata.labels.get(keys.SCALE_UP_LABEL, "") not in live
    )
    return [*found, *list(orphans)[:_MOST_ORPHANS]]


def _creations(ask: NodeAsk, name: str, choices: ScaleUp, templates: Templates) -> Iterator[ObjectWrite]:
    """The PodTemplates that are not there yet, then the request."""
    want, owner = ask.want, ask.want.owner.metadata
    common: dict[str, Any] = {
        "namespace": owner.namespace,
        "labels": want.labels(name, ask.attempt),
        "ownerReferences": [owner_reference(owner)],
    }
    reason = f"{want.gang.key} asks for nodes for {counted(want.pods, 'pod')}, attempt {ask.attempt}"
    group = f"{owner.namespace}/{name}"
    sets = [(f"{name}-{number}", kind.count) for number, kind in enumerate(want.classes)]
    for (template, _), kind in zip(sets, want.classes, strict=True):
        there = templates.get(f"{owner.namespace}/{template}")
        if there is None or not _is_ours(there.metadata, common["labels"]):
            body = {"metadata": {**common, "name": template}, "template": kind.template}
            yield ObjectWrite.create(TEMPLATES, body, reason, group)
    body = request_body({**common, "name": name}, choices.provisioning_class, sets, choices.parameters)
    yield ObjectWrite.create(REQUESTS, body, reason, group)


def _is_ours(metadata: Metadata, labels: Mapping[str, str]) -> bool:
    return metadata.labels == labels and not metadata.deletion_timestamp
