"""What `topogate lint` reads from a cluster: its policy, its PriorityClasses, and what its nodes offer."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from webhook.configuration.cluster import read_if_allowed
from webhook.configuration.migrate import load_files
from webhook.configuration.shipped_configuration import shipped_classes, shipped_configuration
from webhook.inquiry.admission_outcome import AdmissionRules
from webhook.inquiry.cluster_state import read_all
from webhook.inquiry.documents import InputError, name_of
from webhook.inquiry.dry_run import DryRun
from webhook.inquiry.lint import ManifestFault, of_nodes
from webhook.inquiry.simulation import NotPlacedError, read_pods
from webhook.kube.client import Api
from webhook.kube.objects import Node, PriorityClass
from webhook.placement import PlacementError, Snapshot
from webhook.policy.values import Policy
from webhook.scheduling.nodes import node_of
from webhook.sweeper.observe.cache import NODES

CLASSES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"


@dataclass(frozen=True)
class ClusterRules:
    """What admission decides from, and the nodes; without a cluster, nodes is empty and dry_run None."""

    rules: AdmissionRules
    nodes: tuple[Node, ...] = ()
    dry_run: DryRun | None = None

    @property
    def notes(self) -> list[str]:
        """Why the cluster could not be asked, if it could not."""
        return list(self.dry_run.notes) if self.dry_run else []

    @classmethod
    def read(cls, api: Api | None, files: Sequence[Path] = ()) -> "ClusterRules":
        """Read the cluster as far as that is allowed, else use the shipped configuration.

        files: of the configuration, instead of the cluster's.

        Raises ConfigurationError, ApiError.
        """
        chosen = load_files(files).policy if files else None
        if api is None:
            return cls(AdmissionRules(chosen or shipped_configuration().policy, shipped_classes()))
        dry_run = DryRun(api)
        return cls(read_rules(api, chosen, dry_run), tuple(read_all(api, NODES, Node)), dry_run)

    def faults(self, documents: Iterable[Mapping[str, Any]], source: str) -> Iterator[ManifestFault]:
        """Requests that no node can meet."""
        snapshot = Snapshot.build(map(node_of, self.nodes), [])
        for document in documents if self.nodes else ():
            where = f"{source}: {document.get('kind')}/{name_of(document)}"
            try:
                gangs = read_pods([dict(document)], source, rules=self.rules).gangs()
                seen = dict.fromkeys(sentence for gang in gangs for sentence in of_nodes(gang, snapshot))
            except (InputError, NotPlacedError, PlacementError):
                continue  # lint reports why
            yield from (ManifestFault(where, sentence) for sentence in seen)


def read_rules(api: Api, policy: Policy | None, dry_run: DryRun) -> AdmissionRules:
    """What the cluster's admission decides from, its own answers first.

    Raises ConfigurationError, ApiError.
    """
    classes = {each.metadata.name: each for each in read_all(api, CLASSES, PriorityClass)}
    return AdmissionRules(policy or _policy_of(api), classes, dry_run)


def _policy_of(api: Api) -> Policy:
    return (read_if_allowed(api) or shipped_configuration()).policy
