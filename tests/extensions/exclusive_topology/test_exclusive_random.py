"""Whatever becomes of nodes, pods and leaders, no two exclusive Jobs are in one domain, nor one in two."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sweeper.cluster import Nodes, Placing
from tests.sweeper.sets import exclusive, member, racks, sent, valid_plans
from webhook.configuration.settings import Settings
from webhook.kube.objects import Metadata, Node, Pod
from webhook.kube.placements import Placement
from webhook.kube.plan_pods import PlannedPod
from webhook.sweeper.decide import plan
from webhook.sweeper.decide.orders import NewPlan
from webhook.sweeper.decide.plan import unfinished
from webhook.sweeper.decide.release_queue import SentReleases
from webhook.sweeper.observe.gangs import gather

SIZES = {"a": 1, "b": 1, "c": 2, "d": 1}
SETTINGS = Settings(settle_seconds=0, patience_seconds=0)


class Life:
    """Two racks of three nodes, more Jobs than racks, and a sweeper that may die between any two writes."""

    def __init__(self) -> None:
        self.made = 0
        pods = tuple(self.pod_of(job) for job, size in SIZES.items() for _ in range(size))
        self.cluster: Nodes = racks(3, 3, pods=pods)
        self.all_nodes: dict[str, Node] = dict(self.cluster.nodes)
        self.lead()

    def pod_of(self, job: str) -> Pod:
        """Another pod of a Job."""
        self.made += 1
        return member(f"{job}{self.made}", job, size=SIZES[job])

    def lead(self) -> None:
        """Another process leads."""
        self.placing = exclusive(Placing(self.cluster, SETTINGS))

    def sweep(self, writes: int) -> None:
        """One pass, which ends after so many writes."""
        placing, sent = self.placing, SentReleases()
        view = valid_plans(placing.view(), placing.refusing, sent)
        left = writes
        for pod, planned in unfinished(view, placing.retries, sent):
            left -= 1
            if left >= 0:
                self.release(pod, planned)
        gangs = gather(view.gated, view.others, placing.owner_facts)
        placing.version += 1
        placing.remember(gangs, view)
        pass_input = placing.given(view, placing.snapshotter.snapshot(view), placing.version)
        for made in placing.place(gangs, pass_input).plans:
            left -= 1
            if left >= 0:
                self.write(made)
            for planned in made.entries:
                left -= 1
                if left >= 0:
                    self.release(made.pods[planned.uid], planned)

    def write(self, made: NewPlan) -> None:
        key = made.gang.key
        before = self.cluster.placements.get(key.placement_key)
        spec = plan.plan_spec(
            made.gang, before, list(made.entries), made.later_pod_nodes, domains=made.domains
        )
        metadata = Metadata(name=key.placement_name, namespace="ns", uid=key.placement_name)
        self.cluster.placements[key.placement_key] = Placement(metadata, spec)

    def release(self, pod: Pod, planned: PlannedPod) -> None:
        """Let a pod go, which is bound at once if its node is there."""
        self.cluster.pods.remove(pod)
        body = msgspec.to_builtins(sent(pod, planned.node))
        if planned.node in self.cluster.nodes:
            body["spec"]["nodeName"] = planned.node
        self.cluster.pods.append(msgspec.convert(body, Pod))

    def remove_node(self, number: int) -> None:
        """Remove a node; its pods stay until the garbage collector deletes them."""
        self.cluster.nodes.pop(f"n{number}", None)

    def return_node(self, number: int) -> None:
        self.cluster.nodes[f"n{number}"] = self.all_nodes[f"n{number}"]

    def end_readiness(self, number: int) -> None:
        node = self.cluster.nodes.get(f"n{number}")
        if node is not None:
            body = msgspec.to_builtins(node)
            body["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
            self.cluster.nodes[f"n{number}"] = msgspec.convert(body, Node)

    def delete_pod(self, number: int) -> None:
        """A pod is deleted, and its Job makes another."""
        pod = self.cluster.pods.pop(number % len(self.cluster.pods))
        self.cluster.pods.append(self.pod_of(pod.metadata.name[0]))

    def collect(self) -> None:
        """As Kubernetes collects pods of nodes that are gone."""
        for number, pod in reversed(list(enumerate(self.cluster.pods))):
            if pod.spec.node_name and pod.spec.node_name not in self.cluster.nodes:
                self.delete_pod(number)

    def check(self) -> None:
        """Each Job has one rack, where no other is: by where its pods were bound or sent to."""
        racks_of: dict[str, set[str]] = {}
        for pod in self.cluster.pods:
            if node := self.placing.view().occupied(pod):
                rack = self.all_nodes[node].metadata.labels["rack"]
                racks_of.setdefault(pod.metadata.name[0], set()).add(rack)
        taken = [rack for racks in racks_of.values() for rack in racks]
        assert len(taken) == len(set(taken)), racks_of
        assert all(len(racks) == 1 for racks in racks_of.values()), racks_of


NODE = st.integers(0, 5)
DEEDS = st.one_of(
    st.tuples(st.sampled_from(("remove_node", "return_node", "end_readiness")), NODE),
    st.tuples(st.just("delete_pod"), st.integers(0, 4)),
    st.tuples(st.sampled_from(("lead", "collect"))),
)
WRITES = st.sampled_from((0, 1, 1, 2, 3, 99, 99, 99))


@pytest.mark.promise("R79")
@settings(max_examples=50, derandomize=True)
@given(st.lists(st.tuples(WRITES, DEEDS), min_size=4, max_size=16))
def test_each_exclusive_job_has_a_domain_of_its_own_whatever_happens(
    moments: list[tuple[int, tuple[Any, ...]]],
) -> None:
    life = Life()
    for writes, (deed, *arguments) in moments:
        life.sweep(writes)
        life.check()
        getattr(life, deed)(*arguments)
