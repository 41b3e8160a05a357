"""Memory: all that the sweeper remembers from pass to pass, as one frozen value.

A pass is given the memory that the one before has left, and leaves another. With an empty one it decides the
same a little later: what must not be lost is in the API server. docs/design/way-of-a-pass.md says of each
field what is lost with it.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace

from webhook.sweeper.decide.backoff import Backoff
from webhook.sweeper.decide.deferrals import ApplyMemory
from webhook.sweeper.decide.manifest_warnings import WarningsOf
from webhook.sweeper.decide.orders import Done
from webhook.sweeper.decide.placing import PlacingMemory
from webhook.sweeper.decide.preempting import VictimsSince
from webhook.sweeper.decide.release_queue import SentReleases
from webhook.sweeper.observe.gangs import GangKey
from webhook.sweeper.observe.view import Moment, View
from webhook.sweeper.repair.broken import BrokenSince
from webhook.sweeper.repair.repair import RepairMemory
from webhook.sweeper.report_memory import ReportMemory


@dataclass(frozen=True)
class Memory:
    """What holds longer than one pass.

    ungated: namespaces that were told of their ungated pods. extensions: by the name of an extension, its own
    frozen memory.
    """

    backoff: Backoff = field(default_factory=Backoff)
    sent: SentReleases = field(default_factory=SentReleases)
    placing: PlacingMemory = field(default_factory=PlacingMemory)
    repairs: RepairMemory = field(default_factory=RepairMemory)
    victims: VictimsSince = field(default_factory=dict)
    broken: BrokenSince = field(default_factory=dict)
    ungated: frozenset[str] = frozenset()
    manifests: WarningsOf = field(default_factory=dict)
    apply: ApplyMemory = field(default_factory=ApplyMemory)
    report: ReportMemory = field(default_factory=ReportMemory)
    extensions: Mapping[str, object] = field(default_factory=dict)

    def seen(self, view: View) -> "Memory":
        """Without what is over by now, or shown by the view."""
        now = view.now.seconds
        return replace(self, backoff=self.backoff.at(now), sent=self.sent.seen(view, now))

    def after(self, done: Done, view: View, now: Moment) -> "Memory":
        """With what became of orders that were given on this view. now: when that was heard."""
        return replace(
            self,
            backoff=self.backoff.after(done, now.seconds),
            sent=self.sent.after(done, view, now.seconds, now.ns),
            repairs=self.repairs.after(done, now.seconds),
        )

    def unplaced(self, gangs: Set[GangKey]) -> "Memory":
        """The plans of these gangs were not written: what was reserved for them still is."""
        ledger = self.placing.ledger.unplaced(gangs)
        return (
            self
            if ledger is self.placing.ledger
            else replace(self, placing=replace(self.placing, ledger=ledger))
        )
