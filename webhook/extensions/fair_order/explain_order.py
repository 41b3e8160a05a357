"""Whose turn it is among all accounts, for whoever may read what each has used. Pure."""

from collections.abc import Iterator
from typing import Final

from webhook.extensions.fair_order.record import KEY, RecordError, decode
from webhook.extensions.fair_order.scores import account_scores
from webhook.extensions.fair_order.sentences import full_position, shares
from webhook.extensions.fair_order.use import window
from webhook.sweeper.extension import ExplainInput
from webhook.sweeper.observe.gangs import PodGang

RECENT_SECONDS: Final = 600.0
"""What was written down of use longer ago than this is of a fair order that is switched off."""


def explain(given: ExplainInput) -> Iterator[str]:
    """A line on the gang's account and on the one whose turn it is, as use was written down last.

    None for whoever may not read that, or the labels of namespaces where accounts go by these.
    """
    try:
        record = decode((given.record or {}).get(KEY, ""))
    except RecordError:
        return  # the rest of the explanation needs none of it
    fair, labels = record.fair, given.namespaces
    if given.now - record.at >= RECENT_SECONDS or (fair.account_label and labels is None):
        return

    def account(each: PodGang) -> str:
        return fair.account(each.key.namespace, (labels or {}).get(each.key.namespace, {}))

    waiting = {account(each) for each in given.gangs if each.priority == given.gang.priority}
    taking_part = {account(each) for each in given.gangs} | record.rates.keys()
    known = account_scores(record.use, record.rates, taking_part, fair)
    half_life = fair.half_life_seconds
    yield full_position(account(given.gang), known, shares(known, taking_part), waiting, window(half_life))
