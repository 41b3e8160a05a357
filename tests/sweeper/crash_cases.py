"""Runs of the sweeper, each in a namespace and on nodes of its own, which cases side by side leave alone."""

from dataclasses import dataclass, replace
from typing import Any, Final

from hack.local.cluster import Cluster
from hack.local.nodes import SimulatedNode
from labeler.contract import keys
from tests.support import delete_namespace
from tests.sweeper.mortal import Death, MortalApi
from webhook.configuration.settings import Settings
from webhook.kube.client import Api

GPUS: Final = "nvidia.com/gpu"
CASE_LABEL: Final = "test.topogate.io/case"
PARALLEL: Final = 4
CASE_SECONDS: Final = 120.0
GANGS: Final = {"train": (3, {GPUS: 4}), "share": (2, {keys.I915: 1, keys.MILLICORES: 600})}


class _AllBut(frozenset[str]):
    """Ignored namespaces: every one but its members, so that cases side by side leave each other alone."""

    def __contains__(self, namespace: object) -> bool:
        return not super().__contains__(namespace)

    def __ror__(self, _: object) -> "_AllBut":
        return self


@dataclass(frozen=True)
class Case:
    """One run of the scenario: in a namespace of its own, on three nodes of its own."""

    cluster: Cluster
    namespace: str

    @property
    def api(self) -> Api:
        return self.cluster.api()

    @property
    def settings(self) -> Settings:
        return Settings(settle_seconds=10, patience_seconds=10, excluded_namespaces=_AllBut({self.namespace}))

    def agent(self, life: str) -> str:
        return f"sweeper-{life}-of-{self.namespace}"

    def mortal(self, life: str, death: Death | None = None) -> MortalApi:
        api = MortalApi.connect(self.cluster.kubeconfig, user_agent=self.agent(life))
        assert isinstance(api, MortalApi)
        api.prepare(death)
        return api

    def set_up(self) -> None:
        """Three nodes, two Jobs, and all their pods there and gated by their own template."""
        for index in range(3):
            node = SimulatedNode(f"{self.namespace}-n{index}", ("b", "s", f"h{index}"), index == 2, 2)
            node = node if node.intel else replace(node, gpus=8)
            labels = {**node.topology_labels, CASE_LABEL: self.namespace}
            if node.intel:
                labels |= {keys.CARDS_LABEL: "card0.card1", keys.GPU_NUMBERS_LABEL: "0.1"}
            self.api.request("POST", "/api/v1/nodes", body=node.manifest(labels))
        for name, (count, limits) in GANGS.items():
            self.api.request(
                "POST",
                f"/apis/batch/v1/namespaces/{self.namespace}/jobs",
                body=_job(name, count, limits, self.namespace),
            )
        total = sum(count for count, _ in GANGS.values())
        self.cluster.wait_for("the pods of both Jobs", lambda: len(self.pods()) == total)

    def pods(self) -> list[dict[str, Any]]:
        return list(self.api.json("GET", f"/api/v1/namespaces/{self.namespace}/pods")["items"])

    def placements(self) -> list[dict[str, Any]]:
        path = f"/apis/topogate.io/v1alpha1/namespaces/{self.namespace}/placements"
        return list(self.api.json("GET", path)["items"])

    def is_at_its_end(self) -> bool:
        states = [placement.get("status", {}).get("state") for placement in self.placements()]
        return states == ["Bound"] * len(GANGS) and all(pod["spec"].get("nodeName") for pod in self.pods())

    def tear_down(self) -> None:
        delete_namespace(self.cluster, self.namespace)
        for index in range(3):
            self.api.request("DELETE", f"/api/v1/nodes/{self.namespace}-n{index}")


def _job(name: str, count: int, limits: dict[str, Any], case: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {
            "completionMode": "Indexed",
            "completions": count,
            "parallelism": count,
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "schedulingGates": [{"name": keys.GATE}],
                    "nodeSelector": {CASE_LABEL: case},
                    "containers": [{"name": "c", "image": "x", "resources": {"limits": limits}}],
                }
            },
        },
    }
