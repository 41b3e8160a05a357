"""What passes carry out one after the other."""

from types import SimpleNamespace
from typing import Any, cast

from webhook.sweeper.apply.applier import Applier
from webhook.sweeper.apply.evictions import Evictor
from webhook.sweeper.context import Pass, Retries
from webhook.sweeper.decide.backoff import ApplyMemory
from webhook.sweeper.decide.orders import Done, Eviction, Orders
from webhook.sweeper.observe.membership import has_owners
from webhook.sweeper.observe.view import View


class Applies:
    """An applier that is given in each pass what failed in those before."""

    def __init__(self, surroundings: Pass) -> None:
        self.surroundings = surroundings
        self._applier = Applier(surroundings, cast(Any, SimpleNamespace(owners=lambda: has_owners)))
        self.memory = ApplyMemory()

    def apply(self, orders: Orders, view: View) -> Done:
        done, self.memory = self._applier.apply(orders, view, self.memory)
        return done

    def evict(self, orders: list[Eviction], view: View) -> Done:
        """Evictions alone."""
        evictor = Evictor(Retries(self.surroundings, self.memory.deferrals), self.memory.evicting)
        done = Done.together(evictor.evict_all(orders, view))
        deferrals = self.memory.deferrals.after(done.deferred, done.over)
        self.memory = ApplyMemory(deferrals, evictor.time)
        return done

    def close(self) -> None:
        self._applier.close()
