"""What the caller gave, checked and brought into one form."""

from __future__ import annotations

import numbers
import re
import sys
import time
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import (Any, Callable, Dict, FrozenSet, Iterable, List, Mapping, Optional, Set, Tuple,
                    Union)

from transpiler.errors import InvalidArgumentError
from transpiler.ir.symbols import BATCH, input_of, is_batch, is_length, is_step, is_trip, is_words
from transpiler.plain import flat
from transpiler.runtime import COLLECTING, RETAINING, Runtime

RUNTIMES = {
    'collecting': COLLECTING,
    'executor': COLLECTING,
    'retaining': RETAINING,
    'predictor': RETAINING,
}
# What a dim counts as when no hint says more. They rank choices and fill in figures, no more.
_DEFAULT_BATCH = 1
_DEFAULT_DIM = 16
# What rows, and other dims with them, count as where one plan is to be good at all sizes: those at which plans are compared, from the
# smallest on, and those that plans are made for, of equals the first. What is best changes most below 32 rows, where weights cease to
# rule the peak: so the small plan lies between, and so does one more, for the last size, where the others are far from each other.
COMPARED_AT = (8, 32, 256)
PLANNED_FOR = (32, 12, 256, 20)

# Paddle counts elements and bytes in 64 bits, of which one is the sign.
_MOST = 2**63 - 1
_LONGEST_SHOWN = 60


def _shown(given: Any) -> str:
    """`given` in a message: in one line, and not all of it."""
    try:
        text = ' '.join(repr(given).split())
    except Exception:  # of an object that is not ours
        text = f'a {type(given).__name__}'
    return text if len(text) <= _LONGEST_SHOWN else f'{text[:_LONGEST_SHOWN]}...'


def names_of(argument: str, given: Any) -> FrozenSet[str]:
    """Names in `given`: None, one name or Variable, or a collection of them, nested or not."""
    names = set()
    for item in flat(given):
        if isinstance(item, str):
            names.add(item)
        elif _is_variable(item):
            names.add(item.name)
        else:
            raise InvalidArgumentError(
                f'{argument} takes names or Variables of the program (one, or '
                f'a set, list or tuple of them), not {type(item).__name__}')
    return frozenset(names)


def name_of(argument: str, given: Any) -> str:
    """The one name that a str or Variable gives."""
    if isinstance(given, str):
        return given
    if not _is_variable(given):
        raise InvalidArgumentError(
            f'{argument} takes a name or a Variable of the program, not {_shown(given)}')
    return str(given.name)


def _is_variable(given: Any) -> bool:
    """Files and paths have a name, too."""
    return 'dtype' in dir(given) and isinstance(getattr(given, 'name', None), str)


def positive(argument: str, given: Optional[int]) -> Optional[int]:
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, numbers.Integral) or given < 1:
        raise InvalidArgumentError(
            f'{argument} takes a whole number from 1 on, not {_shown(given)}')
    if given > _MOST:
        raise InvalidArgumentError(f'{argument} takes a number of at most 64 bits; this one has '
                                   f'{int(given).bit_length() + 1}')
    return int(given)


def number(argument: str, given: Any) -> int:
    """What cannot be left out, as `positive` can."""
    found = positive(argument, given)
    if found is None:
        raise InvalidArgumentError(f'{argument} takes a whole number from 1 on, not None')
    return found


Rows = Union[None, int, Mapping[str, int]]


def row_hints(given: Rows) -> Rows:
    """`batch_size`: rows that are fed, of all inputs or by the name of the input; and other open dims by theirs."""
    if not isinstance(given, Mapping):
        return positive('batch_size', given)
    for name in given:
        if not isinstance(name, str):
            raise InvalidArgumentError(
                f'batch_size takes rows by names of inputs, not by {_shown(name)}')
    return {name: positive('batch_size', rows) for name, rows in given.items() if rows is not None}


def check_level(level: int) -> int:
    if isinstance(level, bool) or not isinstance(level, numbers.Integral) or level not in (0, 1):
        raise InvalidArgumentError(
            f'level is 0 (never reallocate) or 1 (smaller storages may grow), not {_shown(level)}')
    return int(level)


