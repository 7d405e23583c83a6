"""Pickled calls: a function is pickled again whenever its pickle could differ."""

from __future__ import annotations

import io
import math
import sys
from typing import Any

import cloudpickle
import pytest

from phalanx.sdk.gang.calls import CallPickler, load_call, stateless_globals

FACTOR = 2


def plain(number: int) -> float:
    return math.sqrt(number)


def with_global(number: int) -> int:
    return number * FACTOR


def with_default(number: int, other: int = 1) -> int:
    return number + other


cloudpickle.register_pickle_by_value(sys.modules[__name__])


def called(pickler: CallPickler, function: object, *arguments: Any) -> Any:
    file = io.BytesIO()
    pickler.dump(function, arguments, {}, file)
    file.seek(0)
    return load_call(file)()


def test_changed_global_variable_of_a_function_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    pickler = CallPickler()
    assert called(pickler, with_global, 3) == 6
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", 5)
    assert called(pickler, with_global, 3) == 15


def test_only_functions_of_modules_and_arguments_are_without_state() -> None:
    number = 1
    assert stateless_globals(plain) == (plain.__code__, math)
    for function in (with_global, with_default, lambda: number, lambda: lambda: 1, print, math.sqrt):
        assert stateless_globals(function) is None


def test_function_without_state_is_pickled_once_and_its_new_code_again() -> None:
    pickler = CallPickler()
    assert called(pickler, plain, 9) == 3.0
    first = pickler._pickled
    assert called(pickler, plain, 16) == 4.0
    assert pickler._pickled is first
    code = plain.__code__
    try:
        plain.__code__ = (lambda number: -number).__code__
        assert called(pickler, plain, 9) == -9
    finally:
        plain.__code__ = code
