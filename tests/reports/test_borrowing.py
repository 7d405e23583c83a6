"""Lenders and borrowers of each loan."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from phalanx.reports.borrowing import MOST_PARTNERS, Borrower, borrowed_and_lent

AMOUNT = st.integers(0, 50)
PARTIES = st.lists(st.tuples(AMOUNT, AMOUNT, AMOUNT), max_size=12).map(
    lambda rows: [
        Borrower(f"p{place:02}", {"gpu": own}, {"gpu": used}, {"gpu": min(own, kept)})
        for place, (own, used, kept) in enumerate(rows)
    ]
)


@given(PARTIES, st.integers(0, 300))
def test_lent_amounts_never_exceed_borrowed_or_unused_amounts(parties: list[Borrower], total: int) -> None:
    found = borrowed_and_lent(parties, {"gpu": total})
    assert sum(loan.lent.get("gpu", 0) for loan in found.values()) <= sum(
        loan.borrowed.get("gpu", 0) for loan in found.values()
    )
    for party in parties:
        loan = found[party.name]
        own, used, kept = (each.get("gpu", 0) for each in (party.own, party.used, party.kept))
        assert loan.borrowed.get("gpu", 0) == max(0, used - own)
        assert loan.lent.get("gpu", 0) <= max(0, own - max(used, kept))
        assert party.name not in loan.partners


@given(PARTIES)
def test_no_queue_lends_where_all_unused_amounts_are_free(parties: list[Borrower]) -> None:
    free = sum(max(0, party.own["gpu"] - party.used["gpu"]) for party in parties)
    total = free + sum(party.used["gpu"] for party in parties)
    assert all(not loan.lent for loan in borrowed_and_lent(parties, {"gpu": total}).values())


@given(PARTIES)
def test_where_nothing_is_free_all_that_is_unused_is_lent_as_far_as_it_is_borrowed(parties: list[Borrower]) -> None:
    found = borrowed_and_lent(parties, {"gpu": sum(party.used["gpu"] for party in parties)})
    unused = sum(max(0, party.own["gpu"] - max(party.used["gpu"], party.kept["gpu"])) for party in parties)
    borrowed = sum(loan.borrowed.get("gpu", 0) for loan in found.values())
    assert sum(loan.lent.get("gpu", 0) for loan in found.values()) == min(unused, borrowed)


def test_two_lenders_share_a_loan_in_proportion_to_their_unused_amounts() -> None:
    parties = [
        Borrower("a", {"gpu": 2}, {"gpu": 8}),
        Borrower("b", {"gpu": 6}, {}),
        Borrower("c", {"gpu": 3}, {}),
    ]
    found = borrowed_and_lent(parties, {"gpu": 11})
    assert (found["b"].lent, found["c"].lent) == ({"gpu": 4}, {"gpu": 2})
    assert found["a"].partners == ("b", "c")


def test_largest_of_many_partners_are_named_and_the_remaining_counted() -> None:
    lenders = [Borrower(f"l{number:02}", {"gpu": number}, {}) for number in range(1, 13)]
    found = borrowed_and_lent([Borrower("a", {}, {"gpu": 78}), *lenders], {"gpu": 78})
    assert found["a"].partners == tuple(f"l{number:02}" for number in range(12, 12 - MOST_PARTNERS, -1))
    assert found["a"].further == 12 - MOST_PARTNERS
