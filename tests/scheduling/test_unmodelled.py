"""A rule that topogate does not apply is reported to the user, once, and nothing where there is none."""

from typing import Any

import pytest

from tests.sweeper.pods import decode, pod_json
from webhook.scheduling.unmodelled_rules import claim_notes, taken_widely, volume_note

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
SELECTOR = {"matchLabels": {"app": "x"}}
HOSTNAME = "kubernetes.io/hostname"


def affinity(kind: str, key: str, **more: Any) -> dict[str, Any]:
    return {"affinity": {kind: {REQUIRED: [{"topologyKey": key, "labelSelector": SELECTOR, **more}]}}}


def spread(when: str) -> dict[str, Any]:
    return {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": when}]}


@pytest.mark.promise("R325")
def test_claims_are_named_once_where_the_devices_are_not_known() -> None:
    pods = [decode(pod_json(name, resourceClaims=[{"name": "gpu"}])) for name in "ab"]
    assert claim_notes(pods) == [
        "which nodes have devices for the claims (gpu) is not known here, and is ignored"
    ]
    assert claim_notes([decode(pod_json())]) == []


@pytest.mark.parametrize(
    "spec",
    [
        {},
        affinity("podAntiAffinity", HOSTNAME),
        affinity("podAffinity", HOSTNAME),
        affinity("podAntiAffinity", "zone"),
        spread("DoNotSchedule"),
        affinity("podAntiAffinity", HOSTNAME, namespaceSelector={}),
        affinity(
            "podAntiAffinity",
            HOSTNAME,
            namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "a"}},
        ),
        spread("ScheduleAnyway"),
        {"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}},
    ],
    ids=[
        "no rules",
        "over nodes",
        "together",
        "over zones",
        "spread",
        "all namespaces",
        "a namespace by name",
        "a wish",
        "preferred",
    ],
)
def test_what_is_applied_or_only_a_preference_is_not_worth_a_note(spec: dict[str, Any]) -> None:
    pods = [decode(pod_json(**spec))]
    assert taken_widely(pods) == []


def test_a_namespace_selector_that_is_taken_widely_is_reported() -> None:
    spec = affinity("podAntiAffinity", HOSTNAME, namespaceSelector={"matchLabels": {"team": "a"}})
    (note,) = taken_widely([decode(pod_json(**spec))])
    assert note.startswith("the namespaceSelector of required pod anti-affinity is taken to select every")


def test_volumes_with_claims_are_reported_by_name_and_others_not() -> None:
    claimed = {"name": "data", "persistentVolumeClaim": {"claimName": "c"}}
    pod = decode(pod_json(volumes=[{"name": "tmp", "emptyDir": {}}, claimed]))
    assert "volumes can be used (data)" in volume_note(pod)
    assert volume_note(decode(pod_json(volumes=[{"name": "tmp", "emptyDir": {}}]))) == ""
