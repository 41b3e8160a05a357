"""What a soak says of broken nodes: see hack/soaks/broken.py."""

import json
import random
from typing import Any, cast

from hack.soaks.broken import BrokenGpus
from webhook.extensions.node_health.avoided_nodes import NAME
from webhook.kube.client import Api
from webhook.kube.state_config_map import path_of

NODES = [f"n{number}" for number in range(10)]


class Avoided:
    """Stands for an API server that has the sweeper's ConfigMap."""

    nodes: tuple[str, ...] = ()

    def json(self, _: str, path: str) -> dict[str, Any]:
        assert path == path_of(NAME)
        entry = {"by": "*", "model": "", "gangs": 2, "cause": "", "last": 0, "until": 1}
        return {"data": {"avoided": json.dumps([{"node": name, **entry} for name in self.nodes])}}


class Scene:
    """A judge of two broken nodes."""

    def __init__(self, count: int = 20) -> None:
        self.api = Avoided()
        self.broken = BrokenGpus(cast(Api, self.api), NODES, count, random.Random(1))
        self.names = sorted(self.broken.names)
        self.good = next(name for name in NODES if name not in self.names)

    @property
    def faults(self) -> list[str]:
        """What is wrong, without when."""
        return [fault.split(": ", 1)[1] for fault in self.broken.faults]


def test_a_node_where_nothing_failed_must_not_be_avoided() -> None:
    scene = Scene()
    scene.api.nodes = scene.names[0], scene.good
    scene.broken.look()
    assert scene.faults == [f"all avoids ['{scene.good}'], where no pod has failed"]


def test_no_more_than_a_share_of_the_nodes_may_be_avoided() -> None:
    scene = Scene(count=10)
    scene.api.nodes = tuple(scene.names)
    scene.broken.look()
    assert scene.faults == ["all avoids 2 nodes, more than 1"]
