"""Whether a gang that is shared among the domains of a label can use fewer domains of the topology. Pure.

A rule on the number of pods leaves each domain a share at least, and no share uses less than the least one
does alone. Where no block lies in two of the label's domains, what the shares use adds up. So down to the
level where each share uses no more than the least one must, no other sharing is better; and below that none
is where the gang could not use less without any rule.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from webhook.placement import Assignment, Budget, Gang, Mode, Options, Snapshot
from webhook.placement.bounds import least_domains
from webhook.sweeper.decide.quotas import least_share

Domains = tuple[int, ...]
"""How many are used of each level, the coarsest first."""


@dataclass(frozen=True)
class Sharing:
    """A gang of pods that are alike, shared. found: the place of each share, of the domains that have one.

    held, skew, floor_is_zero: see quotas.shares; parts: the snapshot by the label's domains.
    """

    gang: Gang
    snapshot: Snapshot
    parts: Mapping[str, Snapshot]
    held: Mapping[str, int]
    skew: int
    floor_is_zero: bool
    found: Mapping[str, Assignment]

    def is_least(self, used: Domains, options: Options, budget: Budget) -> bool:
        """Whether no placement that keeps the rule uses fewer domains of the topology, the coarsest first."""
        gang = self.gang
        if options.mode is not Mode.BEST_FIT or gang.anchors or gang.required_level:
            return False
        blocks = [path for part in self.parts.values() for path in part.blocks]
        if len(set(blocks)) < len(blocks) or not all(each.proven for each in self.found.values()):
            return False
        level = self._first_above(options, budget)
        if level == len(used):
            return True
        without_rule = least_domains(gang, self.snapshot, options, budget) or ()
        return used[level:] == without_rule[level:]

    def _first_above(self, options: Options, budget: Budget) -> int:
        """The first level of which some share uses more domains than the least one does."""
        level = len(next(iter(self.found.values())).objective.domains)
        for value, answer in self.found.items():
            wanted = len(self.gang.members)
            share = least_share(value, self.held, wanted, self.skew, floor_is_zero=self.floor_is_zero)
            used, low = answer.objective.domains, (0,) * level
            if share == len(answer.placed):
                continue
            if share:
                fewer = replace(self.gang, members=self.gang.members[:share])
                low = least_domains(fewer, self.parts[value], options, budget) or ()
            above = (
                number for number in range(level) if low[number : number + 1] != used[number : number + 1]
            )
            level = next(above, level)
        return level
