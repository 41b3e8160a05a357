"""Amounts as people write them become quantities that Kubernetes understands as they were meant."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labeler.contract import quantities
from webhook.tasks import spellings
from webhook.tasks.spellings import SpellingError


@pytest.mark.parametrize(
    ("written", "quantity"),
    [
        ("16gi", "16Gi"),
        ("16Gi", "16Gi"),
        ("16GI", "16Gi"),
        ("16gib", "16Gi"),
        ("16GiB", "16Gi"),
        ("16g", "16G"),
        ("16gb", "16G"),
        ("512mi", "512Mi"),
        ("512M", "512M"),
        ("512mb", "512M"),
        ("64k", "64k"),
        ("64KB", "64k"),
        ("64ki", "64Ki"),
        ("1.5ti", "1.5Ti"),
        ("17179869184", "17179869184"),
        (17179869184, "17179869184"),
    ],
)
def test_memory_is_what_its_writer_meant(written: str | int, quantity: str) -> None:
    assert spellings.memory(written) == quantity


@pytest.mark.parametrize("written", ["", "16", 16, "16m", "16 gi", "-1gi", "1e9", "16x", "gi", "16gi "])
def test_memory_that_is_none_is_refused_with_an_example(written: str | int) -> None:
    with pytest.raises(SpellingError, match="write a number with a unit, as 16Gi"):
        spellings.memory(written)


@pytest.mark.parametrize("written", ["8", 8, "0.5", "500m"])
def test_processors_stay_as_they_are(written: str | int) -> None:
    assert spellings.cpu(written) == str(written)


@pytest.mark.parametrize("written", ["", "8 cores", "-1", "1e3", "0.0001", "m"])
def test_processors_that_are_none_are_refused(written: str) -> None:
    with pytest.raises(SpellingError, match="write a number of processors"):
        spellings.cpu(written)


@pytest.mark.parametrize("written", ["0", "", "1.5", "-1", "two", "10000", 0])
def test_a_number_of_gpus_that_is_none_is_refused(written: str | int) -> None:
    with pytest.raises(SpellingError, match="whole number of GPUs"):
        spellings.gpus(written)


@given(st.text(alphabet="0123456789.kKmMgGtTpPiIbBeE- ", max_size=12))
def test_whatever_is_understood_is_a_quantity_above_a_byte_or_zero(written: str) -> None:
    try:
        quantity = spellings.memory(written)
    except SpellingError:
        return
    value = quantities.parse(quantity)
    assert value == 0 or value >= 1000
