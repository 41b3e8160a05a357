"""Equal pods are asked about once, and every difference between two pods is noticed."""

from typing import Any

import pytest

from tests.sweeper.pods import decode, pod_json
from webhook.scheduling.convert import pod_class_of


def container(**resources: str) -> dict[str, Any]:
    return {"name": "c", "image": "x", "resources": {"requests": resources, "limits": resources}}


CARDS = container(**{"gpu.intel.com/i915": "2", "cpu": "1"})
NODES = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "Exists"}]}]}
BASE = {"containers": [CARDS]}


@pytest.mark.parametrize(
    "other",
    [
        {"containers": [container(**{"gpu.intel.com/i915": "2", "cpu": "2"})]},
        {"containers": [CARDS, CARDS | {"name": "d"}]},
        {"initContainers": [container(cpu="4") | {"name": "i"}]},
        {"initContainers": [container(cpu="1") | {"name": "i", "restartPolicy": "Always"}]},
        {"overhead": {"cpu": "1"}},
        {"resources": {"requests": {"cpu": "8"}}},
        {"nodeSelector": {"pool": "a"}},
        {"tolerations": [{"key": "k", "operator": "Exists"}]},
        {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": NODES}}},
        {"containers": [container(cpu="none")]},
        *(
            {"metadata": {"annotations": {key: value}}}
            for key, value in {
                "gas-allow": "card0",
                "gas-deny": "card0",
                "gas-allocate-single-numa": "",
                "gas-allocate-xelink": "",
                "gas-same-gpu": "c,d",
            }.items()
        ),
    ],
    ids=str,
)
def test_what_distinguishes_a_pod_from_the_one_before_is_seen(other: dict[str, Any]) -> None:
    base, changed = (decode(pod_json(**{**BASE, **each})) for each in ({}, other))
    first, second, third = pod_class_of(base), pod_class_of(changed), pod_class_of(base)
    assert first != second
    assert first == third


def test_a_pod_of_another_name_and_index_is_the_same_to_ask_about() -> None:
    pods = [
        decode(
            pod_json(
                name, metadata={"annotations": {"batch.kubernetes.io/job-completion-index": name}}, **BASE
            )
        )
        for name in "01"
    ]
    assert pod_class_of(pods[0]) is pod_class_of(pods[1])
