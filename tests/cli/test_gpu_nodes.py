"""What the doctor finds on nodes with GPUs."""

from datetime import UTC, datetime
from typing import Any

import pytest

from webhook.inquiry.findings import State
from webhook.inquiry.gpu_nodes import card_labels

NOW = datetime(2026, 1, 1, tzinfo=UTC)
XE = "gpu.intel.com/xe"


def node(name: str, labels: dict[str, str], **allocatable: str) -> dict[str, Any]:
    amounts = {f"gpu.intel.com/{resource}": amount for resource, amount in allocatable.items()}
    return {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": amounts}}


def finding(*nodes: dict[str, Any]) -> tuple[State, str]:
    class Nodes:
        def json(self, *_: object, **__: object) -> dict[str, Any]:
            return {"items": list(nodes)}

    api: Any = Nodes()
    (found,) = card_labels(api, NOW)
    return found.state, f"{found.sentence} {found.remedy}"


@pytest.mark.promise("O379")
@pytest.mark.parametrize(
    "labels",
    [{"gpu.intel.com/product": "Max_1550"}, {"gpu.intel.com/cards": ""}, {"gpu.intel.com/tiles": "4"}],
    ids=["another label", "no card in it", "tiles alone"],
)
def test_a_node_that_offers_cards_without_their_labels_is_named_with_the_label_and_what_to_run(
    labels: dict[str, str],
) -> None:
    labelled = node("labelled", {"gpu.intel.com/gpu-numbers": "0.1"}, i915="2")
    state, text = finding(labelled, node("bare", labels, xe="8"), node("none", {}))
    assert state is State.ODD
    assert "Intel cards without the label gpu.intel.com/gpu-numbers on 1 node of 2" in text
    assert ": bare Run topogate's labeler there" in text


@pytest.mark.parametrize(
    "nodes",
    [
        (),
        (node("none", {}),),
        (node("out of use", {}, xe="0"),),
        (node("old", {"gpu.intel.com/cards": "card0"}, i915="1"),),
        (node("broken", {"gpu.intel.com/tiles": "0"}, xe="8"),),
    ],
    ids=["no node", "no card", "no device", "labels of an old plugin", "cards that are out of use"],
)
def test_all_other_nodes_are_well(nodes: tuple[dict[str, Any], ...]) -> None:
    assert finding(*nodes)[0] is State.WELL
