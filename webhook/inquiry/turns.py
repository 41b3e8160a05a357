"""Whose turn it is among all accounts, for whoever may read what each has used. Pure."""

from collections.abc import Iterator, Sequence

from webhook.fairness.record import Record
from webhook.fairness.telling import shares, whole_turn
from webhook.fairness.turns import standings
from webhook.fairness.use import window
from webhook.scheduling.antiaffinity import NamespaceLabels
from webhook.sweeper.observe.gangs import PodGang


def whole_turns(
    record: Record | None, gang: PodGang, gangs: Sequence[PodGang], labels: NamespaceLabels | None
) -> Iterator[str]:
    """A line on the gang's account and on the one whose turn it is, as use was written down last.

    record: None for whoever may not read it, or where there is no fair order. gangs: all that wait. labels:
    of namespaces, None for whoever may not read them: then no account is told where accounts go by these.
    """
    if record is None or (record.fair.account_label and labels is None):
        return
    fair = record.fair

    def account(each: PodGang) -> str:
        return fair.account(each.key.namespace, (labels or {}).get(each.key.namespace, {}))

    rivals = {account(each) for each in gangs if each.priority == gang.priority}
    taking_part = {account(each) for each in gangs} | record.rates.keys()
    known = standings(record.use, record.rates, taking_part, fair)
    half_life = fair.half_life_seconds
    yield whole_turn(account(gang), known, shares(known, taking_part), rivals, window(half_life))
