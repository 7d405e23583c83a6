"""Go's regular expressions."""

from __future__ import annotations

import contextlib

import pytest

from phalanx.model.text.patterns import PatternError, compile_pattern
from phalanx_local.schema.check import check_schema


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "my-name", "my-name"),
        ("^a$", "a\n", None),
        ("(?m)^b$", "a\nb\nc", "b"),
        ("a.c", "a\nc", None),
        ("(?s)a.c", "a\nc", "a\nc"),
        (r"\d+", "\u0663\u0664", None),
        (r"\w+", "aé", "a"),
        (r"\s", "\v", None),
        (r"\bfoo\b", "éfoo", "foo"),
        (r"\pL+", "1éa", "éa"),
        (r"[^\p{Lu}x]+", "AbX", "b"),
        (r"\p{Greek}+", "aλb", "λ"),
        ("[[:alpha:]_]+", "1a_b", "a_b"),
        ("[[:^alpha:]]", "a1", "1"),
        ("[]a]+", "b]a", "]a"),
        ("[a-]+", "b-a", "-a"),
        (r"[\d-z]+", "-1", "-1"),
        (r"\Qa.b\E+", "xa.bb", "a.bb"),
        (r"\x41\x{1F600}\101", "A\U0001f600A", "A\U0001f600A"),
        (r"a\z", "ba", "a"),
        ("a(?i)b|c", "xC", "C"),
        ("(?i:a)b", "AB", None),
        ("(?U)a+", "aaa", "a"),
        ("(?P<x>a)(?<y>b)", "ab", "ab"),
        ("a{,2}", "a{,2}", "a{,2}"),
        ("a{01}", "a{01}", "a{01}"),
        ("x{2}?", "xxx", "xx"),
        ("", "a", ""),
    ],
)
def test_pattern_matches_where_go_matches(pattern: str, text: str, found: str | None) -> None:
    compiled = compile_pattern(pattern)
    assert compiled.find(text) == found
    assert compiled.found_in(text) is (found is not None)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("(", "missing closing ): `(`"),
        ("a)", "unexpected ): `a)`"),
        ("[a", "missing closing ]: `[a`"),
        ("*a", "missing argument to repetition operator: `*`"),
        ("a|*", "missing argument to repetition operator: `*`"),
        ("a**", "invalid nested repetition operator: `**`"),
        ("x++", "invalid nested repetition operator: `++`"),
        ("a{2}{3}", "invalid nested repetition operator: `{2}{3}`"),
        ("a{1001}", "invalid repeat count: `{1001}`"),
        ("(a{100}){11}", "invalid repeat count: `{11}`"),
        ("a{3,2}", "invalid repeat count: `{3,2}`"),
        ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
        ("(?<!a)", "invalid or unsupported Perl syntax: `(?<`"),
        ("(?z)", "invalid or unsupported Perl syntax: `(?z`"),
        ("(?P<n>a)(?P<n>b)", "invalid named capture: `(?P<n>`"),
        ("(?P<n", "invalid named capture: `(?P<n`"),
        (r"(a)\1", r"invalid escape sequence: `\1`"),
        (r"\Z", r"invalid escape sequence: `\Z`"),
        (r"\8", r"invalid escape sequence: `\8`"),
        ("a\\", "trailing backslash at end of expression: ``"),
        ("[z-a]", "invalid character class range: `z-a`"),
        ("[[:frob:]]", "invalid character class range: `[:frob:]`"),
        (r"\p{Frob}", r"invalid character class range: `\p{Frob}`"),
    ],
)
def test_pattern_refused_by_go_is_refused_in_its_words(pattern: str, words: str) -> None:
    with pytest.raises(PatternError) as caught:
        compile_pattern(pattern)
    assert str(caught.value).startswith(f"error parsing regexp: {words}")


def test_a_schema_with_such_a_pattern_is_refused() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(?!x)"}}}
    (error,) = check_schema(schema)
    assert error.field == "openAPIV3Schema.properties[a].pattern"
    assert "but isn't: error parsing regexp: invalid or unsupported Perl syntax: `(?!`" in error.message


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|a)*$", "(.*)*x", "^(([a-z])+.)+[A-Z]([a-z])+$"])
def test_no_pattern_takes_longer_than_the_text_is_long(pattern: str) -> None:
    assert not compile_pattern(pattern).found_in("a" * 100_000 + "!")


@pytest.mark.parametrize(
    "pattern",
    [
        "(" * 100_000 + ")" * 100_000,
        "a" * 1_000_000,
        "(((a{30}){30}){30})",
        pytest.param("\\pL{900}", marks=pytest.mark.slow),
        "(?:" * 5000,
    ],
)
def test_a_pattern_of_any_size_is_read_or_refused(pattern: str) -> None:
    with contextlib.suppress(PatternError):
        compile_pattern(pattern).found_in("x")
