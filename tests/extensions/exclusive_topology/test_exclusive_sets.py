"""JobSets whose Jobs want a domain each: all Jobs have one in one plan, or none has.

In memory. Subblocks have names of their own, as kube-scheduler knows them by the value of their label alone.
"""

import random
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from labeler.contract import keys
from tests.sweeper.cluster import GPU, Placing, places
from tests.sweeper.launchers import TOLERATION, node, placing
from tests.sweeper.pods import decode, pod_json
from tests.sweeper.sets import exclusive
from webhook.kube.objects import Metadata, Node, Pod
from webhook.kube.placements import Placement, PlacementSpec
from webhook.kube.plan_pods import PlannedPod
from webhook.sweeper.observe import owner_sizes
from webhook.sweeper.observe.gangs import OwnerFacts
from webhook.workloads import marks
from webhook.workloads.kinds import WORKLOADS

SUBBLOCK = keys.PRERELEASE_TOPOLOGY[1]
POOL = "pool"
KEY = "jobset.sigs.k8s.io/job-key"
(JOBSET,) = (each for each in WORKLOADS if each.kind == "JobSet")


def grid(*capacities: list[int], gpus: int = 8) -> list[Node]:
    """For each block the nodes of each of its subblocks; each subblock is a pool as well."""
    return [
        in_pool(node(f"b{b}s{s}h{h}", f"b{b}/b{b}s{s}/h{h}", gpus=gpus), f"b{b}s{s}")
        for b, subblocks in enumerate(capacities)
        for s, count in enumerate(subblocks)
        for h in range(count)
    ]


def in_pool(made: Node, pool: str) -> Node:
    labels = {**made.metadata.labels, POOL: pool}
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, labels=labels))


def affinity(job: str, over: str) -> dict[str, Any]:
    """What JobSet's webhook writes into the leader of a Job."""
    anybody = {"key": KEY, "operator": "Exists"}
    selector = {"matchExpressions": [anybody, {"key": KEY, "operator": "NotIn", "values": [job]}]}
    term = {"labelSelector": selector, "topologyKey": over, "namespaceSelector": {}}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def member(
    job: int,
    index: int,
    *,
    over: str = SUBBLOCK,
    on: str = "",
    gpus: int = 8,
    of: str = "train",
    jobs: int = 2,
    request: dict[str, str] | None = None,
    **spec: Any,
) -> Pod:
    """A pod of a Job of the JobSet as it stands after admission; "" over: of a Job that wants no domain."""
    labels = {
        marks.JOBSET_NAME_LABEL: of,
        marks.JOB_GLOBAL_INDEX: str(job),
        marks.JOB_INDEX_KEY: str(index),
        marks.JOBS_OF_JOBSET: str(jobs),
        marks.JOB_NAME_LABEL: f"{of}-{job}",
        KEY: f"{of}-{job}",
    }
    amounts = {GPU: str(gpus)} if gpus else {"cpu": "1"}
    bound = {"nodeName": on, "schedulingGates": []} if on else {}
    written = {marks.JOBSET_EXCLUSIVE: over} if over else {}
    made = {
        "containers": [{"name": "c", "resources": {"limits": amounts, "requests": amounts}}],
        **({"tolerations": [TOLERATION]} if gpus else {}),
        **({"affinity": affinity(f"{of}-{job}", over)} if over and not index else {}),
        **bound,
        **spec,
    }
    metadata = {"labels": labels, "annotations": {**written, **(request or {})}}
    return decode(pod_json(f"{of}-{job}-{index}", metadata=metadata, **made))


def jobset(*sizes: int, **more: Any) -> list[Pod]:
    return [
        member(job, index, jobs=len(sizes), **more) for job, size in enumerate(sizes) for index in range(size)
    ]


def sets_on(nodes: list[Node], *pods: Pod, owner_facts: OwnerFacts | None = None) -> Placing:
    return exclusive(placing(nodes, *pods, owner_facts=owner_facts))


def found(nodes: list[Node], *pods: Pod, owner_facts: OwnerFacts | None = None) -> dict[str, str]:
    """Pod -> node."""
    gated = sum(not pod.spec.node_name for pod in pods)
    return places(sets_on(nodes, *pods, owner_facts=owner_facts or OwnerFacts(gated)).one())


def domains(placed: dict[str, str], job: int, of: str = "train") -> set[str]:
    """The subblocks of a Job's pods."""
    return {where[:4] for pod, where in placed.items() if pod.startswith(f"{of}-{job}-")}


