"""What the map and the list of gangs are read from: one picture, drawn as the page draws it."""

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

from webhook.cli import session

if TYPE_CHECKING:
    from webhook.inquiry.reading import ClusterReading
    from webhook.kube.client import Api
    from webhook.policy.values import Policy
    from webhook.sweeper.settings import Settings
    from webhook.ui.live import Scene


def files(options: argparse.Namespace) -> "tuple[Settings, Policy]":
    """The operator's files that the options name. Raises session.MistakeError."""
    from webhook.ui.files import FilesError, read_files

    try:
        return read_files(options.config, options.policy)
    except FilesError as error:
        raise session.MistakeError(str(error)) from None


def scene(api: "Api", settings: "Settings", policy: "Policy") -> "Scene":
    """The cluster, read once. Raises ApiError."""
    from webhook.inquiry.reading import ClusterReading

    return scene_of(ClusterReading.read(api), settings, policy)


def scene_of(cluster: "ClusterReading", settings: "Settings", policy: "Policy") -> "Scene":
    """What was read of the cluster, drawn."""
    from webhook.ui.files import counting
    from webhook.ui.live import Artist

    return Artist(cluster, settings, counting(policy)).scene()


def of_selected(cluster: "ClusterReading", api: "Api", options: argparse.Namespace) -> "ClusterReading":
    """The cluster with only the nodes that --selector selects. Raises ApiError."""
    chosen = session.names_of(api, "/api/v1/nodes", options)
    if chosen is None:
        return cluster
    names = {name for _, name in chosen}
    return replace(cluster, nodes={name: node for name, node in cluster.nodes.items() if name in names})
