"""Gangs that name a PodGroup of ours, on a control plane with native gangs, and a sweeper at work."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from hack.local import native_gangs
from hack.local.cluster import Cluster
from hack.local.nodes import SimulatedNode
from labeler.contract import keys
from tests.support import delete, delete_namespace, register_nodes
from tests.sweeper.at_work import template
from tests.sweeper.mortal import Death, MortalApi, living
from webhook.configuration.settings import Settings
from webhook.kube.client import Api, ApiError
from webhook.policy.values import Policy
from webhook.workloads.pod_group_names import bind_group_name

SETTINGS: Final = Settings(settle_seconds=0.5, patience_seconds=5, bind_seconds=600)
GANG: Final = {keys.GANG_ANNOTATION: "train"}
GROUP: Final = bind_group_name({}, GANG, "", "default-scheduler")


@dataclass
class Scene:
    """A namespace with three nodes for one pod each, and a gang by annotation. name: of its PodGroup."""

    cluster: Cluster
    namespace: str
    name: str = GROUP

    @property
    def api(self) -> Api:
        return self.cluster.api()

    @property
    def pods_path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    @property
    def group_path(self) -> str:
        return f"{native_gangs.path(self.api, self.namespace)}/{self.name}"

    def add_nodes(self, count: int = 3, first: int = 0, block: str = "b") -> None:
        new = [
            replace(SimulatedNode(f"{self.namespace}-{number}", (block, "s", f"h{number}"), False, 2), gpus=8)
            for number in range(first, first + count)
        ]
        register_nodes(self.cluster, new)

    def add(self, *names: str, group: str = "", priority_class: str = "", **annotations: str) -> None:
        """Pods as admission makes them."""
        given = {**GANG, keys.GANG_SIZE_ANNOTATION: "3", **annotations}
        more: dict[str, Any] = {"priorityClassName": priority_class} if priority_class else {}
        body = template(8, annotations=given, schedulingGroup={"podGroupName": group or self.name}, **more)
        for name in names:
            self.api.request(
                "POST", self.pods_path, body={**body, "metadata": {**body["metadata"], "name": name}}
            )

    def pods(self) -> list[dict[str, Any]]:
        return list(self.api.json("GET", self.pods_path)["items"])

    def bound(self) -> set[str]:
        return {pod["metadata"]["name"] for pod in self.pods() if pod["spec"].get("nodeName")}

    def released(self) -> set[str]:
        return {pod["metadata"]["name"] for pod in self.pods() if not pod["spec"].get("schedulingGates")}

    def is_tried(self, name: str) -> bool:
        """Whether kube-scheduler has tried to bind a pod, in vain."""
        pod = next(each for each in self.pods() if each["metadata"]["name"] == name)
        return any(each.get("reason") == "Unschedulable" for each in pod["status"].get("conditions", ()))

    def group(self) -> dict[str, Any]:
        return dict(self.api.json("GET", self.group_path))

    def minimum(self) -> int:
        """minCount of the PodGroup, 0 where its pods are bound one by one, -1 without one."""
        try:
            group = self.group()
        except ApiError as error:
            if error.status != 404:
                raise
            return -1
        return int(group["spec"]["schedulingPolicy"].get("gang", {}).get("minCount", 0))

    def placements(self) -> list[dict[str, Any]]:
        path = f"/apis/topogate.io/v1alpha1/namespaces/{self.namespace}/placements"
        return list(self.api.json("GET", path)["items"])

    def planned(self) -> dict[str, str]:
        """The node of each pod by the plans."""
        return {pod["name"]: pod["node"] for each in self.placements() for pod in each["spec"]["pods"]}

    def reason(self) -> str:
        return " ".join(each.get("status", {}).get("reason", "") for each in self.placements())

    def mortal(self, death: Death | None = None) -> MortalApi:
        api = MortalApi.connect(self.cluster.kubeconfig, user_agent="test-sweeper")
        assert isinstance(api, MortalApi)
        api.prepare(death)
        return api

    @contextlib.contextmanager
    def sweeping(
        self, policy: Policy | None = None, settings: Settings = SETTINGS
    ) -> Iterator[Callable[[str, Callable[[], bool]], None]]:
        """A sweeper at work; yields what lets it work until something holds."""
        with living(self.mortal(), settings, policy) as one_pass:

            def until(what: str, holds: Callable[[], bool]) -> None:
                def is_so() -> bool:
                    one_pass()
                    return holds()

                self.cluster.wait_for(what, is_so, 60)

            yield until

    def clear(self) -> None:
        delete_namespace(self.cluster, self.namespace)
        for node in self.api.json("GET", "/api/v1/nodes")["items"]:
            if node["metadata"]["name"].startswith(f"{self.namespace}-"):
                delete(self.api, f"/api/v1/nodes/{node['metadata']['name']}")