def reason(nodes: list[Node], *pods: Pod) -> str:
    orders = sets_on(nodes, *pods, owner_facts=OwnerFacts(sum(not pod.spec.node_name for pod in pods))).one()
    assert not orders.plans
    return orders.outcomes[0].reason


OVER = pytest.mark.parametrize("over", [SUBBLOCK, POOL], ids=["a-level", "a-label-that-is-no-level"])


@pytest.mark.promise("R79")
@OVER
def test_all_jobs_are_placed_in_one_plan_each_in_a_domain_of_its_own(over: str) -> None:
    placed = found(grid([1, 1], [3, 3]), *jobset(2, 2, over=over))
    assert [domains(placed, job) for job in range(2)] == [{"b1s0"}, {"b1s1"}]


@pytest.mark.promise("R79")
@OVER
def test_no_job_is_placed_where_not_all_have_a_domain(over: str) -> None:
    message = reason(grid([2, 4]), *jobset(2, 2, 2, over=over))
    assert f"needs 3 domains of {over} to itself: there is capacity for 2" in message


@pytest.mark.promise("R79")
@OVER
def test_domains_lie_in_one_block_though_other_blocks_have_tighter_ones(over: str) -> None:
    placed = found(grid([2], [2], [4, 4]), *jobset(2, 2, over=over))
    assert [domains(placed, job) for job in range(2)] == [{"b2s0"}, {"b2s1"}]


def test_jobs_in_the_order_of_their_numbers_lie_along_the_topology() -> None:
    placed = found(grid([2, 2, 2], [2]), *jobset(2, 2, 2))
    assert [placed[f"train-{job}-{index}"] for job in range(3) for index in range(2)] == [
        f"b0s{s}h{h}" for s in range(3) for h in range(2)
    ]


def test_the_large_job_gets_the_large_domain_whatever_its_number() -> None:
    placed = found(grid([2, 4]), *jobset(1, 4, 0))
    assert [domains(placed, job) for job in range(2)] == [{"b0s0"}, {"b0s1"}]


def test_a_domain_with_capacity_for_two_jobs_is_one_job_s() -> None:
    assert found(grid([4]), *jobset(2, 2)) == {}


@OVER
def test_domains_of_other_jobsets_are_left_to_them(over: str) -> None:
    others = [member(0, 0, of="other", jobs=1, over=over, on="b0s0h0")]
    message = reason(grid([5, 2]), *others, *jobset(2, 2, over=over))
    assert "others have b0s0" in message
    placed = found(grid([3, 2, 2]), *others, *jobset(2, 2, over=over), owner_facts=OwnerFacts(4))
    assert [domains(placed, job) for job in range(2)] == [{"b0s1"}, {"b0s2"}]


def test_a_job_that_wants_no_domain_keeps_out_of_one_as_kube_scheduler_has_it() -> None:
    others = [member(0, 0, of="other", jobs=1, on="b0s0h0")]
    plain = jobset(2, over="")
    assert domains(found(grid([3, 2]), *others, *plain), 0) == {"b0s1"}


def test_a_domain_where_a_job_runs_that_wants_none_is_nobody_s() -> None:
    there = [member(0, 0, of="other", jobs=1, over="", on="b0s0h0")]
    assert domains(found(grid([3, 2]), *there, *jobset(2)), 0) == {"b0s1"}


@pytest.mark.promise("R79")
def test_the_other_pods_of_the_jobset_are_near_the_domains_and_in_none_of_them() -> None:
    driver = member(0, 0, over="", jobs=3)
    workers = [member(job, index, jobs=3) for job in (1, 2) for index in range(2)]
    placed = found(grid([3], [3, 3, 1]), driver, *workers)
    assert [domains(placed, job) for job in range(3)] == [{"b1s2"}, {"b1s0"}, {"b1s1"}]


def test_a_driver_on_cpus_is_near_the_domains_and_in_none_of_them() -> None:
    cpus = [node(f"b{b}s{s}-cpu", f"b{b}/b{b}s{s}/cpu") for b, s in ((0, 0), (1, 0), (1, 2))]
    workers = [member(job, index, jobs=3) for job in (1, 2) for index in range(2)]
    placed = found([*grid([1], [2, 2]), *cpus], member(0, 0, over="", gpus=0, jobs=3), *workers)
    assert placed["train-0-0"] == "b1s2-cpu"


def test_a_replaced_pod_returns_to_the_domain_of_its_job() -> None:
    pods = jobset(2, 2)
    there = [member(0, 0, on="b0s0h0"), member(1, 0, on="b0s1h0"), member(1, 1, on="b0s1h1")]
    placed = found(grid([3, 3]), *there, pods[1], owner_facts=OwnerFacts(4))
    assert placed == {"train-0-1": "b0s0h1"}


