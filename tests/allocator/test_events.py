"""Events of a pod, in a form that the API server takes."""

import re

import pytest

from labeler.allocator.events import event
from labeler.allocator.values import LocalPod
from labeler.contract.event_reasons import EventReason

SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


@pytest.mark.parametrize("name", ["p", "p" * 253, "p" * 229 + "-" * 5 + "x", "p" * 229 + ".x" * 9])
def test_the_event_of_a_pod_of_any_name_has_a_legal_name(name: str) -> None:
    made = event(LocalPod("ns", name, "uid"), EventReason.CARDS_REFUSED, "no", "node-1", 0.0)["metadata"][
        "name"
    ]
    assert SUBDOMAIN.fullmatch(made)
    assert len(made) <= 253
