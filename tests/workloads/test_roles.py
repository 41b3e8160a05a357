"""What the users of a gang call its pods: the role that its controller writes, or what their names share."""

import pytest

from tests.sweeper.pods import decode, pod_json
from webhook.workloads import marks
from webhook.workloads.roles import role_of


@pytest.mark.promise("R175")
@pytest.mark.parametrize(
    ("labels", "role"),
    [
        ({marks.REPLICATED_JOB_LABEL: "Workers", marks.JOB_NAME_LABEL: "train-workers-0"}, "Workers"),
        ({marks.REPLICA_TYPE: "Worker", marks.TRAINING_JOB_NAME_LABEL: "train"}, "worker"),
        ({marks.JOB_ROLE: "launcher"}, "launcher"),
        ({marks.TASK_SPEC: "ps"}, "ps"),
        ({marks.RAY_NODE_TYPE: "head", marks.RAY_GROUP: "headgroup"}, "head"),
        ({marks.RAY_NODE_TYPE: "worker", marks.RAY_GROUP: "rollouts"}, "rollouts"),
        ({marks.WORKER_INDEX: "0"}, "leader"),
        ({marks.WORKER_INDEX: "3"}, "worker"),
    ],
    ids=["JobSet", "replica type", "job role", "Volcano", "Ray head", "Ray group", "leader", "worker"],
)
def test_a_pod_has_the_role_that_its_controller_writes_on_it(labels: dict[str, str], role: str) -> None:
    assert role_of(decode(pod_json("run-7", metadata={"labels": labels}))) == role


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("rollout-12", "rollout"),
        ("train-0-3-x7k2p", "train"),
        ("llama3-prefill-0", "llama3-prefill"),
        ("evaluator", ""),
        ("h100-train", ""),
    ],
)
def test_pods_without_a_role_are_called_by_what_their_names_share(name: str, role: str) -> None:
    assert role_of(decode(pod_json(name))) == role
