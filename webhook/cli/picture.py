"""What the map and the list of gangs are read from: one scene of the cluster, drawn as the page draws it."""

import argparse
from typing import TYPE_CHECKING

from webhook.cli import session

if TYPE_CHECKING:
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
    from webhook.ui.files import counting
    from webhook.ui.live import Artist

    return Artist(ClusterReading.read(api), settings, counting(policy)).scene()
