"""What passes carry out one after the other."""

from types import SimpleNamespace
from typing import Any, cast

from webhook.sweeper.apply.applier import Applier
from webhook.sweeper.context import Pass, Retries
from webhook.sweeper.decide.orders import Done, Orders
from webhook.sweeper.decide.retries import RetryTable
from webhook.sweeper.observe.membership import has_owners
from webhook.sweeper.observe.view import View


class Applies:
    """An applier that is given in each pass what failed in those before."""

    def __init__(self, surroundings: Pass) -> None:
        self.surroundings = surroundings
        self._applier = Applier(surroundings, cast(Any, SimpleNamespace(owners=lambda: has_owners)))
        self.table = RetryTable()

    def apply(self, orders: Orders, view: View) -> Done:
        retries = Retries(self.surroundings, self.table)
        done = self._applier.apply(orders, view, retries)
        self.table = retries.table
        return done

    def close(self) -> None:
        self._applier.close()
