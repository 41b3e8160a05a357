"""What `topogate lint` reads from a cluster: its policy, its PriorityClasses, and what its nodes offer."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from webhook.inquiry.admitted import AdmissionRules
from webhook.inquiry.dry_run import DryRun
from webhook.inquiry.lint import ManifestFault, of_nodes
from webhook.inquiry.manifest import name_of
from webhook.inquiry.members import InputError
from webhook.inquiry.reading import read_all
from webhook.inquiry.simulation import NotPlacedError, read_pods
from webhook.kube.client import Api, ApiError
from webhook.kube.objects import Node, PriorityClass
from webhook.placement import PlacementError, Snapshot
from webhook.policy.file import load_policy, parse_policy
from webhook.policy.shipped import shipped_classes, shipped_policy
from webhook.policy.values import Policy
from webhook.scheduling.nodes import node_of
from webhook.sweeper.observe.cache import NODES

POLICY: Final = "/api/v1/namespaces/topogate-system/configmaps/topogate-policy"
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
    def read(cls, api: Api | None, policy: Path | None) -> "ClusterRules":
        """Read the cluster as far as that is allowed, else use the shipped policy.

        Raises PolicyError, ApiError.
        """
        chosen = load_policy(policy) if policy else None
        if api is None:
            return cls(AdmissionRules(chosen or shipped_policy(), shipped_classes()))
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
    """What the cluster's admission decides from, its own answers first. Raises PolicyError, ApiError."""
    classes = {each.metadata.name: each for each in read_all(api, CLASSES, PriorityClass)}
    return AdmissionRules(policy or read_policy(api) or shipped_policy(), classes, dry_run)


def read_policy(api: Api) -> Any:
    """The cluster's policy, None if it may not be read or does not exist. Raises PolicyError, ApiError."""
    try:
        return parse_policy(api.json("GET", POLICY)["data"]["policy.yaml"], "the cluster's policy")
    except ApiError as error:
        if error.status not in (401, 403, 404):
            raise
        return None