def test_a_recreated_job_takes_a_domain_that_no_other_job_of_its_set_has() -> None:
    there = [member(1, index, on=f"b0s0h{index}") for index in range(2)]
    placed = found(grid([4, 2]), *there, *(member(0, index) for index in range(2)), owner_facts=OwnerFacts(4))
    assert domains(placed, 0) == {"b0s1"}


def test_a_domain_is_still_a_job_s_where_the_node_of_its_pod_is_gone() -> None:
    """A plan says which domain each Job has: its kubelet may run the pod on."""
    there = [member(0, 0, on="gone"), member(1, 0, on="b0s1h0")]
    cluster = sets_on(grid([2, 2, 2]), *there, member(0, 1), member(1, 1), owner_facts=OwnerFacts(4))
    pods = [
        PlannedPod(name=pod.metadata.name, uid=pod.metadata.uid, node=pod.spec.node_name) for pod in there
    ]
    domains = {"Job 0": "b0s2", "Job 1": "b0s1"}
    spec = PlacementSpec(gang="JobSet/train", pods=pods, domains=domains)
    cluster.cluster.placements = {"ns/train": Placement(Metadata(name="train", namespace="ns"), spec)}
    assert places(cluster.one()) == {"train-0-1": "b0s2h0", "train-1-1": "b0s1h1"}


def test_a_plan_names_the_domain_of_each_job() -> None:
    (plan,) = sets_on(grid([2, 2]), *jobset(2, 2), owner_facts=OwnerFacts(4)).one().plans
    assert plan.domains == {"Job 0": "b0s0", "Job 1": "b0s1"}


@pytest.mark.promise("R79")
def test_jobs_of_which_there_are_too_many_are_placed_each_by_itself() -> None:
    pods = [member(job, 0, jobs=129) for job in range(3)]
    orders = sets_on(grid([1, 1]), *pods, owner_facts=OwnerFacts(1)).one()
    assert len(orders.plans) == 2


@pytest.mark.promise("R79")
@pytest.mark.parametrize("level", ["block", "subblock"])
def test_a_coarser_level_that_is_required_holds_the_whole_jobset(level: str) -> None:
    request = {keys.REQUIRED_TOPOLOGY_ANNOTATION: level}
    pods = jobset(2, 2, request=request)
    assert bool(found(grid([2], [2]), *pods)) is (level == "subblock")
    assert len(found(grid([2], [2, 2]), *pods)) == 4


def facts_of(spec: dict[str, Any], count: int, over: str = SUBBLOCK) -> OwnerFacts:
    """What the JobSet says; "" over: its Jobs say which of them want domains."""
    annotations = {marks.JOBSET_EXCLUSIVE: over} if over else {}
    owner = msgspec.convert(
        {"metadata": {"name": "t", "annotations": annotations}, "spec": spec}, JOBSET.struct
    )
    return replace(owner_sizes.facts_of([JOBSET.pods(owner)]), size=count)


def replicated(name: str, replicas: int, count: int) -> dict[str, Any]:
    container = {"name": "c", "resources": {"limits": {GPU: "8"}}}
    spec = {"containers": [container], "tolerations": [TOLERATION]}
    job = {"parallelism": count, "completions": count, "template": {"metadata": {}, "spec": spec}}
    return {"name": name, "replicas": replicas, "template": {"metadata": {}, "spec": job}}


def test_leaders_are_placed_where_their_followers_will_fit_too() -> None:
    owner_facts = facts_of({"replicatedJobs": [replicated("w", 2, 3)]}, 6)
    orders = sets_on(grid([1, 1], [3, 3]), member(0, 0), member(1, 0), owner_facts=owner_facts).one()
    assert places(orders) == {"train-0-0": "b1s0h0", "train-1-0": "b1s1h0"}
    assert orders.plans[0].later_pod_nodes == ("b1s0h1", "b1s0h2", "b1s1h1", "b1s1h2")


def test_a_leader_is_the_first_of_its_job_though_it_alone_is_excluded_by_others() -> None:
    jobs = {"replicatedJobs": [replicated("a", 1, 1), replicated("b", 2, 2)]}
    owner_facts = facts_of({**jobs, "startupPolicy": {"startupPolicyOrder": "InOrder"}}, 5)
    first = member(0, 0, on="b0s0h0", jobs=3)
    leaders = [member(job, 0, jobs=3) for job in (1, 2)]
    orders = sets_on(grid([1, 1], [3, 3], [3, 3]), first, *leaders, owner_facts=owner_facts).one()
    assert places(orders) == {"train-1-0": "b1s0h0", "train-2-0": "b1s1h0"}


