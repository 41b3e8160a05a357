"""Where the other replicas of an owner are, for a pod that is to be spread and is a gang of its own. Pure.

The pods of a Deployment do not wait for one another, so each is placed alone, beside those that have a node
by then. Its owner is the ReplicaSet: in a rolling update the pods of each revision are spread by themselves.
"""

from collections.abc import Iterable
from dataclasses import replace

from webhook.sweeper.decide.orders import NewPlan
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.view import View


def beside_replicas(gang: PodGang, view: View, plans: Iterable[NewPlan]) -> PodGang:
    """The gang with the nodes of the other pods of its owner, see Spread.peers. plans: made in this pass."""
    maker = gang.maker
    if gang.spread is None or maker == gang.key:
        return gang
    own = {pod.metadata.uid for pod in gang.pods}
    there = view.spread_replicas.get(maker, {})
    nodes = [node for uid, node in there.items() if uid not in own]
    for plan in plans:
        if plan.gang.spread is not None and plan.gang.maker == maker:
            nodes += [entry.node for entry in plan.entries if entry.node]
    return replace(gang, spread=replace(gang.spread, peers=tuple(sorted(nodes))))
