"""Kubernetes quantities: grammar, exact amounts, rounding, canonical spelling."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.model.resources import parse_amount
from phalanx.model.text.quantity import (
    MAX_AMOUNT,
    Quantity,
    QuantityError,
    canonical_quantity,
    exact_quantity,
    format_alike,
    format_quantity,
    parse_quantity,
    read_quantity,
)

NANO = 10**9


@pytest.mark.parametrize(
    ("text", "amount", "canonical"),
    [
        ("0", 0, "0"),
        ("1", 1, "1"),
        ("-1", -1, "-1"),
        ("+1", 1, "1"),
        ("100m", Fraction(1, 10), "100m"),
        ("1000m", 1, "1"),
        ("1500m", Fraction(3, 2), "1500m"),
        ("0.5", Fraction(1, 2), "500m"),
        (".5", Fraction(1, 2), "500m"),
        ("1.", 1, "1"),
        ("1u", Fraction(1, 10**6), "1u"),
        ("1n", Fraction(1, 10**9), "1n"),
        ("1k", 1000, "1k"),
        ("1000k", 10**6, "1M"),
        ("2M", 2 * 10**6, "2M"),
        ("3G", 3 * 10**9, "3G"),
        ("4T", 4 * 10**12, "4T"),
        ("5P", 5 * 10**15, "5P"),
        ("6E", 6 * 10**18, "6E"),
        ("1Ki", 1024, "1Ki"),
        ("1024Mi", 2**30, "1Gi"),
        ("1.5Gi", 3 * 2**29, "1536Mi"),
        ("0.5Ki", 512, "512"),
        ("1Ei", 2**60, "1Ei"),
        ("1e3", 1000, "1e3"),
        ("1E3", 1000, "1e3"),
        ("12e-1", Fraction(12, 10), "1200e-3"),
        ("1.1Gi", Fraction(11 * 2**30, 10), "1181116006400m"),
        # amounts finer than a nano are rounded away from zero
        ("0.1n", Fraction(1, 10**9), "1n"),
        ("-0.1n", Fraction(-1, 10**9), "-1n"),
        # binary amounts end at 2^63-1, decimal ones do not
        ("8Ei", 2**63 - 1, "9223372036854775807"),
        ("20E", 20 * 10**18, "20E"),
    ],
)
def test_amounts_are_exact_and_spelled_canonically(text: str, amount: Fraction | int, canonical: str) -> None:
    quantity = read_quantity(text)
    assert Fraction(quantity.nano, NANO) == amount
    assert str(quantity) == canonical


@pytest.mark.parametrize("text", ["", "abc", "1 Gi", "1_0", "1.1.1", "0x10", "1Gi!", "½"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(QuantityError) as caught:
        read_quantity(text)
    assert caught.value.reason.startswith("quantities must match the regular expression")


@pytest.mark.parametrize("text", ["1K", "1ki", "1Kii", "1e", "1eM", "1Mk", "1+1", "--1"])
def test_other_suffixes_are_refused(text: str) -> None:
    with pytest.raises(QuantityError):
        read_quantity(text)


@pytest.mark.parametrize("value", [None, True, [], {}])
def test_only_strings_and_numbers_are_quantities(value: object) -> None:
    with pytest.raises(QuantityError):
        read_quantity(value)


def test_json_numbers_are_quantities() -> None:
    assert read_quantity(2) == read_quantity("2")
    assert read_quantity(0.5) == read_quantity("500m")


@pytest.mark.parametrize(
    ("text", "whole", "milli"),
    [("1", 1, 1000), ("1500m", 2, 1500), ("1m", 1, 1), ("1n", 1, 1), ("-1500m", -2, -1500), ("0", 0, 0)],
)
def test_rounding_goes_up(text: str, whole: int, milli: int) -> None:
    assert (parse_quantity(text), parse_quantity(text, 1000)) == (whole, milli)


def test_space_around_a_text_is_ignored_in_json_only() -> None:
    assert read_quantity(" 1Gi ") == read_quantity("1Gi")
    with pytest.raises(QuantityError):
        exact_quantity(" 1Gi ")


def test_amounts_are_compared_whatever_their_spelling() -> None:
    assert read_quantity("1Gi") == read_quantity("1024Mi") == read_quantity("1073741824")
    assert read_quantity("1G") < read_quantity("1Gi")
    assert hash(read_quantity("1e3")) == hash(read_quantity("1k"))


def test_absurd_exponent_is_read_in_bounded_time() -> None:
    assert read_quantity("1e999999999") > read_quantity("1E")
    assert read_quantity("1e-999999999").nano == 1


@given(st.integers(-(10**30), 10**30), st.sampled_from(["binary", "decimal", "exponent"]))
def test_canonical_spelling_reads_back_as_the_same_amount(nano: int, style: str) -> None:
    limit = (2**63 - 1) * NANO
    if style == "binary":
        nano = max(-limit, min(limit, nano))
    quantity = Quantity(nano, style)  # type: ignore[arg-type]
    again = read_quantity(str(quantity))
    assert again == quantity
    # A binary amount that no binary suffix fits is spelled as a plain number, which then counts as decimal.
    if style != "binary" or str(quantity).endswith("i"):
        assert str(again) == str(quantity)


@pytest.mark.parametrize(
    ("resource", "text", "told"),
    [
        ("cpu", "0", "0"),
        ("cpu", "500m", "500m"),
        ("cpu", "64", "64"),
        ("cpu", "123456789123", "123456789123"),
        ("cpu", "1234567891234", "1.2e12"),
        ("cpu", "1999999999999", "1.9e12"),  # clamped: not more than the maximum
        ("cpu", "1e18", "9e12+"),
        ("cpu", "1" + 59 * "0", "9e12+"),
        ("memory", "0", "0"),
        ("memory", "4Gi", "4Gi"),
        ("memory", "12345Mi", "12.1Gi"),
        ("memory", "1e30", "8Pi+"),
        ("hugepages-2Mi", "1e30", "8Pi+"),
        ("nvidia.com/gpu", "8", "8"),
        ("nvidia.com/gpu", "999999999999999", "999999999999999"),
        ("nvidia.com/gpu", "1e15", "1e15"),
        ("nvidia.com/gpu", "1e60", "9e15+"),
    ],
)
def test_amounts_for_users_have_no_rows_of_digits(resource: str, text: str, told: str) -> None:
    assert format_quantity(parse_amount(resource, text), resource) == told


def test_sums_of_clamped_amounts_are_short_as_well() -> None:
    assert format_quantity(3 * MAX_AMOUNT, "cpu") == "2.7e13+"
    assert format_quantity(3 * MAX_AMOUNT, "memory") == "24Pi"
    assert format_quantity(10**40, "memory") == "8.6e21Ei"
    assert format_quantity(-MAX_AMOUNT, "cpu") == "-9e12"


@given(st.integers(-(10**45), 10**45), st.sampled_from(["cpu", "memory", "pods"]))
def test_long_amounts_are_short_for_users_and_complete_for_programs(amount: int, resource: str) -> None:
    assert len(format_quantity(amount, resource)) <= 18
    exact = read_quantity(canonical_quantity(amount, resource)).nano
    capped = abs(amount) > 2**63
    assert capped or exact == amount * (10**6 if resource == "cpu" else NANO)


@pytest.mark.parametrize(
    ("resource", "amounts", "texts"),
    [
        ("cpu", (120_000, 72_800), ["120", "72.8"]),
        ("cpu", (1_500, 250), ["1.5", "0.25"]),
        ("cpu", (2_000, 500), ["2", "0.5"]),
        ("cpu", (100, 250), ["100m", "250m"]),
        ("cpu", (1_001, 0), ["1.001", "0"]),
        ("memory", (2**30, 2**20), ["1Gi", "1Mi"]),
        ("nvidia.com/gpu", (3, 8), ["3", "8"]),
    ],
)
def test_amounts_of_one_sentence_have_one_unit(resource: str, amounts: tuple[int, ...], texts: list[str]) -> None:
    assert format_alike(resource, *amounts) == texts