def test_leaders_wait_until_all_jobs_have_theirs() -> None:
    owner_facts = facts_of({"replicatedJobs": [replicated("w", 2, 3)]}, 6)
    orders = sets_on(grid([3, 3]), member(0, 0), owner_facts=owner_facts).one()
    assert (orders.plans, orders.outcomes[0].cause) == ((), "incomplete")


def test_leaders_wait_for_one_another_though_a_stage_before_them_runs() -> None:
    workers = replicated("w", 2, 3)
    workers["template"]["metadata"] = {"annotations": {marks.JOBSET_EXCLUSIVE: SUBBLOCK}}
    in_order = {"startupPolicy": {"startupPolicyOrder": "InOrder"}}
    owner_facts = facts_of({"replicatedJobs": [replicated("d", 1, 1), workers], **in_order}, 7, over="")
    driver = member(0, 0, over="", on="b1s0h0", jobs=3)
    orders = sets_on(grid([3, 3], [1]), driver, member(1, 0, jobs=3), owner_facts=owner_facts).one()
    assert (orders.plans, orders.outcomes[0].cause) == ((), "incomplete")
    orders = sets_on(
        grid([3, 3], [1]), driver, *(member(job, 0, jobs=3) for job in (1, 2)), owner_facts=owner_facts
    ).one()
    assert places(orders) == {"train-1-0": "b0s0h0", "train-2-0": "b0s1h0"}


def test_followers_of_one_job_do_not_wait_for_those_of_another() -> None:
    owner_facts = facts_of({"replicatedJobs": [replicated("w", 2, 3)]}, 6)
    there = [member(0, 0, on="b0s0h0"), member(1, 0, on="b0s1h0")]
    orders = sets_on(grid([3, 3]), *there, member(0, 1), member(0, 2), owner_facts=owner_facts).one()
    assert places(orders) == {"train-0-1": "b0s0h1", "train-0-2": "b0s0h2"}
    assert orders.plans[0].later_pod_nodes == ("b0s1h1", "b0s1h2")


def test_a_recreated_leader_does_not_wait_for_jobs_that_have_ended_nor_are_they_planned() -> None:
    owner_facts = facts_of({"replicatedJobs": [replicated("w", 3, 3)]}, 6)
    there = [member(1, index, on=f"b0s0h{index}", jobs=3) for index in range(3)]
    there += [member(2, index, on=f"b0s1h{index}", jobs=3) for index in (1, 2)]
    orders = sets_on(grid([3, 3]), *there, member(2, 0, jobs=3), owner_facts=owner_facts).one()
    assert places(orders) == {"train-2-0": "b0s1h0"}
    assert orders.plans[0].later_pod_nodes == ()


@pytest.mark.parametrize("seed", range(40))
@OVER
def test_identical_jobs_find_domains_wherever_there_are_some_in_as_few_blocks_as_possible(
    seed: int, over: str
) -> None:
    dice = random.Random(seed)
    capacities = [[dice.randint(0, 4) for _ in range(dice.randint(1, 4))] for _ in range(4)]
    count, size = dice.randint(1, 5), dice.randint(1, 3)
    placed = found(grid(*capacities), *jobset(*[size] * count, over=over))
    holds = sorted((sum(capacity >= size for capacity in block) for block in capacities), reverse=True)
    if sum(holds) < count:
        assert not placed
        return
    fewest = next(n for n in range(1, 5) if sum(holds[:n]) >= count)
    own = [domains(placed, job) for job in range(count)]
    assert all(len(each) == 1 for each in own)
    assert len(set().union(*own)) == count
    assert len({name[:2] for name in placed.values()}) == fewest


@pytest.mark.parametrize("seed", range(40))
def test_different_jobs_find_domains_wherever_there_are_some(seed: int) -> None:
    dice = random.Random(seed)
    capacities = [[dice.randint(0, 4) for _ in range(3)] for _ in range(3)]
    sizes = [dice.randint(1, 4) for _ in range(dice.randint(1, 5))]
    placed = found(grid(*capacities), *jobset(*sizes))
    there = sorted((capacity for block in capacities for capacity in block), reverse=True)
    wanted = sorted(sizes, reverse=True)
    possible = len(wanted) <= len(there) and all(w <= t for w, t in zip(wanted, there, strict=False))
    assert bool(placed) is possible
    if placed:
        own = [domains(placed, job) for job in range(len(sizes))]
        assert all(len(each) == 1 for each in own)
        assert len(set().union(*own)) == len(sizes)
