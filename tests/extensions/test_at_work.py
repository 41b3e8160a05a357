"""Extensions in the passes of a sweeper on a real API server."""

from collections.abc import Sequence
from typing import Any

import pytest

from hack.local.cluster import Cluster
from tests.extensions.made import extension
from tests.sweeper import mortal
from tests.sweeper.at_work import create_job, template
from tests.sweeper.mortal import MortalApi, living
from webhook.configuration.settings import Settings
from webhook.sweeper.decide.orders import Cause
from webhook.sweeper.extension import EndOrders, Extension, HookInput, Switch


def explains(given: HookInput, memory: Any) -> tuple[EndOrders, Any]:
    waiting = [gang.key for gang in given.gangs if given.causes.get(gang.key) is Cause.INSUFFICIENT_CAPACITY]
    return EndOrders(notes=dict.fromkeys(waiting, "more nodes come at noon")), memory


def is_broken(given: HookInput, memory: Any) -> tuple[EndOrders, Any]:
    raise ZeroDivisionError


def on(*extensions: Extension) -> Sequence[Switch]:
    return [Switch(lambda *_: True, lambda found=each: found) for each in extensions]  # type: ignore[misc]


NOON, BROKEN = extension("noon", after_pass=explains), extension("broken", after_pass=is_broken)


@pytest.mark.parametrize(
    "switches", [on(NOON), on(BROKEN, NOON)], ids=["as it is", "while another has a defect"]
)
def test_a_gang_without_a_place_has_the_note_of_an_extension_beside_the_reason(
    definitions: Cluster, namespace: str, monkeypatch: pytest.MonkeyPatch, switches: Sequence[Switch]
) -> None:
    monkeypatch.setattr(mortal, "SWITCHES", switches)
    create_job(definitions.api(), namespace, "train", 1, template(8))
    api = MortalApi.connect(definitions.kubeconfig, user_agent="test-sweeper")
    assert isinstance(api, MortalApi)
    api.prepare(None)
    path = f"/apis/topogate.io/v1alpha1/namespaces/{namespace}/placements"

    def is_reported() -> bool:
        one_pass()
        reasons = [each.get("status", {}).get("reason", "") for each in api.json("GET", path)["items"]]
        return any("1 pod" in each and each.endswith("; more nodes come at noon") for each in reasons)

    with living(api, Settings(settle_seconds=0.2)) as one_pass:
        definitions.wait_for("the note", is_reported, 30)