def runtime_of(runtime: str, in_force: Runtime) -> Runtime:
    """The runtime that `runtime` names, as far as the one in force can what a plan asks for; 'auto' is the one in force."""
    if not isinstance(runtime, str) or runtime not in ('auto', *RUNTIMES):
        choices = ', '.join(repr(name) for name in ('auto', *RUNTIMES))
        raise InvalidArgumentError(f'runtime is one of {choices}, not {_shown(runtime)}')
    if runtime == 'auto':
        return in_force
    named = RUNTIMES[runtime]
    return replace(named, can=named.can & in_force.can)


def text(argument: str, given: Any) -> str:
    if not isinstance(given, str):
        raise InvalidArgumentError(f'{argument} takes a text, not {_shown(given)}')
    return given


def scalar_writer(given: Any) -> Any:
    """What has `add_scalar(tag, value, step)`."""
    if isinstance(given, type) or not callable(getattr(given, 'add_scalar', None)):
        raise InvalidArgumentError(
            'writer has add_scalar(tag, value, step), as visualdl.LogWriter(folder) and '
            f'SummaryWriter(folder) of TensorBoard; {_shown(given)} has not')
    return given


def recompute_mode(given: Any) -> str:
    """'auto', 'cheap', 'max' or '' for no recompute."""
    if given is False:
        return ''
    if not isinstance(given, str) or given not in ('auto', 'cheap', 'max'):
        raise InvalidArgumentError(
            f"recompute is 'auto', 'cheap', 'max' or False, not {_shown(given)}")
    return given


def share(argument: str, given: Any) -> float:
    if isinstance(given, bool) or not isinstance(given, numbers.Real) or not given >= 0:
        raise InvalidArgumentError(
            f'{argument} takes a share from 0 on, as 0.1, not {_shown(given)}')
    return float(min(given, sys.float_info.max))


# Python itself refuses to read longer numbers.
_BYTES = re.compile(r'\s*([0-9]{1,2000})(?:\.([0-9]{1,2000}))?\s*([A-Za-z]*)\s*')
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


def parse_bytes(text: str) -> Optional[int]:
    """The bytes that '6GB' (powers of 1000) or '1.5 GiB' (powers of 1024) says; None if that is no size."""
    match = _BYTES.fullmatch(text)
    unit = _UNITS.get(match.group(3).upper()) if match else None
    if unit is None:
        return None
    whole, part = match.group(1), match.group(2) or ''
    return int(whole + part) * unit // 10**len(part)


def byte_count(argument: str, given: Union[None, int, str]) -> Optional[int]:
    """Bytes: a whole number, or a text that `parse_bytes` knows."""
    if not isinstance(given, str):
        return positive(argument, given)
    size = parse_bytes(given)
    if not size:
        raise InvalidArgumentError(
            f"{argument} takes bytes: a whole number from 1 on, or a text as "
            f"'6GB' or '1.5GiB', not {_shown(given)}")
    return positive(argument, size)


def heap_mode(given: Any) -> Optional[str]:
    """None, 'kept' or 'small': how the heap is to be kept."""
    if given is True or given is False:
        return 'kept' if given else None
    if not (isinstance(given, str) and given == 'small'):
        raise InvalidArgumentError(f"heap is True, False or 'small', not {_shown(given)}")
    return 'small'


def check_flag(argument: str, given: Any) -> bool:
    if not isinstance(given, bool):
        raise InvalidArgumentError(f'{argument} is True or False, not {_shown(given)}')
    return given


@dataclass(frozen=True)
class Trial:
    """`runs` of a program, with `feeds` in turn."""

    runs: int
    feeds: Tuple[Mapping[str, Any], ...]


def trial(runs: Any, feed: Any) -> Optional[Trial]:
    """What `verify_runs` and `verify_feed` ask for; None for no runs."""
    if isinstance(runs, numbers.Integral) and not isinstance(runs, bool) and runs == 0:
        if feed is not None:
            raise InvalidArgumentError(
                'verify_feed: nothing is run without verify_runs; give verify_runs=2, too')
        return None
    times = number('verify_runs', runs)
    feeds = [] if feed is None else [feed] if isinstance(feed, Mapping) else feed
    if not isinstance(feeds, (list, tuple)) or not all(isinstance(f, Mapping) for f in feeds):
        raise InvalidArgumentError(
            'verify_feed takes a feed, {name: array}, or a list of feeds, which the runs take in turn, not '
            f'{_shown(feed)}')
    return Trial(times, tuple(feeds))


