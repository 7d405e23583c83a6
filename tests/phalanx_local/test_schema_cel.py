"""The expression language of validation rules."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx_local.schema.cel import BudgetError, CompileError, EvalError, Type, compile_text
from phalanx_local.schema.cel.types import DYN, INT, STRING

OBJECT = Type(
    "object",
    fields={
        "n": ("n", INT),
        "s": ("s", STRING),
        "l": ("l", Type("list", INT)),
        "m": ("m", Type("map", STRING)),
        "o": ("o", Type("object", fields={"x": ("x", INT)})),
    },
)


def evaluate(source: str, **variables: Any) -> Any:
    return compile_text(source, dict.fromkeys(variables, DYN)).run(variables)


TRUE = [
    # arithmetic and its corners
    "1 + 2 * 3 == 7",
    "(1 + 2) * 3 == 9",
    "7 / 2 == 3",
    "-7 / 2 == -3",
    "-7 % 3 == -1",
    "7 % -3 == 1",
    "2u + 3u == 5u",
    "1.5 + 1.5 == 3.0",
    "dyn(1) == 1.0 && dyn(1u) == 1 && 2 > 1.5 && dyn(2) == 2u",
    "0x1F == 31",
    "1e3 == 1000.0",
    "-(-3) == 3",
    # Logical operators absorb an error, on either side
    "true || 1 / 0 == 1",
    "1 / 0 == 1 || true",
    "!(false && 1 / 0 == 1)",
    "!(1 / 0 == 1 && false)",
    "false ? 1 / 0 == 1 : true",
    # strings
    "'a' + 'b' == \"ab\"",
    "'abc'.size() == 3 && size('aé') == 2",
    "'abc'.startsWith('a') && 'abc'.endsWith('c') && 'abc'.contains('b')",
    "'abc'.matches('^a.c$') && 'xabcx'.matches('abc') && !'ab'.matches('^b')",
    "'a,b,c'.split(',') == ['a', 'b', 'c'] && 'a,b,c'.split(',', 2) == ['a', 'b,c']",
    "['a', 'b'].join('-') == 'a-b' && ['a', 'b'].join() == 'ab'",
    "'abcabc'.replace('b', 'x') == 'axcaxc' && 'abcabc'.replace('b', 'x', 1) == 'axcabc'",
    "'abc'.substring(1) == 'bc' && 'abc'.substring(0, 1) == 'a' && 'abc'.charAt(3) == ''",
    "'abcb'.indexOf('b') == 1 && 'abcb'.lastIndexOf('b') == 3 && 'abc'.indexOf('z') == -1",
    "'ÄbC'.lowerAscii() == 'Äbc' && 'abC'.upperAscii() == 'ABC' && ' a '.trim() == 'a'",
    "'a1b22'.find('[0-9]+') == '1' && 'a1b22'.findAll('[0-9]+') == ['1', '22']",
    "'%s has %s'.format(['a', 'b']) == 'a has b' && '%d%%'.format([5]) == '5%' && '%.2f'.format([1.5]) == '1.50'",
    "'%s'.format([[1, 2]]) == '[1, 2]' && '%x'.format([255]) == 'ff' && '%b'.format([5]) == '101'",
    r"'\x41\u0042\n'.size() == 3 && r'\d' == '\\d'",
    "'''it's''' == 'it\\'s'",
    " && ".join(["true"] * 500),
    "b'a\\xff'.size() == 2 && bytes('a') == b'a' && string(b'a') == 'a'",
    # lists and maps
    "[1, 2, 3][1] == 2 && [1, 2] + [3] == [1, 2, 3]",
    "2 in [1, 2] && !(5 in [1, 2]) && 'a' in {'a': 1}",
    "{'a': 1}.a == 1 && {'a': 1}['a'] == 1 && size({'a': 1}) == 1",
    "{1: 'x'}[1] == 'x'",
    "[1, 2, 3].all(x, x > 0) && ![1, 2].all(x, x > 1) && [].all(x, x == 1)",
    "[1, 2].exists(x, x == 2) && ![1].exists(x, x == 2)",
    "[1, 2, 2].exists_one(x, x == 1) && ![1, 2, 2].exists_one(x, x == 2)",
    "[1, 2].map(x, x * 2) == [2, 4] && [1, 2].map(x, x > 1, x * 2) == [4]",
    "[1, 2, 3].filter(x, x > 1) == [2, 3]",
    "{'a': 1, 'b': 2}.all(k, k in ['a', 'b']) && {'a': 1}.exists(k, k == 'a')",
    "{'a': 1}.all(k, v, v == 1) && [5, 6].all(i, v, v == i + 5) && [1].exists(i, v, i == 0 && v == 1)",
    "[1, 2].transformList(i, v, i + v) == [1, 3] && {'a': 1}.transformMap(k, v, v + 1) == {'a': 2}",
    "[1, 2].transformMapEntry(i, v, {string(v): i}) == {'1': 0, '2': 1}",
    "[[1], [2]].all(x, x.all(y, y > 0))",
    "[1, 2].map(x, [3].map(y, x + y)) == [[4], [5]]",
    "[3, 1, 2].sort() == [1, 2, 3] && [1, 2].isSorted() && ![2, 1].isSorted()",
    "[1, 2].sum() == 3 && [1, 3].max() == 3 && [1, 3].min() == 1 && [1, 2, 2].lastIndexOf(2) == 2",
    "[1, 2, 3].slice(1, 2) == [2] && [1, 1].distinct() == [1] && [[1], [2]].flatten() == [1, 2]",
    "sets.contains([1, 2], [2]) && sets.equivalent([1, 2], [2, 1, 1]) && sets.intersects([1], [1, 2])",
    # presence and optionals
    "has({'a': 1}.a) && !has({'a': 1}.b)",
    "optional.of(1).hasValue() && !optional.none().hasValue()",
    "{'a': 1}.?a.orValue(5) == 1 && {'a': 1}.?b.orValue(5) == 5 && {'a': 1}[?'b'].orValue(2) == 2",
    "{'a': {'b': 1}}.?a.?b.orValue(0) == 1 && dyn({'a': 1}).?x.?y.orValue(7) == 7",
    "[1, ?optional.none(), ?optional.of(2)] == [1, 2] && {?'a': optional.none()} == {}",
    "optional.of(2).optMap(x, x * 2).value() == 4 && optional.none().or(optional.of(3)).value() == 3",
    "optional.ofNonZeroValue('').hasValue() == false",
    # conversions and types
    "int('12') == 12 && int(3.9) == 3 && int(-3.9) == -3 && double('1.5') == 1.5 && string(12) == '12'",
    "string(1.0) == '1' && string(true) == 'true' && uint(3) == 3u && bool('true')",
    "type(1) == int && type('a') == string && type([1]) == list && type(null) == null_type",
    "dyn(1) == 1 && type(duration('1s')) == google.protobuf.Duration",
    # time
    "duration('1h30m') == duration('90m') && duration('1.5s') > duration('1s')",
    "timestamp('2026-01-02T03:04:05Z').getFullYear() == 2026 && timestamp('2026-01-02T00:00:00Z').getMonth() == 0",
    "timestamp('2026-01-01T00:00:00Z') + duration('24h') == timestamp('2026-01-02T00:00:00Z')",
    "timestamp('2026-01-01T00:00:00Z').getHours('+02:00') == 2 && duration('90m').getHours() == 1",
    "timestamp('2026-01-04T00:00:00Z').getDayOfWeek() == 0",
    "string(duration('90s')) == '90s' && string(timestamp('2026-01-01T00:00:00.5Z')) == '2026-01-01T00:00:00.5Z'",
    # the libraries of Kubernetes
    "quantity('1Gi').compareTo(quantity('1024Mi')) == 0 && quantity('1').isGreaterThan(quantity('900m'))",
    "isQuantity('10k') && !isQuantity('200K') && quantity('50k').add(quantity('20k')) == quantity('70k')",
    "quantity('50k').asInteger() == 50000 && !quantity('1m').isInteger() && sign(quantity('-1')) == -1",
    "quantity('50k').sub(20000) == quantity('30k') && quantity('500m').asApproximateFloat() == 0.5",
    "isURL('https://example.com:80/a?b=c') && url('https://example.com:80/a').getHostname() == 'example.com'",
    "url('https://example.com:80/a?b=c').getPort() == '80' && url('/a').getScheme() == '' && !isURL('a b')",
    "isIP('10.0.0.1') && !isIP('10.0.0') && ip('127.0.0.1').isLoopback() && ip('::1').family() == 6",
    "isCIDR('10.0.0.0/8') && cidr('10.0.0.0/8').containsIP('10.1.2.3') && cidr('10.0.0.0/8').prefixLength() == 8",
    "cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && !cidr('10.0.0.0/8').containsIP(ip('11.0.0.1'))",
    "semver('1.2.3').isLessThan(semver('1.10.0')) && semver('1.0.0-rc.1').isLessThan(semver('1.0.0'))",
    "isSemver('1.0.0') && !isSemver('v1.0') && isSemver('v1.0', true) && semver('v1', true).major() == 1",
    "!format.dns1123Label().validate('abc').hasValue() && format.dns1123Label().validate('A').hasValue()",
    "format.named('uuid').hasValue() && !format.named('frob').hasValue()",
    "[3, 1, 2].sort() == [1, 2, 3] && [3, 1, 2].sortBy(e, -e) == [3, 2, 1]",
    "[{'n': 'b'}, {'n': 'a'}].sortBy(e, e.n) == [{'n': 'a'}, {'n': 'b'}]",
    "[[1], [2, 3]].flatten() == [1, 2, 3] && [[[1]], [[2]]].flatten(2) == [1, 2]",
    "optional.unwrap([optional.of(1), optional.none()]) == [1] && [optional.of('a')].unwrapOpt() == ['a']",
    "['a', ?optional.none(), 'c'] == ['a', 'c'] && {?'k': optional.none(), 'l': 'v'} == {'l': 'v'}",
    "optional.ofNonZeroValue(duration('0s')) == optional.none() && optional.ofNonZeroValue([1]).hasValue()",
    "duration('1h2m3s4ms').getMinutes() == 62 && duration('1h2m3s4ms').getMilliseconds() == 3723004",
    "string(timestamp('2011-08-18T19:03:37.01+01:00')) == '2011-08-18T19:03:37.01+01:00'",
    "timestamp('2011-08-18T19:03:37+01:00') == timestamp('2011-08-18T18:03:37Z')",
    "type(ip('::1')) == net.IP && type(duration('1s')) == google.protobuf.Duration",
    "url('https://u@example.com:80/with space/?a b=c#f').getEscapedPath() == '/with%20space/'",
    "url('https://example.com/?a b=c&d').getQuery() == {'a b': ['c'], 'd': ['']}",
    "!isURL('example.com') && !isURL('http://a:b/') && !isURL('/%zz') && isURL('mailto:a@b') && isURL('/a')",
    "!isCIDR('10.0.0.0/255.0.0.0') && !isCIDR('10.0.0.0/08')",
    # Output of format()
    "'%d %s %f %s'.format([1, 'abc', 1.0, duration('1m')]) == '1 abc 1.000000 60s'",
    "'%s'.format([['a', 2.5, null]]) == '[\"a\", 2.500000, null]' && '%.1f'.format([1234.56]) == '1,234.6'",
    "'%s'.format([{'k': true, 'a': b'x'}]) == '{\"a\":b\"x\", \"k\":true}'",
    "'%e %x %X %b %o'.format([3.14, 'hi', 255, 5, 8]) == '3.140000×10⁰⁰ 6869 FF 101 10'",
    # comments and white space
    "1 == 1 // yes\n && true",
]


@pytest.mark.parametrize("source", TRUE)
def test_holds(source: str) -> None:
    assert evaluate(source) is True


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("9223372036854775807 + 1 > 0", "integer overflow"),
        ("-9223372036854775808 - 1 < 0", "integer overflow"),
        ("1u - 2u == 0u", "unsigned integer overflow"),
        ("1 / 0 == 1", "division by zero"),
        ("1 % 0 == 1", "modulus by zero"),
        ("{'a': 1}.b == 1", "no such key: b"),
        ("{'a': 1}['b'] == 1", "no such key: b"),
        ("[1][1] == 1", "index out of bounds: 1"),
        ("[1][-1] == 1", "index out of bounds: -1"),
        ("int('x') == 1", "invalid syntax"),
        ("quantity('x') == quantity('1')", "quantities must match"),
        ("timestamp('x' + '') == timestamp('y' + '')", "invalid timestamp"),
        ("duration('x' + '') == duration('1s')", "invalid duration"),
        ("optional.none().value() == 1", "optional.none() dereference"),
        ("'abc'.substring(2, 1) == ''", "invalid substring range"),
        ("[].min() == 1", "min called on empty list"),
        ("'a'.matches('(' + '')", "error parsing regexp: missing closing ): `(`"),
        ("dyn(1) + dyn('a') == dyn(2)", "no such overload"),
        ("dyn(1) < dyn('a')", "no such overload"),
        ("dyn('x') && true", "no such overload"),
        ("[1, 2].all(x, 1 / (x - 1) > 0)", "division by zero"),
    ],
)
def test_has_no_value(source: str, words: str) -> None:
    with pytest.raises(EvalError, match=words.replace("(", r"\(").replace(")", r"\)")):
        evaluate(source)


def test_an_element_that_decides_outweighs_elements_without_a_value() -> None:
    assert evaluate("[0, 1].exists(x, 1 / x == 1)") is True
    assert evaluate("[0, 2].all(x, 1 / x == 1)") is False


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("self.zz == 1", "undefined field 'zz'"),
        ("self.o.zz == 1", "undefined field 'zz'"),
        ("self.n.x == 1", "does not support field selection"),
        ("has(self.zz)", "undefined field 'zz'"),
        ("has(self)", r"invalid argument to has\(\) macro"),
        ("self.n == 'a'", "found no matching overload for '_==_' applied to '(int, string)'"),
        ("self.n + 'a' == 'b'", "found no matching overload for '_+_'"),
        ("self.l.all(x, x == 'a')", "found no matching overload for '_==_'"),
        ("self.l.all(x, x + 1)", "expected type 'bool' but found 'int'"),
        ("self.n.all(x, true)", "cannot be range of a comprehension"),
        ("self.l.all(1, true)", "argument must be a simple name"),
        ("self.m[1] == 'a'", "found no matching overload for '_[_]'"),
        ("'a' in self.l", "found no matching overload for '@in'"),
        ("self.s.startsWith(1)", "found no matching overload for 'startsWith' applied to 'string.(int)'"),
        ("other == 1", "undeclared reference to 'other'"),
        ("frob(1)", "undeclared reference to 'frob'"),
        ("self.frob()", "undeclared reference to 'frob'"),
        ("!self.n", "found no matching overload for '!_'"),
        ("self.n && true", "found no matching overload for '_&&_'"),
        ("[1, 'a'] == []", "expected type 'int' but found 'string'"),
        ("[1, dyn(2)] == []", "expected type 'int' but found 'dyn'"),
        ("{'a': 1, 'b': 'x'} == {}", "expected type 'int' but found 'string'"),
        ("1 == 1.0", "found no matching overload for '_==_' applied to '(int, double)'"),
        ("self.s != null", "found no matching overload for '_!=_' applied to '(string, null)'"),
        ("self.o == {'x': 1}", "found no matching overload for '_==_' applied to '(object, map(string, int))'"),
        ("['a'].sum() == 'a'", "found no matching overload for 'sum' applied to 'list(string).()'"),
        ("['a'].indexOf(1) == 0", "found no matching overload for 'indexOf' applied to 'list(string).(int)'"),
        ("sets.contains([1], ['a'])", "found no matching overload for 'sets.contains'"),
        ("self.s.matches(')')", "invalid matches argument"),
        ("duration('1d') == duration('1h')", "invalid duration argument"),
        ("timestamp('1000-00-00T00:00:00Z') < timestamp(0)", "invalid timestamp argument"),
        ("self.s.find(')') == ''", "error parsing regexp: unexpected ): `)`"),
        ("'%d'.format(['a']) == ''", "decimal clause can only be used on integers, was given string"),
        ("'%s %s'.format(['a']) == ''", "index 1 out of range"),
        ("'%s'.format(['a', 'b']) == ''", "too many arguments supplied to string.format (expected 1, got 2)"),
        ("'%j'.format(['a']) == ''", 'unrecognized formatting clause "j"'),
        ("cel.bind(x, 3, x) == 3", "undeclared reference to 'cel'"),
        ("self.true == 1", "mismatched input 'true' expecting IDENTIFIER"),
        ("self.n ==", "Syntax error"),
        ("(self.n == 1", "Syntax error"),
        ("self.n = 1", "token recognition error"),
        ("'abc", "token recognition error"),
        ("package == 1", "reserved identifier: package"),
        ("99999999999999999999 == 1", "invalid int literal"),
        ("'\\q' == ''", "invalid escape sequence"),
        ("(" * 300 + "1" + ")" * 300, "recursion limit"),
    ],
)
def test_is_refused_before_it_runs(source: str, words: str) -> None:
    with pytest.raises(CompileError) as caught:
        compile_text(source, {"self": OBJECT})
    assert words.replace("\\", "") in caught.value.message


def test_the_place_of_a_mistake_is_shown() -> None:
    source = "self.n == 1 &&\n  self.oops == 2"
    with pytest.raises(CompileError) as caught:
        compile_text(source, {"self": OBJECT})
    assert caught.value.shown(source) == (
        "ERROR: <input>:2:7: undefined field 'oops'\n |   self.oops == 2\n | ......^"
    )


def test_a_program_knows_which_variables_it_reads() -> None:
    scope = {"self": DYN, "oldSelf": DYN}
    assert compile_text("self == oldSelf", scope).names == {"self", "oldSelf"}
    assert compile_text("self.all(self, self)", scope).names == {"self"}


def test_variables_of_comprehensions_do_not_leak() -> None:
    env = {"x": 1}
    program = compile_text("[5].all(x, x == 5) && x == 1", {"x": DYN})
    assert program.run(env) is True
    assert env == {"x": 1}


def test_steps_are_counted() -> None:
    program = compile_text("l.all(x, l.all(y, x + y > 0))", {"l": DYN})
    with pytest.raises(BudgetError):
        program.run({"l": [1] * 100, "@steps": [1000]})
