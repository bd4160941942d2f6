"""What the caller gave, checked and brought into one form."""

from __future__ import annotations

import numbers
import re
from types import MappingProxyType
from typing import (Any, Dict, FrozenSet, Iterable, List, Mapping, Optional, Set, Tuple, Union)

from transpiler.analysis.runtime import RuntimeModel
from transpiler.errors import InvalidArgumentError
from transpiler.ir.symbols import is_batch, is_step, is_trip, is_words

RUNTIMES = {
    'collecting': RuntimeModel.COLLECTING,
    'executor': RuntimeModel.COLLECTING,
    'retaining': RuntimeModel.RETAINING,
    'predictor': RuntimeModel.RETAINING,
}
# What a dim counts as when no hint says more. They rank choices and fill in figures, no more.
_DEFAULT_BATCH = 1
_DEFAULT_DIM = 16


def names_of(argument: str, given: Any) -> FrozenSet[str]:
    """Names in `given`: None, one name or Variable, or a collection of them, nested or not."""
    return frozenset(_flatten(argument, given))


def _flatten(argument: str, given: Any) -> Iterable[str]:
    if given is None:
        return
    if isinstance(given, str):
        yield given
    elif isinstance(getattr(given, 'name', None), str):
        yield given.name
    elif isinstance(given, (set, frozenset, list, tuple)):
        for item in given:
            yield from _flatten(argument, item)
    else:
        raise InvalidArgumentError(f'{argument} takes names or Variables of the program (one, or a '
                                   f'set, list or tuple of them), not {type(given).__name__}')


def positive(argument: str, given: Optional[int]) -> Optional[int]:
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, numbers.Integral) or given < 1:
        raise InvalidArgumentError(f'{argument} takes a whole number from 1 on, not {given!r}')
    return int(given)


Rows = Union[None, int, Mapping[str, int]]


def row_hints(argument: str, given: Rows) -> Rows:
    """Rows that are fed, of all inputs or by the name of the input."""
    if not isinstance(given, Mapping):
        return positive(argument, given)
    for name in given:
        if not isinstance(name, str):
            raise InvalidArgumentError(f'{argument} takes rows by names of inputs, not by {name!r}')
    return {name: positive(argument, rows) for name, rows in given.items() if rows is not None}


def check_level(level: int) -> int:
    if isinstance(level, bool) or not isinstance(level, numbers.Integral) or level not in (0, 1):
        raise InvalidArgumentError(
            f'level is 0 (never reallocate) or 1 (smaller storages may grow), not {level!r}')
    return int(level)


def runtime_model(runtime: str, collects: bool) -> RuntimeModel:
    """The model that `runtime` names; 'auto' is what the flags in force say."""
    if runtime == 'auto':
        return RuntimeModel.COLLECTING if collects else RuntimeModel.RETAINING
    if not isinstance(runtime, str) or runtime not in RUNTIMES:
        choices = ', '.join(repr(name) for name in ('auto', *RUNTIMES))
        raise InvalidArgumentError(f'runtime is one of {choices}, not {runtime!r}')
    return RUNTIMES[runtime]


def recompute_mode(given: Any) -> str:
    """'auto', 'cheap', 'max' or '' for no recompute."""
    if given is False:
        return ''
    if given not in ('auto', 'cheap', 'max') or not isinstance(given, str):
        raise InvalidArgumentError(f"recompute is 'auto', 'cheap', 'max' or False, not {given!r}")
    return given


def share(argument: str, given: Any) -> float:
    if isinstance(given, bool) or not isinstance(given, numbers.Real) or not given >= 0:
        raise InvalidArgumentError(f'{argument} takes a share from 0 on, as 0.1, not {given!r}')
    return float(given)


_UNITS = MappingProxyType({
    '': 1,
    'B': 1,
    **{
        f'{prefix}B': 1000**power for power, prefix in enumerate('KMGT', 1)
    },
    **{
        f'{prefix}IB': 1024**power for power, prefix in enumerate('KMGT', 1)
    }
})


def byte_count(argument: str, given: Union[None, int, str]) -> Optional[int]:
    """Bytes: a whole number, or a text such as '6GB' (powers of 1000) or '1.5 GiB' (powers of 1024)."""
    if not isinstance(given, str):
        return positive(argument, given)
    match = re.fullmatch(r'\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*', given)
    unit = _UNITS.get(match.group(2).upper()) if match else None
    if unit is None or float(match.group(1)) * unit < 1:
        raise InvalidArgumentError(
            f"{argument} takes bytes: a whole number from 1 on, or a text as '6GB' or '1.5GiB', not {given!r}"
        )
    return int(float(match.group(1)) * unit)


def check_flag(argument: str, given: Any) -> bool:
    if not isinstance(given, bool):
        raise InvalidArgumentError(f'{argument} is True or False, not {given!r}')
    return given


def dim_values(symbols: Iterable[str], batch_size: Rows,
               trip_count: Union[None, int, Mapping[int, int]]) -> Tuple[Dict[str, int], List[str]]:
    """A value for each symbolic dim, and the names of those that had to be assumed."""
    symbols = sorted(symbols)
    trips = _trip_hints(trip_count, {int(s[1:]) for s in symbols if is_trip(s)})
    dims: Dict[str, int] = {}
    assumed: List[str] = []
    for symbol in (s for s in symbols if not is_step(s)):
        hint = _rows_of(symbol, symbols, batch_size)
        if is_trip(symbol):
            hint = trips.get(int(symbol[1:]), trips.get(None))
        if hint is None:
            assumed.append(symbol)
            hint = _DEFAULT_BATCH if is_batch(symbol) else _DEFAULT_DIM
        dims[symbol] = hint
    steps = max((dims[s] for s in symbols if is_trip(s)), default=1)
    words = [dims[s] for s in dims if is_words(s)] or [dims[s] for s in dims if is_batch(s)]
    dims.update(
        (s, max(1, round(max(words, default=steps) / steps))) for s in symbols if is_step(s))
    return dims, assumed


def _rows_of(symbol: str, symbols: List[str], given: Rows) -> Optional[int]:
    """The hint for `symbol`: of the input that it is called after or, for what several share, of those without their own."""
    if not isinstance(given, Mapping):
        return given if is_batch(symbol) else None
    for name, rows in given.items():
        if symbol.endswith(f'({name})'):
            return rows
    shared = [n for n in given if not any(s.endswith(f'({n})') for s in symbols)]
    return max((given[n] for n in shared), default=None) if is_batch(symbol) else None


def _trip_hints(given: Union[None, int, Mapping[int, int]],
                loops: Set[int]) -> Dict[Optional[int], int]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        return {None: positive('trip_count', given)}
    for block in given:
        if block not in loops:
            known = ', '.join(map(str, sorted(loops))) or 'none'
            raise InvalidArgumentError(
                f'trip_count: block {block!r} is no loop of the program; its loops are blocks {known}'
            )
    return {block: positive('trip_count', trips) for block, trips in given.items()}
