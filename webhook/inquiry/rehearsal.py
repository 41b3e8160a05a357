"""Where pods that do not exist yet would be placed: they are added to the cluster as it is, and placed."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from webhook.configuration.settings import Settings
from webhook.inquiry.admission_outcome import AdmissionRules
from webhook.inquiry.cluster_state import ClusterReading
from webhook.inquiry.gang_answer import ask_gang
from webhook.inquiry.next_pass import facts_of, moment, owners_snapshotter, plans_checked, state_for
from webhook.inquiry.resource_adder import view_of
from webhook.inquiry.simulation import ManifestPods, Rehearsed, read_pods
from webhook.placement import Assignment, NoFit


def rehearse(
    cluster: ClusterReading, job: Mapping[str, Any], settings: Settings, rules: AdmissionRules
) -> Assignment | NoFit:
    """Place the pods of a Job among running and planned pods. Raises PlacementError, NotPlacedError.

    Gangs that wait already are not placed first, so one of them may still take the capacity.
    """
    found = read_pods([{**job, "apiVersion": "batch/v1", "kind": "Job"}], "the Job", rules=rules)
    scene = rehearse_manifest(cluster, found, settings)
    (gang,) = scene.gangs
    return ask_gang(gang, state_for([gang], scene.view, scene.snapshot, settings, scene.facts)).found


def rehearse_manifest(cluster: ClusterReading, found: ManifestPods, settings: Settings) -> Rehearsed:
    """The gangs of a manifest among a cluster's running and planned pods; like rehearse.

    Raises PlacementError.
    """
    made = found.gangs()
    pods = tuple(pod for gang in made for pod in gang.pods)
    fuller = replace(cluster, pods=(*cluster.pods, *pods))
    snapshotter = owners_snapshotter(fuller, settings)
    view, facts = replace(view_of(snapshotter, fuller, settings), now=moment()), facts_of(cluster)
    view, snapshot = plans_checked(view, snapshotter.snapshot, settings, facts)
    return Rehearsed(made, view, snapshot, found.notes, found.admitted, settings, facts)
