"""Manifests for Google's topology scheduler and for Intel's GPU Aware Scheduling run as they are.

Written here after the shapes that those projects document: the gate that all workloads share, the gate
that carries the workload's own name, and containers that ask for a share of a card. Not a word of
topogate's is in them.
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from hack.local import nodes
from hack.local.cluster import Cluster
from hack.local.install import Installation
from labeler.contract import keys
from tests.installation import installed_for
from tests.support import create_namespace, delete_namespace, wait_for_nodes, wait_for_pods

SHAPE = nodes.Shape(nodes=12, blocks=2, subblocks=2, gpus=8, intel=2)

# An NCCL test on four A3 machines: an indexed Job whose pods find each other by a headless Service.
SHARED_GATE = """
apiVersion: v1
kind: Service
metadata: {name: NAME-hosts}
spec: {clusterIP: None, selector: {job-name: NAME}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: NAME}
spec:
  completions: 2
  parallelism: 2
  completionMode: Indexed
  backoffLimit: 0
  template:
    metadata:
      annotations: {example.com/interfaces: '[{"interfaceName":"eth0","network":"default"}]'}
    spec:
      restartPolicy: Never
      subdomain: NAME-hosts
      hostNetwork: true
      dnsPolicy: ClusterFirstWithHostNet
      schedulingGates:
        - name: gke.io/topology-aware-auto-scheduling
      tolerations:
        - {key: nvidia.com/gpu, operator: Exists}
        - {key: cloud.google.com/impacted-node-anticipated, operator: Equal, value: "true"}
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms:
              - matchExpressions:
                  - {key: cloud.google.com/gke-accelerator, operator: In, values: [nvidia-h100-mega-80gb]}
      containers:
        - name: nccl
          image: registry.example.com/nccl:1
          resources: {limits: {nvidia.com/gpu: 8}, requests: {cpu: 8}}
        - name: daemon
          image: registry.example.com/rx:1
"""

OWN_GATE = SHARED_GATE.replace("topology-aware-auto-scheduling", "topology-aware-auto-NAME")

# Half a card for each of two containers, a whole one for a third pod, and memory of a card.
FRACTIONS = """
apiVersion: v1
kind: Pod
metadata: {name: two-halves}
spec:
  containers:
    - {name: a, image: x, resources: {limits: {gpu.intel.com/i915: 1, gpu.intel.com/millicores: 500}}}
    - {name: b, image: x, resources: {limits: {gpu.intel.com/i915: 1, gpu.intel.com/millicores: 500}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: share}
spec:
  replicas: 3
  selector: {matchLabels: {app: share}}
  template:
    metadata: {labels: {app: share}}
    spec:
      containers:
        - name: one
          image: x
          resources:
            limits: {gpu.intel.com/i915: 1, gpu.intel.com/millicores: 300, gpu.intel.com/memory.max: 10G}
        - {name: beside, image: x}
"""


@pytest.fixture(scope="module")
def installed(module_cluster: Cluster) -> Iterator[Installation]:
    """topogate on twelve nodes: GPU nodes labelled as GKE labels them, Intel nodes by the labeler."""
    grid = nodes.grid(SHAPE)
    with installed_for(module_cluster, grid) as installation:
        for node in grid:
            labels = dict(zip(keys.GCE_TOPOLOGY, node.place, strict=True))
            if not node.intel:
                labels["cloud.google.com/gke-accelerator"] = "nvidia-h100-mega-80gb"
            installation.api.request("POST", "/api/v1/nodes", body=node.manifest(labels))
        wait_for_nodes(module_cluster, grid)
        installation.label([node for node in grid if node.intel])
        yield installation


@pytest.fixture
def plain(installed: Installation) -> Iterator[str]:
    """A namespace that nobody opted in: what has no gate of its own gets none."""
    name = create_namespace(installed.cluster)
    yield name
    delete_namespace(installed.cluster, name)


def running(count: int) -> Any:
    return lambda pods: sum(pod["status"]["phase"] == "Running" for pod in pods) == count


def subblocks_of(pods: list[dict[str, Any]]) -> set[str]:
    """Nodes are called node-b<block>-s<subblock>-h<host>."""
    return {re.sub(r"-h\d+$", "", pod["spec"]["nodeName"]) for pod in pods}


@pytest.mark.promise("R1", "R104")
@pytest.mark.parametrize("manifest", [SHARED_GATE, OWN_GATE], ids=["one gate for all", "a gate for each"])
def test_two_gated_jobs_run_as_two_gangs_each_in_one_subblock(
    installed: Installation, plain: str, manifest: str
) -> None:
    for name in ("nccl-a", "nccl-b"):
        installed.cluster.kubectl("create", "-n", plain, "-f", "-", stdin=manifest.replace("NAME", name))
    pods = wait_for_pods(installed.cluster, plain, running(4), "four running pods")
    for name in ("nccl-a", "nccl-b"):
        gang = [pod for pod in pods if pod["metadata"]["labels"]["job-name"] == name]
        assert len({pod["spec"]["nodeName"] for pod in gang}) == 2
        assert len(subblocks_of(gang)) == 1
    placements = installed.api.json("GET", f"/apis/topogate.io/v1alpha1/namespaces/{plain}/placements")
    assert {placement["spec"]["gang"] for placement in placements["items"]} == {"Job/nccl-a", "Job/nccl-b"}


def test_pods_that_ask_for_shares_of_cards_are_given_cards_by_name(
    installed: Installation, opted_in: str
) -> None:
    installed.cluster.kubectl("create", "-n", opted_in, "-f", "-", stdin=FRACTIONS)
    pods = wait_for_pods(installed.cluster, opted_in, running(4), "four running pods")
    taken: dict[tuple[str, str], int] = {}
    for pod in pods:
        annotations = pod["metadata"]["annotations"]
        slots = annotations[keys.GAS_CARDS_ANNOTATION].split("|")
        assert re.fullmatch(r"\d{19}", annotations[keys.GAS_TIMESTAMP_ANNOTATION])
        if pod["metadata"]["name"] == "two-halves":
            assert slots == ["card0", "card0"] or slots == ["card1", "card1"]
        else:
            # Containers without cards at the end have no slot, or an empty one.
            assert re.fullmatch(r"card[01]", slots[0])
            assert not any(slots[1:])
        for slot in filter(None, slots):
            share = 500 if pod["metadata"]["name"] == "two-halves" else 300
            card = (pod["spec"]["nodeName"], slot)
            taken[card] = taken.get(card, 0) + share
    assert all(share <= 1000 for share in taken.values())
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 1
