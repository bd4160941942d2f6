"""Shapes as polynomials in the dims that a program leaves open, found with Paddle's own shape inference.

A desc says -1 for every open dim, so `[-1, 512]` may be N rows or N times the sequence length. Running
the registered shape inference with concrete values for the open dims of the inputs, and again with one
of them doubled, tells how each dim of each variable depends on them. Small values then show where that
line does not hold (a slice `x[:100]` has at most 100 rows).

Two inputs may be fed with different numbers of rows unless some op refuses that, so each open dim is a
symbol of its own until shape inference shows two of them to be one.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, combinations, product
from types import MappingProxyType
from typing import Callable, Dict, FrozenSet, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from paddle.base import core
from paddle.base.proto import framework_pb2

from transpiler.backends.fitted_shapes import PROBE, fit, fit_most
from transpiler.backends.paddle2.array_fills import FilledArrays, counted_arrays, trip_symbols
from transpiler.backends.paddle2.descs import written_by
from transpiler.backends.paddle2.kernel_shapes import LEAST_KINDS
from transpiler.backends.paddle2.likeness import TENSORS, likenesses, without_framework
from transpiler.backends.paddle2.shape_inference import (SAY_NOTHING, SENTENCES, SEQUENCE_KINDS,
                                                         Declared, Inference, Results, Step,
                                                         Tensors, VariableKey)
from transpiler.backends.paddle2.tied_dims import At, by_op, names_of, tied_by_ops
from transpiler.backends.ties import tied_together
from transpiler.ir import Size
from transpiler.ir.symbols import BATCH, STEP, WORDS

_SMALL_PROBES = (1, 12)

Shapes = Dict[VariableKey, Optional[Tuple[Size, ...]]]
_Fit = Callable[[Sequence[int], Mapping[str, Sequence[int]], Sequence[Tuple[int, Sequence[int]]]],
                Optional[Tuple[Size, ...]]]
_Seeds = Dict[str, List[Optional[str]]]  # input -> symbol of each open dim


@dataclass
class _Probe:
    """Shapes of tensors for one choice of the open dims, and the ops that rejected it."""

    shapes: Dict[VariableKey, Tuple[int, ...]]
    failed: FrozenSet[At]  # (block, op)


class Inferred(NamedTuple):
    """Shapes of tensor variables; where one has none, `at_most` has one that no run goes beyond, if there is any, or else `at_least` one of
    which no run has less."""

    shapes: Shapes
    at_most: Shapes
    at_least: Shapes


def infer(program: framework_pb2.ProgramDesc) -> Inferred:
    """Shape of every tensor variable; None where a dim depends on data or can't be inferred: what is known of those.

    A name that is written more than once has the largest of its shapes.
    """
    message = without_framework(program)
    declared = _declared(message)
    prober = _Prober(core.ProgramDesc(message.SerializeToString()), message, declared)
    probes = _probe_symbols(prober, _open_inputs(message, declared))
    shapes = _fit_all(declared, probes, fit)
    unknown = {key: declared[key] for key, shape in shapes.items() if shape is None}
    if not unknown:
        return Inferred(shapes, {}, {})
    most = probes.at_most(prober)
    at_most = _fit_all(unknown, most, fit_most)
    tied = tied_together([*most.doubled], by_op(most.failed()).values())
    if len(tied) < len(most.doubled):
        # What follows from an op that rejects all but equal ones is only known if they are one.
        together = probes.at_most(prober, {s: min(group) for group in tied for s in group})
        at_most.update(_fit_all(_left(declared, at_most), together, fit_most))
    at_most.update(_under_one_value(prober, probes, _left(declared, at_most)))
    left = _left(declared, at_most) if prober.has_floors else {}
    at_least = _fit_all(left, probes.at_most(prober, floors=True), fit_most) if left else {}
    return Inferred(shapes, at_most, at_least)


def _left(declared: Declared, found: Shapes) -> Declared:
    """Those of which no shape was found."""
    return {key: declared[key] for key, shape in found.items() if shape is None}


def _under_one_value(prober: _Prober, probes: _Probes, unknown: Declared) -> Shapes:
    """Of what follows from an op that rejects all but one value of an open dim, such as one that lays the rows beside a single one:
    its shape for that value, as no run has another. Nothing of what two values give two shapes."""
    failed = probes.base.failed
    after = prober.after(failed)
    unknown = {key: shape for key, shape in unknown.items() if key in after}
    found: Dict[VariableKey, Set[Tuple[Size, ...]]] = {}
    for symbol, value in product(probes.doubled, prober.constants(probes.base) if unknown else ()):
        made = prober.surely_after(_accepting(prober, probes, symbol, value))
        left = {key: shape for key, shape in unknown.items() if key in made}
        fixed = probes.at_most(prober, fixed={symbol: value}) if left else probes
        for key, shape in _fit_all(left, fixed, fit_most).items():
            if shape is not None:
                found.setdefault(key, set()).add(shape)
    return {key: next(iter(those)) for key, those in found.items() if len(those) == 1}


def _accepting(prober: _Prober, probes: _Probes, symbol: str, value: int) -> FrozenSet[At]:
    """The ops that accept this value of a dim, but neither the next one nor the double: they may want a multiple, or no more than so many."""
    rejected = [probes.with_value(prober, symbol, v).failed for v in (value, value + 1, 2 * value)]
    return probes.base.failed.intersection(*rejected[1:]) - rejected[0]


class _Probes(NamedTuple):
    """Shapes for some choices of the open dims: all large, one after the other doubled, all small."""

    seeds: _Seeds
    rows: Mapping[str, str]
    base: _Probe
    doubled: Mapping[str, _Probe]
    small: Sequence[Tuple[int, _Probe]]

    def at_most(
            self,
            prober: _Prober,
            one: Mapping[str, str] = MappingProxyType({}),
            fixed: Mapping[str, int] = MappingProxyType({}),
            floors: bool = False,
    ) -> _Probes:
        """The same, with what the data decides as large as it can be; trips of loops are open dims here. `one`: symbols that are to be
        one dim, by what it is called then; `fixed`: those that have one value; `floors`: what may have any size is as small as it can be."""
        seeds, rows = self.seeds, self.rows
        every = [*self.doubled, *prober.trips.values()]
        symbols = list(dict.fromkeys(one.get(s, s) for s in every if s not in fixed))

        def probe(dims: Mapping[str, int]) -> _Probe:
            found = {s: fixed[s] if s in fixed else dims[one.get(s, s)] for s in every}
            return prober.probe(seeds, rows, found, at_most=True, floors=floors)

        small = _SMALL_PROBES if symbols else ()
        return _Probes(seeds, rows, probe(dict.fromkeys(symbols, PROBE)),
                       {s: probe(_doubled(symbols, s)) for s in symbols},
                       [(value, probe(dict.fromkeys(symbols, value))) for value in small])

    def failed(self) -> Dict[str, FrozenSet[At]]:
        """By symbol: the ops that accept equal values, and reject its change."""
        return {s: p.failed - self.base.failed for s, p in self.doubled.items()}

    def with_value(self, prober: _Prober, symbol: str, value: int) -> _Probe:
        """Where this one of the symbols has another value, and the others are large."""
        return prober.probe(self.seeds, self.rows, {
            **dict.fromkeys(self.doubled, PROBE), symbol: value
        })


def _probe_symbols(prober: _Prober, seeds: _Seeds) -> _Probes:
    """Probes of the open dims that are not one."""
    rows = _row_symbols(prober.steps)
    if not seeds:
        return _Probes({}, {}, prober.probe({}, {}, {}), {}, ())
    symbols = sorted({s for dims in seeds.values() for s in dims if s}.union(rows.values()))
    base = prober.probe(seeds, rows, dict.fromkeys(symbols, PROBE))
    while True:  # one dim less may show that two others are one
        doubled = {s: prober.probe(seeds, rows, _doubled(symbols, s)) for s in symbols}
        groups = {
            each: prober.probe(seeds, rows, {s: PROBE * (1 + (s in each)) for s in symbols})
            for each in _doubled_by_several(base, doubled)
        }
        probe = lambda some: prober.probe(seeds, rows,
                                          {s: PROBE * (1 + (s in some)) for s in symbols})
        tied = tied_by_ops(base.failed, {
            s: p.failed for s, p in doubled.items()
        }, lambda some: probe(some).failed)
        broadcast = [each for each, p in groups.items() if _is_maximum(each, base, doubled, p)]
        merged = names_of(symbols, [*tied, *broadcast])
        seeds = {n: [s and merged[s] for s in dims] for n, dims in seeds.items()}
        rows = {table: merged[s] for table, s in rows.items()}
        if len(set(merged.values())) == len(symbols):
            break
        symbols = sorted(set(merged.values()))
    found = {merged[s]: p for s, p in doubled.items()}
    if base.failed and prober.find_products(seeds, rows, sorted(found), base):
        symbols = sorted(found.keys() - prober.products.keys())
        base = prober.probe(seeds, rows, dict.fromkeys(symbols, PROBE))
        found = {s: prober.probe(seeds, rows, _doubled(symbols, s)) for s in symbols}
    small = [(v, prober.probe(seeds, rows, dict.fromkeys(found, v))) for v in _SMALL_PROBES]
    return _Probes(seeds, rows, base, found, small)


def _products(declared: Sequence[int], symbols: Sequence[Optional[str]]) -> Iterator[Size]:
    """Of two or more dims of an input, the open ones among them."""
    dims = [Size.dim(s) if s else Size.of(d) for s, d in zip(symbols, declared)]
    for count in range(2, len(dims) + 1):
        for some in combinations(dims, count):
            if not all(dim.is_constant for dim in some):
                yield Size.product(some)


def _fit_all(declared: Declared, probes: _Probes, fitting: _Fit) -> Shapes:
    fitted: Dict[Tuple, Optional[Tuple[Size, ...]]] = {}  # most variables are like some other
    found: Shapes = {}
    base, doubled = probes.base.shapes, {s: p.shapes for s, p in probes.doubled.items()}
    small = [(value, p.shapes) for value, p in probes.small]
    every = [base, *doubled.values(), *(shapes for _, shapes in small)]
    for key in declared:
        seen = tuple([shapes[key] for shapes in every])
        if seen not in fitted:
            fitted[seen] = fitting(base[key], {
                s: p[key] for s, p in doubled.items()
            }, [(value, shapes[key]) for value, shapes in small])
        found[key] = fitted[seen]
    return found


def _doubled_by_several(base: _Probe, doubled: Mapping[str, _Probe]) -> Set[Tuple[str, ...]]:
    """Groups of symbols of which each one alone doubles some dim: it is their product, or the largest of them."""
    if len(doubled) < 2:
        return set()
    return {
        group for key in base.shapes for group in _doubling(key, base, doubled) if len(group) > 1
    }


def _doubling(key: VariableKey, base: _Probe, doubled: Mapping[str,
                                                               _Probe]) -> List[Tuple[str, ...]]:
    """For each dim of a variable, the symbols that double it."""
    return [
        tuple(s
              for s, p in doubled.items()
              if len(p.shapes[key]) > i and size > 0 and p.shapes[key][i] == 2 * size)
        for i, size in enumerate(base.shapes[key])
    ]


def _is_maximum(group: Tuple[str, ...], base: _Probe, doubled: Mapping[str, _Probe],
                together: _Probe) -> bool:
    """Whether an op gives the largest of the dims of `group`, all of which are doubled in `together`, as one does that
    broadcasts: they can only differ where one is 1."""
    return any(group == found and together.shapes[key][i] == 2 * base.shapes[key][i]
               for key in base.shapes
               for i, found in enumerate(_doubling(key, base, doubled))
               if len(together.shapes[key]) > i)


def _doubled(symbols: Sequence[str], symbol: str) -> Dict[str, int]:
    return {s: PROBE * (2 if s == symbol else 1) for s in symbols}


def _tensor_variables(block: framework_pb2.BlockDesc) -> List[framework_pb2.VarDesc]:
    return [v for v in block.vars if v.type.type in TENSORS]


def _declared(message: framework_pb2.ProgramDesc) -> Declared:
    return {
        (block.idx, v.name): _dims(v.type) for block in message.blocks
        for v in _tensor_variables(block)
    }


def _dims(kind: framework_pb2.VarType) -> Tuple[int, ...]:
    is_dense = kind.type == framework_pb2.VarType.LOD_TENSOR
    return tuple(kind.lod_tensor.tensor.dims if is_dense else kind.selected_rows.dims)


def _written_names(message: framework_pb2.ProgramDesc) -> Set[str]:
    names: Set[str] = set()
    for op in (op for block in message.blocks for op in block.ops):
        if op.type not in (*SAY_NOTHING, 'depend'):
            names.update(written_by(op))
    return names


def _open_inputs(message: framework_pb2.ProgramDesc, declared: Declared) -> _Seeds:
    """For each variable that enters from outside with an open dim, a symbol (or None) per dim."""
    written = _written_names(message)
    seeds = {}
    for variable in _tensor_variables(message.blocks[0]):
        name, shape = variable.name, declared[(0, variable.name)]
        is_made = name in written and not variable.need_check_feed  # a loop may go on with what is fed
        if variable.persistable or is_made or -1 not in shape:
            continue
        rows = f'{WORDS if variable.type.lod_tensor.lod_level > 0 else BATCH}({name})'
        seeds[name] = [
            None if d != -1 else rows if i == 0 else f'{name}[{i}]' for i, d in enumerate(shape)
        ]
    return seeds


def _row_symbols(steps: List[List[Step]]) -> Dict[str, str]:
    """By rank table: the symbol of the rows that its sequences have at one time step; and that of the sentences, if any
    are pooled."""
    of_tables = [step for block in steps for step in block if step.kind in SEQUENCE_KINDS]
    tables = (n for step in of_tables if step.kind == 'lod_rank_table'
              for n in step.op.output('Out'))
    found = {table: f'{STEP}({table})' for table in tables}
    if any(step.kind == 'sequence_pool' for step in of_tables):
        found[SENTENCES] = f'{BATCH}(sentences)'
    return found


class _Prober:
    """Tries choices of the open dims on one program, whose own shapes are put back after each."""

    def __init__(self, program: core.ProgramDesc, message: framework_pb2.ProgramDesc,
                 declared: Declared) -> None:
        self._declared = declared
        self._message = message
        self._tensors = Tensors(program, declared)
        self._results: Results = {}
        self.products: Dict[str, Size] = {}  # by symbol
        self.steps = [
            self._steps_of(program.block(b.idx), b, numbers)
            for b, numbers in zip(message.blocks, likenesses(message))
        ]
        self.trips = trip_symbols(message)  # by the block of a loop
        self._counted = counted_arrays(message)

    def probe(self,
              seeds: _Seeds,
              rows: Mapping[str, str],
              dims: Mapping[str, int],
              at_most: bool = False,
              floors: bool = False) -> _Probe:
        """`rows` are what `_row_symbols` gives, by other names. `at_most`: what the data decides is as large as it can be; `floors`: what may
        have any size is as small as it can be."""
        dims = {**dims, **{s: size.evaluate(dims) for s, size in self.products.items()}}
        entered = {}
        for name, symbols in seeds.items():
            key = (0, name)
            entered[key] = tuple(dims[s] if s else d for s, d in zip(symbols, self._declared[key]))
            self._tensors.set(key, entered[key])
        counts = {table: dims[s] for table, s in rows.items() if s in dims}
        filled = FilledArrays(self._counted, {
            b: dims[s] for b, s in self.trips.items()
        }) if at_most else None
        inference = Inference(self._tensors, self.steps, {
            **self._declared,
            **entered
        }, counts, self._results, filled, floors)
        inference.run(0)
        self._tensors.put_back()
        return _Probe({
            **self._declared,
            **entered,
            **inference.largest
        }, frozenset(inference.failed))

    @property
    def has_floors(self) -> bool:
        """Whether an op makes what may have any size, but no less than some."""
        return any(step.kind in LEAST_KINDS for step in chain.from_iterable(self.steps))

    def find_products(self, seeds: _Seeds, rows: Mapping[str, str], symbols: Sequence[str],
                      base: _Probe) -> bool:
        """Looks for dims that are those of another input multiplied, such as the rows of labels that are laid flat: an op rejects all
        else. Whether there are some, which are no `symbols` any more."""
        dims = dict.fromkeys(symbols, PROBE)
        rejected, before = base.failed, -1
        wanted = self._dims_at(base)
        candidates = dict.fromkeys(each for name, shape in seeds.items()
                                   for each in _products(self._declared[0, name], shape)
                                   if each.evaluate(dims) in wanted)
        while before < len(self.products):  # what one is shows what another is
            before = len(self.products)
            for symbol, each in product(symbols, candidates):
                if symbol in each.dims or self.products.keys() & {symbol, *each.dims}:
                    continue
                self.products[symbol] = each
                tries = (dims, *(_doubled(symbols, factor) for factor in each.dims))
                failed = frozenset().union(*(self.probe(seeds, rows, t).failed for t in tries))
                if rejected - failed and failed - rejected <= self._behind(rejected):
                    rejected = failed
                else:
                    del self.products[symbol]
        return bool(self.products)

    def after(self, ops: FrozenSet[At]) -> Set[VariableKey]:
        """What these ops make, and all that follows from it, as far as its dims are open."""
        found: Set[VariableKey] = set()
        new = {key for block, j in ops for key in self.steps[block][j].outputs}
        while not new <= found:
            found.update(key for key in new if -1 in self._declared[key])
            new = {
                key for step in chain.from_iterable(self.steps)
                if not found.isdisjoint(step.touched) for key in step.outputs
                if -1 in self._declared[key]
            }
        return found

    def _behind(self, ops: FrozenSet[At]) -> Set[At]:
        """The ops that follow from these, which could not be asked without what those make."""
        made = self.after(ops)
        return {(block, j)
                for block, steps in enumerate(self.steps)
                for j, step in enumerate(steps)
                if not made.isdisjoint(step.touched)}

    def surely_after(self, ops: FrozenSet[At]) -> Set[VariableKey]:
        """The same of what is only there where they have run: all of the main block, and what a loop or branch makes inside for itself."""
        found: Set[VariableKey] = set()
        for at in {block for block, _ in ops}:
            made = self.after(frozenset(op for op in ops if op[0] == at))
            found.update(key for key in made if at in self._around(key[0]))
        return found

    def _around(self, block: int) -> Iterator[int]:
        """A block, and those that it is in."""
        while block >= 0:
            yield block
            block = self._message.blocks[block].parent_idx

    def constants(self, failed: _Probe) -> List[int]:
        """Those of `_dims_at` that no open dim makes, and a single row."""
        return sorted({1, *(dim for dim in self._dims_at(failed) if 0 < dim < PROBE)})

    def _dims_at(self, failed: _Probe) -> Set[int]:
        """Dims of what the ops name that reject the dims of a probe; of those ops alone that do not follow from others."""
        made = self.after(failed.failed)
        steps = [self.steps[block][j] for block, j in failed.failed]
        first = [s for s in steps if made.intersection(s.touched).issubset(s.outputs)]
        return {dim for step in first for key in step.touched for dim in failed.shapes[key]}

    def _steps_of(self, block: core.BlockDesc, message: framework_pb2.BlockDesc,
                  numbers: List[int]) -> List[Step]:
        steps = []
        for j, (desc, number) in enumerate(zip(message.ops, numbers)):
            outputs = self._tensors_in(desc.outputs, message.idx)
            steps.append(
                Step(block.op(j), desc.type, self._blocks_of(block.op(j)),
                     self._tensors_in(desc.inputs, message.idx) + outputs, outputs, number))
        return steps

    def _blocks_of(self, op: core.OpDesc) -> Tuple[int, ...]:
        if len(self._message.blocks) == 1:
            return ()
        found: List[int] = []
        for name in op.attr_names():
            if op.attr_type(name) == core.AttrType.BLOCK:
                found.append(op._block_attr_id(name))
            elif op.attr_type(name) == core.AttrType.BLOCKS:
                found += op._blocks_attr_ids(name)
        return tuple(found)

    def _tensors_in(self, slots: Iterable[framework_pb2.OpDesc.Var],
                    index: int) -> List[VariableKey]:
        found = []
        for name in [name for slot in slots for name in slot.arguments]:
            block = index
            while block >= 0 and (block, name) not in self._declared:
                block = self._message.blocks[block].parent_idx
            if block >= 0:
                found.append((block, name))
        return found
