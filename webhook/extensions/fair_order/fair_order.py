"""Among gangs of one priority, who has used less of late comes first: the extension."""

from typing import Final

from webhook.extensions.fair_order.explain_order import explain
from webhook.extensions.fair_order.order import DUE, USED, FairMemory, after_pass, order_gangs
from webhook.extensions.fair_order.record import NAME
from webhook.sweeper.extension import Extension, RecordSpec
from webhook.sweeper.metrics import GaugeSpec

WRITTEN: Final = GaugeSpec(
    "topogate_fair_use_written_timestamp_seconds",
    "When this process last saved the use, 0 if it has not; with a fair order alone.",
)

FAIR_ORDER: Final = Extension(
    "fair_order",
    memory=FairMemory(),
    record=RecordSpec(NAME, written=WRITTEN),
    gauges=(USED, DUE),
    order_gangs=order_gangs,
    after_pass=after_pass,
    explain=explain,
)
