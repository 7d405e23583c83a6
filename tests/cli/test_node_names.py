"""Node lists as Slurm writes them."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.cli.listing.node_names import compress, expand


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([f"gpu-{number:02}" for number in range(1, 17)], "gpu-[01-16]"),
        (["gpu-1", "gpu-2", "gpu-3", "gpu-7", "gpu-10"], "gpu-[1-3,7,10]"),
        (["gpu-8", "gpu-9", "gpu-10", "gpu-11"], "gpu-[8-11]"),
        (["gpu-09", "gpu-10", "gpu-011"], "gpu-[09-10],gpu-011"),
        (["login", "gpu-1", "gpu-2"], "gpu-[1-2],login"),
        (["gpu-1"], "gpu-1"),
        (["rack1-n1", "rack1-n2", "rack2-n1", "rack2-n2"], "rack1-n[1-2],rack2-n[1-2]"),
        (["n1.cluster7", "n2.cluster7", "n3.cluster7"], "n[1-3].cluster7"),
        (["ip-10-0-3-4", "ip-10-0-3-5"], "ip-10-0-3-[4-5]"),
        ([], ""),
        (["a,b", "c"], '"a,b",c'),
    ],
)
def test_neighbours_become_a_range(names: list[str], text: str) -> None:
    shuffled = random.Random(7).sample(names, len(names))
    assert compress(shuffled) == text
    assert sorted(expand(text)) == sorted(names)


_WORDS = st.lists(
    st.one_of(
        st.integers(0, 200).map(str),
        st.integers(0, 120).map(lambda number: f"{number:03}"),
        st.sampled_from(["gpu-", "rack", ".", "-", "n"]),
        st.text('abn-.[],"\\019 \n', min_size=1, max_size=3),
    ),
    min_size=1,
    max_size=4,
).map("".join)


@given(st.lists(_WORDS, max_size=30))
def test_compressed_names_expand_to_the_same_names(names: list[str]) -> None:
    found = expand(compress(names))
    assert sorted(found) == sorted(set(names))


@given(st.text(max_size=30))
def test_any_text_is_a_list_or_refused(text: str) -> None:
    try:
        found = expand(text)
    except ValueError:
        return
    assert all(found) or '""' in text


@pytest.mark.parametrize("text", ["a[1-2", "a[1-2]]", "a[x]", "a[3-1]", "a[1-999999999]", "a[]"])
def test_malformed_list_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"range|brackets"):
        expand(text)


def test_a_large_cluster_is_quick_and_short() -> None:
    names = [f"rack{rack:03}-gpu{number:02}" for rack in range(300) for number in range(20)]
    assert compress(names).count("[") == 20
    assert sorted(expand(compress(names))) == sorted(names)
