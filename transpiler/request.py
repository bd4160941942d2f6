"""What the caller said of a program and of how it will run, held against the program."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any, Container, Dict, FrozenSet, Iterable, List, Mapping, Optional, Tuple, Union

from transpiler import arguments
from transpiler.analysis.cost import CostModel
from transpiler.backends.base import Declared, LiveBackend
from transpiler.errors import InvalidArgumentError, MergedVariableError, UnknownVariableError
from transpiler.ir import Graph, Size
from transpiler.ir.symbols import input_of, is_length
from transpiler.plain import did_you_mean, meant_or_some, quoted

_Sizes = Tuple[Dict[str, int], ...]
_DIM = re.compile(r'(.+)\[([0-9]{1,9})\]')
_MOST_LISTED = 5
_MOST_BYTES = 2**62  # sums of sizes are counted in 64 bits


@dataclass(frozen=True)
class Request:
    """What the caller said of the program and of how it will run; see memory_optimize.

    `besides` is what else the budget has to bear: bytes by name, which are not counted again if the program itself names them as resting.
    With `workers`, hints are what so many agreed on, `cost` is the speed that all plan for, and inputs and loops that are not in
    this program are those of another's.
    """

    fetch_list: Any = None
    skip_opt_set: Any = None
    batch_size: Union[None, int, Mapping[str, int]] = None
    trip_count: Union[None, int, Mapping[int, int]] = None
    runtime: str = 'auto'
    budget: Union[None, int, str] = None
    cost: Optional[CostModel] = None
    workers: int = 0
    besides: Mapping[str, int] = field(default_factory=dict)

    def in_names(self, backend: LiveBackend, program: Any) -> Request:
        """The same, with names in place of values of `program`."""
        return replace(self,
                       fetch_list=backend.named(program, 'fetch_list', self.fetch_list),
                       skip_opt_set=backend.named(program, 'skip_opt_set', self.skip_opt_set))

    def checked(self) -> Request:
        """The same; raises InvalidArgumentError for what could not be said of any program."""
        self.names()
        arguments.row_hints(self.batch_size)
        arguments.byte_count('budget', self.budget)
        arguments.check_trips(self.trip_count)
        return self

    def names(self) -> Tuple[FrozenSet[str], FrozenSet[str]]:
        """Names to fetch and names to skip; raises InvalidArgumentError for what is no name."""
        return (arguments.names_of('fetch_list', self.fetch_list),
                arguments.names_of('skip_opt_set', self.skip_opt_set))

    def sizes(self,
              graph: Graph,
              inputs: FrozenSet[str],
              symbols: Optional[Iterable[str]] = None,
              otherwise: Optional[int] = None) -> Tuple[Dict[str, int], List[str]]:
        """A value for each of `symbols` (all of `graph` if not given), and which of them had to be assumed, as `otherwise` where that is
        given.

        Raises:
            TranspilerError: hints that are none, or name what is no input and no loop, or are beyond all sizes.
        """
        given = graph.symbols() if symbols is None else frozenset(symbols)
        rows, trips = arguments.row_hints(self.batch_size), self.trip_count
        lengths = frozenset(filter(is_length, given))
        if self.workers:
            rows = _of_these(rows, inputs | lengths)
            trips = _of_these(trips, arguments.loops_of(given))
        if isinstance(rows, Mapping):
            named, known = _by_symbol(graph, inputs, rows)
            _check_inputs(inputs, lengths, rows.keys() - known)
            rows = named
        dims, assumed = arguments.dim_values(given, rows, trips, otherwise)
        _check_sizes(graph, dims)
        return dims, assumed

    def planned_sizes(self, graph: Graph, inputs: FrozenSet[str]) -> Tuple[_Sizes, _Sizes]:
        """What a plan is made for, and at what sizes plans are compared: a range where hints are missing and no budget asks for one
        size. Raises as `sizes`."""
        dims, assumed = self.sizes(graph, inputs)
        if assumed and self.budget is None:
            try:
                made, judged = (tuple(
                    self.sizes(graph, inputs, otherwise=size)[0]
                    for size in sizes)
                                for sizes in (arguments.PLANNED_FOR, arguments.COMPARED_AT))
                if made[0] != made[-1]:  # something is assumed that other rows say nothing of
                    return made, judged
            except InvalidArgumentError:
                pass  # more than can be counted
        return (dims,), (dims,)


def _of_these(hints: Any, known: Container[Any]) -> Any:
    """`hints`, if they go by names or numbers without those of what is not there."""
    if not isinstance(hints, Mapping):
        return hints
    return {key: value for key, value in hints.items() if key in known}


def check_names(declared: Declared, fetched: FrozenSet[str],
                skipped: FrozenSet[str] = frozenset()) -> None:
    """Raises for a name to fetch or to skip that the program does not have, or has no more."""
    for argument, names, known in (('fetch_list', fetched, declared.main), ('skip_opt_set', skipped,
                                                                            declared.everywhere)):
        for name in sorted(names - known):
            if name in declared.gone:
                raise MergedVariableError(
                    f'{argument}: {name!r} is gone: an earlier call made it {declared.gone[name]!r}. '
                    'Build the program again and name it in the first call.')
            raise UnknownVariableError(
                f'{argument}: the program has no variable {name!r}.{meant_or_some(name, known)}')


def _by_symbol(graph: Graph, inputs: FrozenSet[str],
               rows: Mapping[str, int]) -> Tuple[Dict[str, int], FrozenSet[str]]:
    """`rows`, where a hint for an open dim of an input goes by that of another with which it is one: `ids[1]` for `labels[1]`, `ids` for
    `labels` if the rows of both are N(ids). And the names of those dims. What is made of others, as rows that are a product, needs no hint."""
    shapes = {
        v.name: v.shape for v in graph.values if v.name in inputs and not v.region and v.shape
    }
    found: Dict[str, int] = {}
    known = set()
    for name, count in rows.items():
        dim = _dim_of(shapes, name)
        symbol = name if dim is None else _symbol_of(dim)
        called = symbol if is_length(symbol) else input_of(symbol) if dim is not None else ''
        if called:
            found[called] = max(count, found.get(called, count))
        elif dim is None or symbol or dim.is_constant:
            found[name] = count
        known.update({name} if dim is not None and dim.dims else ())
    return found, frozenset(known)


def _dim_of(shapes: Mapping[str, Tuple[Size, ...]], name: str) -> Optional[Size]:
    """The rows of that input, or the dim that is `input[number]` by its place; None if there is none."""
    parts = None if name in shapes else _DIM.fullmatch(name)
    shape, at = shapes.get(parts[1] if parts else name, ()), int(parts[2]) if parts else 0
    return shape[at] if at < len(shape) else None


def _symbol_of(dim: Size) -> str:
    """What an open dim is called; '' if it is made of others."""
    symbols = sorted(dim.dims)
    return symbols[0] if len(symbols) == 1 and dim == Size.dim(symbols[0]) else ''


def _check_inputs(inputs: FrozenSet[str], lengths: FrozenSet[str], names: Iterable[str]) -> None:
    """Raises UnknownVariableError for a name in `batch_size` that is neither an input nor one of the `lengths`."""
    for name in sorted(set(names) - inputs - lengths):
        dims = f', its other open dims {quoted(lengths, _MOST_LISTED)}' if lengths else ''
        raise UnknownVariableError(
            f'batch_size: the program has no input {name!r}; its inputs are '
            f'{quoted(inputs, _MOST_LISTED)}{dims}.{did_you_mean(name, inputs | lengths)}')


def _check_sizes(graph: Graph, dims: Mapping[str, int]) -> None:
    """Raises InvalidArgumentError for a program whose variables have more bytes than anyone can count."""
    trips = {}
    for region in graph.regions:
        trips[region.id] = region.trips.evaluate(dims) * trips.get(region.parent, 1)
    total = sum(
        v.size.evaluate(dims) * trips.get(v.region, 1) for v in graph.values if v.size is not None)
    if total > _MOST_BYTES:
        exponent = len(str(total)) - 1
        raise InvalidArgumentError(
            f'the variables of the program take about 10**{exponent} bytes, more than there are: by '
            'their dims and by what batch_size and trip_count say')
