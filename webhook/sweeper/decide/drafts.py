"""Plans from answers of the placement core: companions, what is kept, whose turn it is."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec.structs import replace

from webhook.kube.objects import Pod
from webhook.placement import Assignment
from webhook.sweeper.decide import plan
from webhook.sweeper.decide.avoided import Avoided
from webhook.sweeper.decide.companions import Beside, beside
from webhook.sweeper.decide.domains import domains_of
from webhook.sweeper.decide.exclusive import closed_to_companions
from webhook.sweeper.decide.holders import Holders, held_off
from webhook.sweeper.decide.orders import NewPlan
from webhook.sweeper.decide.question import GangQuestion
from webhook.sweeper.decide.rounds import Round
from webhook.sweeper.decide.timestamps import Timestamps
from webhook.sweeper.observe.gangs import PodGang
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

    def saw(self, annotations: Iterable[Mapping[str, str]]) -> None:
        """Take in what pods carry, and what plans say of them."""
        self._timestamps.saw(annotations)

    def make(
        self,
        gang: PodGang,
        asked: GangQuestion,
        answer: Assignment,
        companions: Sequence[Pod],
        now: Round,
        *,
        preempts: bool = False,
        unpinned: bool = False,
    ) -> NewPlan:
        """The plan of a gang whose waiting pods found these places; companions: those of them that wait.

        preempts: whether pods of lower priority stand there still. unpinned: whether kube-scheduler chooses.
        """
        others = now.view.placed_on(gang.workers)
        found = self._beside(gang, companions, {**others, **answer.nodes}, asked, answer, now)
        entries = plan.planned_pods(gang, asked, answer, self._timestamps, self._now_ns(), found)
        if unpinned:
            entries = [replace(entry, node="") for entry in entries]
        pods = {**asked.pods, **found.pods}
        first = now.ground.turns.take((pods[entry.uid], entry) for entry in entries)
        nodes = {
            *others.values(),
            *(entry.node for entry in entries if entry.uid in asked.pods and entry.node),
        }
        spread = plan.spread(nodes, now.view.labels_of(nodes), self._settings.topology)
        before = now.view.placements.get(gang.key.placement_key)
        kept = tuple(plan.kept_nodes(asked, answer, before))
        domains = domains_of(gang, {**others, **({} if unpinned else answer.nodes)}, now.view)
        version = now.ground.usage_version
        return NewPlan(
            gang, asked, answer, tuple(entries), first, preempts, version, spread, kept, found, domains,
            len({*others, *asked.pods}),
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
