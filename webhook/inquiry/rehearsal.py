"""Where pods that do not exist yet would be placed: they are added to the cluster as it is, and placed."""

import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from webhook.configuration.settings import Settings
from webhook.inquiry.gang_answer import ask_gang, state_for
from webhook.inquiry.reading import ClusterReading
from webhook.inquiry.resource_adder import view_of
from webhook.inquiry.simulation import ManifestPods, Rehearsed
from webhook.kube.objects import Pod
from webhook.placement import Assignment, NoFit
from webhook.sweeper.observe.gangs import GangKey, OwnerFacts, gather, key_of
from webhook.sweeper.observe.snapshotter import Snapshotter


def rehearse(cluster: ClusterReading, job: Mapping[str, Any], settings: Settings) -> Assignment | NoFit:
    """Place the pods of an indexed Job among running and planned pods. Raises PlacementError.

    Gangs that wait already are not placed first, so one of them may still take the capacity.
    """
    pods = tuple(_pods(job, settings))
    mine = key_of(pods[0])

    def size_of(key: GangKey) -> OwnerFacts:
        return OwnerFacts(len(pods)) if key == mine else cluster.size_of(key)

    fuller = replace(cluster, pods=(*cluster.pods, *pods), size_of=size_of)
    snapshotter = _snapshotter(fuller, settings)
    view = view_of(snapshotter, fuller, settings)
    gang = next(each for each in gather(view.gated, view.others, size_of, view.gang_of) if each.key == mine)
    return ask_gang(gang, state_for([gang], view, snapshotter.snapshot(view), settings)).found


def rehearse_manifest(cluster: ClusterReading, found: ManifestPods, settings: Settings) -> Rehearsed:
    """The gangs of a manifest among a cluster's running and planned pods; like rehearse.

    Raises PlacementError.
    """
    made = found.gangs()
    pods = tuple(pod for gang in made for pod in gang.pods)
    fuller = replace(cluster, pods=(*cluster.pods, *pods))
    snapshotter = _snapshotter(fuller, settings)
    view = view_of(snapshotter, fuller, settings)
    return Rehearsed(made, view, snapshotter.snapshot(view), found.notes, found.admitted, settings)


def _snapshotter(cluster: ClusterReading, settings: Settings) -> Snapshotter:
    """One that knows of each gang with planned or reserved nodes whether its controller still exists."""
    roots = cluster.pod_group_roots()

    def reserves(pod: Pod) -> bool:
        plan = cluster.placements.get(key_of(pod, settings.owner_rules, roots).placement_key)
        is_gated = bool(pod.spec.scheduling_gates)
        return plan is not None and bool(
            plan.spec.later_pod_nodes or (is_gated and (plan.spec.pods or plan.status.reserved_nodes))
        )

    lost_owner = cluster.lost_owners(reserves)
    return Snapshotter(cluster, settings, owners=lambda: lost_owner)


def _pods(job: Mapping[str, Any], settings: Settings) -> list[Pod]:
    """The pods as the Job controller would create them, gated."""
    name, namespace, uid = job["metadata"]["name"], job["metadata"]["namespace"], str(uuid.uuid4())
    template = job["spec"]["template"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": True}
    made = []
    for rank in range(job["spec"]["parallelism"]):
        labels = {
            **template["metadata"]["labels"],
            "batch.kubernetes.io/job-name": name,
            "batch.kubernetes.io/controller-uid": uid,
            "batch.kubernetes.io/job-completion-index": str(rank),
        }
        body = {
            "metadata": {
                "name": f"{name}-{rank}",
                "namespace": namespace,
                "uid": f"{uid}-{rank}",
                "labels": labels,
                "annotations": template["metadata"]["annotations"],
                "ownerReferences": [owner],
                "creationTimestamp": "9999-01-01T00:00:00Z",
            },
            "spec": {**template["spec"], "schedulingGates": [{"name": f"{settings.gate_prefix}topogate"}]},
            "status": {"phase": "Pending"},
        }
        made.append(msgspec.convert(body, Pod))
    return made
