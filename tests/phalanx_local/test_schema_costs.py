"""Upper limit of the cost of a rule."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx_local.schema.cel import compile_text, declared
from phalanx_local.schema.cel.costs import estimated_cost
from phalanx_local.schema.cel.ranges import LIMIT, Range
from phalanx_local.schema.nodes import read_node

Obj = dict[str, Any]


def cost(schema: Obj, rule: str) -> int:
    kind = declared(read_node(schema))
    assert kind is not None
    return estimated_cost(compile_text(rule, {"self": kind, "oldSelf": kind}), kind)


def listed(kind: str, **keywords: Any) -> Obj:
    return {"type": "array", "items": {"type": kind}, **keywords}


def mapped(kind: str, **keywords: Any) -> Obj:
    return {"type": "object", "additionalProperties": {"type": kind}, **keywords}


TEXT: Obj = {"type": "string"}


@pytest.mark.parametrize(
    ("schema", "rule", "expected"),
    [
        # one for the list, three for each round, one for the result
        (listed("number", maxItems=10), "self.all(x, true)", 32),
        (listed("number", maxItems=10), "self.all(x, self.all(y, true))", 352),
        # without a limit as many numbers as a request can contain
        (listed("number"), "self.all(x, true)", 4718591),
        (listed("boolean"), "self.all(x, true)", 1887437),
        (mapped("number"), "self.all(x, true)", 1348169),
        (mapped("number"), "has(self.x)", 1),
        (listed("number"), "self[1] == 0.0", 2),
        (listed("string"), "self[1] == self[1]", 314577),
        # a tenth for each character; characters take up to four bytes
        (TEXT, "self.contains('test')", 314574),
        ({**TEXT, "maxLength": 10}, "self.contains('test')", 5),
        (TEXT, "self.startsWith('test')", 2),
        (TEXT, "size(self + 'hello') > size('hello')", 314578),
        ({**TEXT, "maxLength": 50}, "self.matches('x')", 22),
        (TEXT, "''.matches('(((((((((())))))))))[0-9]')", 7),
        ({**TEXT, "enum": ["A", "LongValue"]}, "self.contains('A')", 2),
        (TEXT, "self.find('[0-9]+') == ''", 629147),
        (TEXT, "self.lowerAscii() == 'lower!'", 314575),
        (listed("string", maxItems=10), "self.isSorted() == true", 3145742),
        (mapped("string", maxProperties=10), "self.all(x, x.contains(self[x]))", 72),
        (mapped("integer"), "oldSelf.size() == self.size()", 5),
        (listed("integer", maxItems=5), "self.map(x, x * 2).size() > 0", 84),
        (listed("integer", maxItems=5), "self.filter(x, x > 2).size() > 0", 89),
        (listed("integer", maxItems=5), "self.exists_one(x, x > 2)", 23),
        (listed("integer", maxItems=5), "self.sort() == []", 72),
        (TEXT, "isQuantity('10k') && quantity('1') == quantity('1')", 4),
    ],
)
def test_costs_equal_those_of_the_api_server(schema: Obj, rule: str, expected: int) -> None:
    assert cost(schema, rule) == expected


def test_sums_and_products_stop_at_64_bits() -> None:
    most = Range(0, LIMIT)
    assert (most + most).high == LIMIT
    assert (most * most).high == LIMIT
    assert (most * 2.5).high == LIMIT
    assert Range(1, 5) * 0.1 == Range(1, 1)
    assert Range(1, 2) | Range(0, 1) == Range(0, 2)
