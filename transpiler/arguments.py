"""What the caller gave, checked and brought into one form."""

from __future__ import annotations

from typing import Any, Dict, FrozenSet, Iterable, List, Mapping, Optional, Tuple, Union

from transpiler.analysis.runtime import RuntimeModel
from transpiler.errors import InvalidArgumentError

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
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise InvalidArgumentError(f'{argument} takes a whole number from 1 on, not {given!r}')
    return given


def check_level(level: int) -> int:
    if level not in (0, 1) or isinstance(level, bool):
        raise InvalidArgumentError(
            f'level is 0 (never reallocate) or 1 (smaller storages may grow), not {level!r}')
    return level


def runtime_model(runtime: str, collects: bool) -> RuntimeModel:
    """The model that `runtime` names; 'auto' is what the flags in force say."""
    if runtime == 'auto':
        return RuntimeModel.COLLECTING if collects else RuntimeModel.RETAINING
    if runtime not in RUNTIMES:
        choices = ', '.join(repr(name) for name in ('auto', *RUNTIMES))
        raise InvalidArgumentError(f'runtime is one of {choices}, not {runtime!r}')
    return RUNTIMES[runtime]


def dim_values(symbols: Iterable[str], batch_size: Optional[int],
               trip_count: Union[None, int, Mapping[int, int]],
               batch_dim: str) -> Tuple[Dict[str, int], List[str]]:
    """A value for each symbolic dim, and the names of those that had to be assumed."""
    trips = _trip_hints(trip_count)
    dims: Dict[str, int] = {}
    assumed: List[str] = []
    for symbol in sorted(symbols):
        is_trip = symbol[0] == 'T' and symbol[1:].isdigit()
        hint = batch_size if symbol == batch_dim else None
        if is_trip:
            hint = trips.get(int(symbol[1:]), trips.get(None))
        if hint is None:
            assumed.append(symbol)
            hint = _DEFAULT_BATCH if symbol == batch_dim else _DEFAULT_DIM
        dims[symbol] = hint
    return dims, assumed


def _trip_hints(given: Union[None, int, Mapping[int, int]]) -> Dict[Optional[int], int]:
    if given is None:
        return {}
    if isinstance(given, Mapping):
        return {block: positive('trip_count', trips) for block, trips in given.items()}
    return {None: positive('trip_count', given)}
