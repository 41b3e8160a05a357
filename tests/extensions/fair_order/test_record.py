"""What is written down of use: read as it was written, bounded, and never believed blindly."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.extensions.fair_order.account_use import MOST_BYTES, RecordError, Use, decode, encode
from webhook.policy.fair import FairOrder

NAMES = st.text(min_size=1, max_size=20)
AMOUNTS = st.integers(0, 10**12).map(lambda tenths: tenths / 10)


@given(st.dictionaries(NAMES, st.dictionaries(NAMES, AMOUNTS, min_size=1), max_size=8))
def test_it_is_read_as_it_was_written(use: Use) -> None:
    fair = FairOrder(weights={"a": 2.5}, model_costs={"H100": 4.0})
    rates = {account: {"H100": 8} for account in use}
    record = decode(encode(use, 1_800_000_000.0, fair, rates))
    assert (record.at, record.use, record.rates) == (1_800_000_000.0, use, rates)
    assert record.fair.model_costs == {"H100": 4.0}
    assert {account: record.fair.weight(account) for account in use} == {
        account: 2.5 if account == "a" else 1.0 for account in use
    }


@pytest.mark.promise("O79")
def test_however_many_accounts_there_are_it_fits_and_those_that_used_least_are_left_out() -> None:
    use: Use = {f"{number:05}-{'x' * 57}": {"m" * 60: float(number)} for number in range(20_000)}
    text = encode(use, 0.0, FairOrder())
    stored = decode(text).use
    assert len(text) <= MOST_BYTES
    assert 1000 < len(stored) < len(use)
    assert min(float(name[:5]) for name in stored) == len(use) - len(stored)


GOOD: dict[str, Any] = json.loads(encode({"a": {"m": 1.0}}, 0.0, FairOrder()))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "[" * 100_000,
        json.dumps({**GOOD, "version": 2}),
        json.dumps({**GOOD, "at": "yesterday"}),
        json.dumps({**GOOD, "accounts": {"a": 1}}),
        *(
            json.dumps({**GOOD, "accounts": {"a": {"weight": 1, "gpuSeconds": {"m": value}}}})
            for value in (-1, float("nan"), float("inf"), 1e300, True, "9", None)
        ),
        json.dumps({**GOOD, "accounts": {"a": {"weight": 0, "gpuSeconds": {}}}}),
    ],
)
def test_what_nobody_of_us_wrote_is_refused(text: str) -> None:
    with pytest.raises(RecordError):
        decode(text)
