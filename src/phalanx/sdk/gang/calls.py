"""Pickled calls: the function, then its arguments. A function without state is pickled and unpickled once."""

from __future__ import annotations

import functools
import pickle
import struct
import tempfile
import types
from collections.abc import Callable
from typing import Any

from phalanx.sdk.errors import UnpicklableError

#: Pickles above this size are in a file instead of memory.
SPOOLED = 16 * 1024 * 1024
# Bytes of the pickled function; whether it has no state, so that its receiver can keep it.
_HEAD = struct.Struct(">Q?")
_KEPT = 64


class CallPickler:
    """Pickler of calls, which remembers the last stateless function."""

    def __init__(self) -> None:
        self._function: object = None
        self._globals: tuple[object, ...] = ()
        self._pickled = b""

    def dump(self, function: object, arguments: tuple[Any, ...], keywords: dict[str, Any], file: Any) -> None:
        """Write a call. Raises UnpicklableError."""
        import cloudpickle

        try:
            names = stateless_globals(function)
            if names is None:
                pickled = cloudpickle.dumps(function)
            else:
                if function is not self._function or not _identical(names, self._globals):
                    self._pickled = cloudpickle.dumps(function)
                    self._function, self._globals = function, names
                pickled = self._pickled
            file.write(_HEAD.pack(len(pickled), names is not None) + pickled)
            cloudpickle.dump((arguments, keywords), file)
        except Exception as error:
            name = getattr(function, "__qualname__", repr(function))
            raise UnpicklableError(
                f"the call of {name} cannot be sent to a worker: {type(error).__name__}: {error}", field="function"
            ) from error


def stateless_globals(function: object) -> tuple[object, ...] | None:
    """Return the global variables that a function reads if its pickle depends on nothing else that can change.

    They are modules only. None for a function with other globals, a closure, defaults, attributes or inner
    functions.
    """
    if not isinstance(function, types.FunctionType):
        return None
    code = function.__code__
    if function.__closure__ or function.__defaults__ or function.__kwdefaults__ or function.__dict__:
        return None
    if any(isinstance(constant, types.CodeType) for constant in code.co_consts):
        return None
    values = tuple(function.__globals__[name] for name in code.co_names if name in function.__globals__)
    return (code, *values) if all(isinstance(value, types.ModuleType) for value in values) else None


def _identical(first: tuple[object, ...], second: tuple[object, ...]) -> bool:
    return len(first) == len(second) and all(one is other for one, other in zip(first, second, strict=True))


def new_file() -> Any:
    return tempfile.SpooledTemporaryFile(SPOOLED)


def load_call(file: Any) -> Callable[[], Any]:
    """Read a call. The bytes must come from a verified peer."""
    size, stateless = _HEAD.unpack(file.read(_HEAD.size))
    pickled = file.read(size)
    function = _loaded(pickled) if stateless else pickle.loads(pickled)
    arguments, keywords = pickle.load(file)
    return functools.partial(function, *arguments, **keywords)


@functools.lru_cache(_KEPT)
def _loaded(pickled: bytes) -> Any:
    return pickle.loads(pickled)