def progress(given: Any) -> Callable[[str], None]:
    """What tells `given`, which the caller may have left out, what is done next, and the seconds since the call."""
    if given is None:
        return lambda what: None
    if not callable(given):
        raise InvalidArgumentError(
            f'progress takes a function of a text and of seconds, not {_shown(given)}')
    began = time.perf_counter()
    return lambda what: given(what, time.perf_counter() - began)


def segments(given: Any) -> Union[None, bool, int]:
    """None for 'auto', True, False, or the most ops of a segment."""
    if isinstance(given, bool):
        return given
    if isinstance(given, str) and given == 'auto':
        return None
    if isinstance(given, str) or given is None:
        raise InvalidArgumentError(
            f"segments is 'auto', True, False or a whole number of ops, not {_shown(given)}")
    return positive('segments', given)


def dim_values(symbols: Iterable[str],
               batch_size: Rows,
               trip_count: Union[None, int, Mapping[int, int]],
               otherwise: Optional[int] = None) -> Tuple[Dict[str, int], List[str]]:
    """A value for each symbolic dim, and the names of those that had to be assumed: the rows of other inputs for rows, or
    `otherwise`, so many times the words of a row for words; the defaults if that is None."""
    symbols = sorted(symbols)
    trips = _trip_hints(trip_count, loops_of(symbols))
    shared = _shared_rows(symbols, batch_size)
    dims: Dict[str, int] = {}
    assumed: List[str] = []
    for symbol in (s for s in symbols if not is_step(s)):
        hint = _rows_of(symbol, batch_size, shared)
        if is_trip(symbol):
            hint = trips.get(int(symbol[1:]), trips.get(None))
        if hint is None:
            assumed.append(symbol)
            hint = _assumed(symbol, otherwise, shared)
        dims[symbol] = hint
    steps = max((dims[s] for s in symbols if is_trip(s)), default=1)
    words = [dims[s] for s in dims if is_words(s)] or [dims[s] for s in dims if is_batch(s)]
    dims.update(
        (s, max(1, round(max(words, default=steps) / steps))) for s in symbols if is_step(s))
    return dims, assumed


def _assumed(symbol: str, size: Optional[int], shared: Optional[int]) -> int:
    if is_batch(symbol) and shared is not None:
        return shared
    if size is None:
        return _DEFAULT_BATCH if is_batch(symbol) else _DEFAULT_DIM
    return size * _DEFAULT_DIM if is_words(symbol) else size


def loops_of(symbols: Iterable[str]) -> Set[int]:
    """Indices of the blocks that are loops, by whose trips `symbols` are called."""
    return {int(s[1:]) for s in symbols if is_trip(s)}


def _rows_of(symbol: str, given: Rows, shared: Optional[int]) -> Optional[int]:
    """The hint for `symbol`: its own, of the input that it is called after, or for the batch that of those without their own."""
    if not isinstance(given, Mapping):
        return given if is_batch(symbol) else None
    if is_length(symbol):
        return given.get(symbol)
    return shared if symbol == BATCH else given.get(input_of(symbol))


def _shared_rows(symbols: Sequence[str], given: Rows) -> Optional[int]:
    """The most rows of inputs after which no dim is called, as they are the batch's."""
    rows = given if isinstance(given, Mapping) else {}
    called = {*symbols, *map(input_of, symbols)}
    return max((count for name, count in rows.items() if name not in called), default=None)


def check_trips(given: Union[None, int, Mapping[int, int]]) -> None:
    """Raises InvalidArgumentError for trips that no loop has."""
    for trips in given.values() if isinstance(given, Mapping) else (given,):
        positive('trip_count', trips)


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
                f'trip_count: block {_shown(block)} is no loop of the program; its loops are blocks {known}'
            )
    return {block: positive('trip_count', trips) for block, trips in given.items()}
