"""Arguments of plugins as Go's package flag reads them."""

from __future__ import annotations

import pytest

from phalanx.jobs.plugins.flags import Flags
from phalanx.jobs.plugins.plugin import JobPluginError

DEFAULTS: dict[str, str | int | bool] = {"worker": "worker", "port": 22, "quick": False, "loud": True}


def read(*arguments: str) -> tuple[str, int, bool, bool]:
    flags = Flags("mpi", arguments, DEFAULTS)
    return flags.text("worker"), flags.number("port"), flags.is_set("quick"), flags.is_set("loud")


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        ((), ("worker", 22, False, True)),
        (("--port=5000",), ("worker", 5000, False, True)),
        (("-port=5000",), ("worker", 5000, False, True)),
        (("--port", "5000"), ("worker", 5000, False, True)),
        (("-port", "5000", "--worker", "w"), ("w", 5000, False, True)),
        (("--worker=",), ("", 22, False, True)),
        (("--worker=a=b",), ("a=b", 22, False, True)),
        (("--worker", "--port=1"), ("--port=1", 22, False, True)),
        (("--quick",), ("worker", 22, True, True)),
        (("--quick=1", "--loud=F"), ("worker", 22, True, False)),
        # A boolean flag has its value after = only; "false" ends the flags.
        (("--loud", "false", "--port=1"), ("worker", 22, False, True)),
        (("first", "--port=1"), ("worker", 22, False, True)),
        (("--", "--port=1"), ("worker", 22, False, True)),
        (("-", "--port=1"), ("worker", 22, False, True)),
        (("", "--port=1"), ("worker", 22, False, True)),
        (("--port=1", "--port=2"), ("worker", 2, False, True)),
        (("--port=0x10",), ("worker", 16, False, True)),
        (("--port=010",), ("worker", 8, False, True)),
        (("--port=0b11",), ("worker", 3, False, True)),
        (("--port=0x_10",), ("worker", 16, False, True)),
        (("--port=1_000",), ("worker", 1000, False, True)),
        (("--port=-1",), ("worker", -1, False, True)),
        (("--port=+7",), ("worker", 7, False, True)),
        (("--port=0",), ("worker", 0, False, True)),
    ],
    ids=str,
)
def test_flags_are_parsed_like_upstream(arguments: tuple[str, ...], values: tuple[str, int, bool, bool]) -> None:
    assert read(*arguments) == values


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--speed=1",), "flag provided but not defined: -speed"),
        # One argument with a space in it is no two.
        (("-port 22",), "flag provided but not defined: -port 22"),
        (("--port",), "flag needs an argument: -port"),
        (("--port=many",), 'invalid value "many" for flag -port: parse error'),
        (("--port=",), 'invalid value "" for flag -port: parse error'),
        (("--port=1__0",), 'invalid value "1__0" for flag -port: parse error'),
        (("--port=1_",), 'invalid value "1_" for flag -port: parse error'),
        (("--port=08",), 'invalid value "08" for flag -port: parse error'),
        (("--port= 8",), 'invalid value " 8" for flag -port: parse error'),
        (
            ("--port=99999999999999999999",),
            'invalid value "99999999999999999999" for flag -port: value out of range',
        ),
        (("--quick=yes",), 'invalid boolean value "yes" for -quick: parse error'),
        (("---port=1",), "bad flag syntax: ---port=1"),
        (("--=1",), "bad flag syntax: --=1"),
        (("-h",), "flag: help requested"),
    ],
    ids=str,
)
def test_invalid_flags_are_refused(arguments: tuple[str, ...], text: str) -> None:
    with pytest.raises(JobPluginError) as told:
        read(*arguments)
    assert str(told.value) == (
        f"plugin mpi flagset parse failed, err: {text}; supported flags: --loud, --port, --quick, --worker"
    )
