"""Plans from answers of the placement core: companions, what is kept, whose turn it is."""

import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec.structs import replace

from labeler.contract import annotations, keys
from webhook.kube.objects import Pod
from webhook.kube.placements import VictimGroup
from webhook.kube.planned import PlannedPod
from webhook.placement import Assignment
from webhook.sweeper.decide import plan
from webhook.sweeper.decide.avoided import Avoided
from webhook.sweeper.decide.companions import Beside, beside
from webhook.sweeper.decide.domains import domains_of
from webhook.sweeper.decide.exclusive import closed_to_companions
from webhook.sweeper.decide.holders import Holders, held_off
from webhook.sweeper.decide.orders import NewPlan, Pair
from webhook.sweeper.decide.question import GangQuestion
from webhook.sweeper.decide.rounds import Round
from webhook.sweeper.decide.timestamps import Timestamps
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.view import View
from webhook.sweeper.settings import Settings


class Drafts:
    """Makes plans; what it remembers are the times that cards were handed out by."""

    def __init__(
        self,
        settings: Settings,
        avoided: Avoided,
        holders: Holders,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """now_ns: the time of day, for gas-ts."""
        self._settings = settings
        self._avoided = avoided
        self._holders = holders
        self._now_ns = now_ns
        self._timestamps = Timestamps()

    def saw(self, view: View) -> None:
        """Take in the times that pods carry, and that plans say they will."""
        ours = (pod.metadata.annotations for pod in view.stamped)
        planned = (each.annotations for known in view.placements.values() for each in known.spec.pods)
        self._timestamps.saw(itertools.chain(ours, planned))

    def stamped(self, pairs: Iterable[Pair], view: View) -> tuple[Pair, ...]:
        """Pods of earlier plans, with the times at which they are let go now.

        While a plan waited another may have had its turn on the node, and its time is newer than the plan's.
        """
        self.saw(view)
        return tuple((pod, self._stamped(planned)) for pod, planned in pairs)

    def _stamped(self, planned: PlannedPod) -> PlannedPod:
        if not planned.annotations:
            return planned
        stamp = annotations.encode_timestamp(self._timestamps.next(self._now_ns()))
        return replace(planned, annotations=planned.annotations | {keys.GAS_TIMESTAMP_ANNOTATION: stamp})

    def make(
        self,
        gang: PodGang,
        asked: GangQuestion,
        answer: Assignment,
        companions: Sequence[Pod],
        now: Round,
        *,
        victims: Sequence[VictimGroup] | None = None,
        unpinned: bool = False,
    ) -> NewPlan:
        """The plan of a gang whose waiting pods found these places; companions: those of them that wait.

        victims: who is to go for it, None if nobody is in its way. unpinned: whether kube-scheduler chooses.
        """
        others = now.view.placed_on(gang.workers)
        found = self._beside(gang, companions, {**others, **answer.nodes}, asked, answer, now)
        entries = plan.planned_pods(gang, asked, answer, self._timestamps, self._now_ns(), found)
        if unpinned:
            entries = [replace(entry, node="") for entry in entries]
        pods = {**asked.pods, **found.pods}
        first: tuple[Pair, ...] = ()
        if victims:  # it is released once these have gone, see preempting
            now.ground.turns.plans(entries)
        else:
            first = now.ground.turns.take((pods[entry.uid], entry) for entry in entries)
        nodes = {
            *others.values(),
            *(entry.node for entry in entries if entry.uid in asked.pods and entry.node),
        }
        spread = plan.spread(nodes, now.view.labels_of(nodes), self._settings.topology)
        before = now.view.placements.get(gang.key.placement_key)
        kept = tuple(plan.kept_nodes(asked, answer, before))
        models = {self._settings.counting.model(labels) for labels in now.view.labels_of(nodes).values()}
        avoided = now.shunned.passed_over(nodes, models)
        domains = domains_of(gang, {**others, **({} if unpinned else answer.nodes)}, now.view)
        version = now.ground.usage_version
        return NewPlan(
            gang, asked, answer, tuple(entries), first, victims is not None, version, spread, kept, found,
            domains, len({*others, *asked.pods}), tuple(victims or ()), avoided,
        )  # fmt: skip

    def _beside(
        self,
        gang: PodGang,
        companions: Sequence[Pod],
        others: Mapping[str, str],
        asked: GangQuestion,
        answer: Assignment,
        now: Round,
    ) -> Beside:
        if not companions:
            return Beside()
        view, options = now.view, self._settings.options
        holding = self._holders.before(gang, companions, view, now.rank)
        avoid = self._avoided.of(gang.key, gang.maker) | held_off(holding)
        avoid |= closed_to_companions(gang, others, view, now.plans)
        snapshot = now.snapshot.assume(answer, asked.gang)
        return beside(
            gang, companions, others, snapshot, avoid=avoid, options=options, class_of=view.class_of
        )
