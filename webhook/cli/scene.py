"""What the map and the list of gangs are read from: one picture, drawn as the page draws it."""

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

from webhook.cli import session

if TYPE_CHECKING:
    from webhook.configuration.file import Configuration
    from webhook.inquiry.cluster_state import ClusterReading
    from webhook.kube.client import Api
    from webhook.ui.live import Scene


def scene(api: "Api", configuration: "Configuration") -> "Scene":
    """The cluster, read once. Raises ApiError."""
    from webhook.inquiry.cluster_state import ClusterReading

    return scene_of(ClusterReading.read(api), configuration)


def scene_of(cluster: "ClusterReading", configuration: "Configuration") -> "Scene":
    """What was read of the cluster, drawn."""
    from webhook.ui.live import Artist

    return Artist(cluster, configuration.settings, configuration.counting).scene()


def configuration_of(options: argparse.Namespace, api: "Api") -> "Configuration":
    """The configuration of --config, else the cluster's, else the defaults.

    Raises session.MistakeError, session.SessionError and ApiError.
    """
    from webhook.configuration.file import Configuration

    return session.known_configuration(options, api) or Configuration()


def of_selected(cluster: "ClusterReading", api: "Api", options: argparse.Namespace) -> "ClusterReading":
    """The cluster with only the nodes that --selector selects. Raises ApiError."""
    chosen = session.names_of(api, "/api/v1/nodes", options)
    if chosen is None:
        return cluster
    names = {name for _, name in chosen}
    return replace(cluster, nodes={name: node for name, node in cluster.nodes.items() if name in names})
