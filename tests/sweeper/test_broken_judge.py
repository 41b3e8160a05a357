"""What a soak says of broken nodes: see hack/soaks/broken.py."""

import json
import random
from typing import Any, cast

from hack.soaks.broken import MANY, BrokenGpus
from webhook.kube.client import Api

NODES = [f"n{number}" for number in range(10)]


class Avoided:
    """Stands for an API server that has the sweeper's ConfigMap."""

    nodes: tuple[str, ...] = ()

    def json(self, *_: object) -> dict[str, Any]:
        said = {"by": "all", "model": "", "gangs": 2, "cause": "", "last": 0, "until": 1}
        return {"data": {"avoided": json.dumps([{"node": name, **said} for name in self.nodes])}}


def judge(count: int = 20) -> tuple[BrokenGpus, Avoided, list[str]]:
    api = Avoided()
    broken = BrokenGpus(cast(Api, api), NODES, count, random.Random(1))
    return broken, api, sorted(broken.kubelets.nodes)


def test_a_node_where_nothing_failed_must_not_be_avoided() -> None:
    broken, api, names = judge()
    good = next(name for name in NODES if name not in names)
    api.nodes = names[0], good
    broken.look()
    broken.look()
    assert broken.faults == [f"all avoids ['{good}'], where no pod has failed"]


def test_no_more_than_a_share_of_the_nodes_may_be_avoided() -> None:
    broken, api, names = judge(count=10)
    api.nodes = tuple(names)
    broken.look()
    assert broken.faults == ["all avoids 2 nodes, more than 1"]


def test_a_node_where_many_pods_failed_must_have_been_avoided() -> None:
    broken, api, names = judge()
    broken.kubelets.failed += [(name, str(number)) for name in names for number in range(MANY)]
    api.nodes = (names[0],)
    broken.look()
    assert broken.faults == [f"{MANY} pods failed on {names[1]}, and it was never avoided"]
    api.nodes = (names[1],)
    broken.look()
    assert broken.faults == []
