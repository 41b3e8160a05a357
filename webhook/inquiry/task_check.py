"""What is wrong with a GPUTask, reported before it is created: by the cluster's policy, and by its nodes.

As far as the user may read these; otherwise the task reports it later, as its reason.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from webhook.configuration.cluster import read_configuration
from webhook.configuration.document import ConfigurationError
from webhook.inquiry.admission_outcome import AdmissionRules
from webhook.inquiry.lint import lint
from webhook.inquiry.lint_cluster import ClusterRules
from webhook.kube.client import Api, ApiError
from webhook.kube.objects import Metadata, Node, PriorityClass
from webhook.policy.values import Policy
from webhook.sweeper.observe.cache import NODES

MOST_NODES: Final = 500
"""The most nodes that are read; with more, requests that no node can meet are not reported."""


@dataclass(frozen=True)
class TaskCheck:
    """refusal: why the cluster will not run it, in the words of admission. waits: what no node has now."""

    refusal: str = ""
    waits: str = ""


def check_task(api: Api, body: Mapping[str, Any]) -> TaskCheck:
    """Check a task that is about to be created."""
    try:
        policy = read_configuration(api).policy
    except (ApiError, ConfigurationError):
        return TaskCheck()
    rules = _rules(policy)
    if faults := lint([body], "", rules):
        return TaskCheck(refusal=faults[0].sentence.removeprefix(f"{body['metadata']['name']}: "))
    missing = ClusterRules(rules, _nodes(api)).faults([body], "")
    return TaskCheck(waits="; ".join(fault.sentence for fault in missing))


def _rules(policy: Policy) -> AdmissionRules:
    """Not every user may read whether the classes exist: here they do."""
    classes = {each.priority_class_name: PriorityClass(metadata=Metadata()) for each in policy.tiers}
    return AdmissionRules(policy, classes)


def _nodes(api: Api) -> tuple[Node, ...]:
    """All nodes, or none if they are too many or may not be read."""
    try:
        listed = api.json("GET", NODES, query={"limit": str(MOST_NODES)})
    except ApiError:
        return ()
    is_all = not (listed.get("metadata") or {}).get("continue")
    return tuple(msgspec.convert(listed["items"], list[Node])) if is_all else ()
