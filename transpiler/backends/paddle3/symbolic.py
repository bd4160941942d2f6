"""Shapes with several open dims: what Paddle's own symbolic inference says of them.

It writes each result's dims into an attribute, as expressions of one symbol for each open dim of an input. Their values for some
choices of those show how each dim depends on them, as in `paddle2.shapes`. The program itself stays as it is: a clone is asked.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from fractions import Fraction
from functools import partial
from typing import AbstractSet, Any, Dict, FrozenSet, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

import paddle
from paddle import _C_ops
from paddle.base import core
from paddle.base.libpaddle import pir

from transpiler.backends.fitted_shapes import PROBE, fit
from transpiler.backends.paddle3.attributes import given_attributes
from transpiler.backends.paddle3.blocks import POP, WHILE, blocks_of, kept_for
from transpiler.backends.paddle3.brief_stacks import brief_stacks
from transpiler.backends.paddle3.carried import Carried, carries_open, follow, shut, walk
from transpiler.backends.paddle3.dim_expressions import Bound, Rounding, alike, broadcast, expressions, most, not_rounded, rounded_down, substituted, symbols_of, value_of
from transpiler.backends.paddle3.flattened import FLATTENS
from transpiler.backends.paddle3.hushed import hushed
from transpiler.backends.paddle3.marks import rows_of
from transpiler.backends.paddle3.misled import misled
from transpiler.backends.paddle3.naming import DECLARATIONS, SPLIT, bare_kind, declared_name
from transpiler.backends.paddle3.shapes import GRADIENT
from transpiler.backends.paddle3.tensors import Shape
from transpiler.backends.paddle3.tied_dims import learn
from transpiler.backends.ties import tied_together
from transpiler.backends.paddle3.witness import has_one, made_of
from transpiler.ir import Size
from transpiler.ir.symbols import BATCH

_SAID = 'sym_shape_str'
_SMALL_PROBES = (1, 12, 33)  # where strides round, too
_NO_DIM = 2**30  # of what is as small as that: the end of a slice that has none
_SPATIAL = 2  # dims ahead of height and width
_TRANSPOSED = ('conv2d_transpose', 'conv3d_transpose', 'depthwise_conv2d_transpose')
_Key = str  # the id of a value
_Dims = Tuple[int, ...]


class Inferred(NamedTuple):
    """The shape of a result, or one that no run goes beyond; neither, where a dim depends on data. `guessed`: nobody has said so."""

    shape: Optional[Shape] = None
    at_most: Optional[Shape] = None
    guessed: bool = False


NOTHING = Inferred()


class Inference(NamedTuple):
    """By the id of a value, what Paddle's inference says of results with open dims, and of what loops are given: nothing, where it has called
    a dim by a name that no input has. Ids of those of which Paddle declares the dims of one trip, or of one branch, alone."""

    known: Mapping[_Key, Inferred]
    loose: FrozenSet[_Key]


class _Result(NamedTuple):
    """A result: the dims that Paddle declares, below 0 where open, their expressions, and whether those are declared that it has."""

    op: Any
    declared: _Dims
    dims: Sequence[ast.expr]
    trusted: bool = True


def has_open_inputs(program: Any) -> bool:
    return any(d < 0 for op in walk(program.global_block()) if op.name() in DECLARATIONS
               for d in _dims(op.result(0)))  # yapf: disable


@brief_stacks()
def infer(program: Any) -> Inference:
    """Of all values."""
    carries = carries_open(program)
    results = _results(program, carries)
    shares = {_share_name(r.op): rows_of(r.op) for r in results.values() if rows_of(r.op)}
    sizes = _meanings(program, results, apart=not shares)
    sizes.update((name, Size.dim(name)) for name in shares)
    carried = follow(program, partial(_said_of, results), sizes) if carries else Carried()
    symbols = sorted(set().union(*(size.dims for size in sizes.values())))
    probes = [_probe(results, sizes, dict.fromkeys(symbols, PROBE), carried)]
    for symbol in symbols:
        dims = {s: PROBE * (2 if s == symbol else 1) for s in symbols}
        probes.append(_probe(results, sizes, dims, carried))
    small = [
        _probe(results, sizes, dict.fromkeys(symbols, value), carried) for value in _SMALL_PROBES
    ]
    bounds, unsure = _bounds(results, sizes, carried), _unsure(results, sizes)
    known: Dict[_Key, Inferred] = {}
    for key, result in results.items():
        seen = [probe[key] for probe in (*probes, *small) if key in probe]
        # In loops what is declared without open dims may be of one trip.
        said = None if carries and min(result.declared, default=0) >= 0 else NOTHING
        if len(seen) == len(probes) + len(small):
            said = _fitted(result, seen, symbols, bounds.get(key))
        if result.op.name() in DECLARATIONS and min(result.declared, default=0) < 0:
            said = Inferred(bounds[key])  # its dims themselves, however large their product is
        if has_one(result.op):
            said = _witnessed(key, result.op, (*probes, *small), known) or said
        if said is not None and unsure and any(unsure & symbols_of(dim) for dim in result.dims):
            said = said._replace(guessed=True)
        known.update({} if said is None else {key: said})
    known.update(_largest(carried, bounds))
    return Inference({k: _of_the_batch(v, shares) for k, v in known.items()}, carried.loose)


def of_copy(inference: Inference, program: Any, copy_of_it: Any) -> Inference:
    """What is known of a copy of the program that was asked: each asking leaves a megabyte behind in Paddle (ResNet-50)."""
    ops = zip(walk(program.global_block()), walk(copy_of_it.global_block()))
    ids = {a.id: b.id for pair in ops for a, b in zip(*map(_values, pair))}
    return Inference({
        ids[key]: said for key, said in inference.known.items() if key in ids
    }, frozenset(ids[key] for key in inference.loose if key in ids))


def _of_the_batch(said: Inferred, shares: Mapping[str, Fraction]) -> Inferred:
    """With a share of the batch in the place of the rows of a part."""
    rows = {name: Bound(Size.dim(BATCH) * share) for name, share in shares.items()}

    def of(shape: Optional[Shape]) -> Optional[Shape]:
        return shape and tuple(substituted(Bound(d), rows).above for d in shape)

    return said._replace(shape=of(said.shape), at_most=of(said.at_most)) if rows else said


def _largest(carried: Carried, bounds: Mapping[_Key, Shape]) -> Iterator[Tuple[_Key, Inferred]]:
    """Of loose values what they are at the most."""
    for key in carried.loose:
        made = carried.made.get(key)
        bound = tuple(map(most, made)) if made is not None else bounds.get(key)
        told = bound is not None and key not in carried.untold
        yield key, Inferred(at_most=bound) if told else NOTHING


def _fitted(result: _Result, seen: Sequence[_Dims], symbols: Sequence[str],
            bound: Optional[Shape]) -> Optional[Inferred]:
    """By the dims `seen` in all probes. None if the operator declares others, or all of them."""
    declared = result.declared
    base, *doubled = seen[:-len(_SMALL_PROBES)]
    at_small = [(value, dims)
                for value, dims in zip(_SMALL_PROBES, seen[-len(_SMALL_PROBES):])
                if min(dims, default=0) >= 0]  # or nothing is as small as that
    known = [base, *doubled, *(dims for _, dims in at_small)]
    if any(min(dims, default=0) < 0 for dims in known) or any(
            max(dims, default=0) > _NO_DIM for _, dims in at_small):
        return None
    agrees = all(
        len(dims) == len(declared) and all(d in (e, -1) or d < 0
                                           for d, e in zip(declared, dims))
        for dims in known)
    is_open = min(declared, default=0) < 0
    if result.trusted and agrees != is_open:
        return None
    shape = fit(base, dict(zip(symbols, doubled)), at_small)
    return Inferred(shape, bound if shape is None else None, guessed=result.trusted and not is_open)


def _witnessed(key: _Key, op: Any, probes: Sequence[Mapping[_Key, _Dims]],
               known: Mapping[_Key, Inferred]) -> Optional[Inferred]:
    """What the rule of `op` says where it contradicts the inference: that it has all of its operand, or some; None where it does not."""
    source = op.operand_source(0).id
    seen = [(probe[source], probe[key]) for probe in probes if key in probe and source in probe]
    made = [made_of(op, given) for given, _ in seen]
    if all(own in (None, said) for own, (_, said) in zip(made, seen)):
        return None
    whole = known.get(source, NOTHING)
    if whole.shape is not None and all(own == given for own, (given, _) in zip(made, seen)):
        return Inferred(whole.shape, guessed=True)
    return Inferred(at_most=whole.shape or whole.at_most, guessed=True)


def _said_of(results: Mapping[_Key, _Result], value: Any) -> Optional[Sequence[ast.expr]]:
    return results[value.id].dims if value.id in results else None


def _results(program: Any, whole: bool) -> Dict[_Key, _Result]:
    """Those with an expression for each dim, in the order of the program. If `whole`, not of open dims alone: with what loops are
    given, which is open in the copy that is asked where what they begin with is."""
    opened: Dict[_Key, _Dims] = {}
    while True:
        found = _asked(program, whole, opened)
        more = shut(program, partial(_said_of, found)) if whole else {}
        if more.keys() <= opened.keys():
            return found
        opened.update(more)


def _asked(program: Any, whole: bool, opened: Mapping[_Key, _Dims]) -> Dict[_Key, _Result]:
    """What the inference says if the values in `opened` are declared with those dims."""
    clone = program.clone()
    pairs = list(zip(walk(program.global_block()), walk(clone.global_block())))
    for value, copy in (each for pair in pairs for each in zip(*map(_values, pair))):
        if value.id in opened:
            copy.set_type(pir.create_shaped_type(copy.type(), list(opened[value.id])))
    flattening = _flattening(clone)
    gone, doubted = {op.id() for op in flattening}, misled(program)
    asked = [
        each for op, twin in pairs if twin.id() not in gone
        for each in _sayers(clone, op, twin, whole, doubted)
    ]
    _take_out(clone, flattening)
    _run_inference(clone)
    found, parsed = {}, {}
    for op, value, twin in asked:
        said = given_attributes(twin).get(_SAID, '')
        dims = parsed[said] if said in parsed else parsed.setdefault(said, expressions(said))
        if dims is not None:
            declared = _dims(value)
            # Where loops make something longer Paddle declares the dims of one trip.
            trusted = value.id not in doubted
            taken = _as_declared(declared, dims) if trusted and not whole else dims
            found[value.id] = _Result(op, declared, taken, trusted)
    return _in_shares(found)


def _in_shares(results: Dict[_Key, _Result]) -> Dict[_Key, _Result]:
    """With a symbol for the rows of each part of the batch that is run alone, of which the inference says how they were cut out."""
    parts = _Parts({
        ast.dump(result.dims[0]): _share_name(result.op)
        for result in results.values()
        if result.dims and not isinstance(result.dims[0], ast.Name) and rows_of(result.op)
    })
    if not parts.names:
        return results
    return {
        key: result._replace(dims=[parts.visit(copy.deepcopy(d)) for d in result.dims])
        for key, result in results.items()
    }


class _Parts(ast.NodeTransformer):

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names

    def visit(self, node: ast.AST) -> Any:
        name = self.names.get(ast.dump(node))
        return self.generic_visit(node) if name is None else ast.Name(name)


def _share_name(op: Any) -> str:
    return f'{rows_of(op)} of the rows'


def _as_declared(declared: _Dims, dims: Sequence[ast.expr]) -> Sequence[ast.expr]:
    """With what the operator declares in the place of symbols."""
    if len(declared) != len(dims) or not any(d >= 0 and isinstance(e, ast.Name)
                                             for d, e in zip(declared, dims)):
        return dims
    return [
        ast.Constant(d) if d >= 0 and isinstance(e, ast.Name) else e
        for d, e in zip(declared, dims)
    ]


def _values(op: Any) -> List[Any]:
    """What it makes, and what the trips of a loop are given."""
    return [*op.results(), *(blocks_of(op)[0].args() if op.name() == WHILE else ())]


def _sayers(clone: Any, op: Any, twin: Any, whole: bool,
            doubted: AbstractSet[_Key]) -> Iterator[Tuple[Any, Any, Any]]:
    """`op`, each of its values, and the op of `clone` of which the inference says it: `twin`, of its first result, or one that copies. Of
    gradients it says nothing, and of copies of them what it takes them for."""
    results, silent = op.num_results(), whole and bare_kind(op).endswith(GRADIENT)
    for at, (value, copy) in enumerate(zip(_values(op), _values(twin))):
        itself = at == 0 < results and not silent
        # What is declared without open dims may be declared wrongly, as a sum of one of them and something.
        if _is_dense(copy) and (whole or itself or value.id in doubted or
                                at < results and min(copy.shape, default=0) < 0):
            within = blocks_of(twin)[0].ops[0] if at >= results else None
            yield op, value, twin if itself else _copied(clone, copy, twin, within)
        elif whole and copy.initialized() and copy.is_combine():
            yield op, value, twin  # the dims of a member: that something is said


def _run_inference(program: Any) -> None:
    passes = paddle.pir.PassManager()
    pir.infer_symbolic_shape_pass(passes, program)
    try:
        with hushed():
            passes.run(program)
    except Exception:  # pylint: disable=broad-except
        pass  # an operator that it does not know: what it has said until then holds


def _flattening(program: Any) -> List[Any]:
    """Ops that lay parameters side by side, as recurrent layers have them, behind those that take them apart again: the inference ends
    there."""
    found: List[Any] = []
    for op in walk(program.global_block()):
        if bare_kind(op) == FLATTENS and op.result(1).use_empty():
            takers = op.result(0).all_used_ops()
            if all(taker.name() == SPLIT for taker in takers):
                found += [*takers, op]
    return found


def _take_out(program: Any, ops: Sequence[Any]) -> None:
    """Lets go of `ops`; what others read of theirs are inputs of the same dims then."""
    for op in ops:
        with paddle.static.program_guard(program):
            paddle.pir.set_insertion_point_after(op)
            for value in [v for v in op.results() if not v.use_empty()]:
                name = f'flattened_{value.id}'
                given = _C_ops.data(name, list(value.shape), value.dtype, core.CPUPlace())
                value.replace_all_uses_with(given)
        op.erase()


def _copied(program: Any, value: Any, behind: Any, before: Any = None) -> Any:
    """An op that copies `value`: `behind` that one, or `before` another."""
    with paddle.static.program_guard(program):
        if before is not None:
            paddle.pir.set_insertion_point(before)
        else:
            paddle.pir.set_insertion_point_after(behind)
        return paddle.assign(value).get_defining_op()


def _is_dense(value: Any) -> bool:
    return bool(value.initialized() and value.is_dense_tensor_type())


def _dims(value: Any) -> _Dims:
    return tuple(value.shape) if _is_dense(value) else ()


def _meanings(program: Any, results: Mapping[_Key, _Result], apart: bool) -> Dict[str, Size]:
    """What Paddle's symbols stand for: the rows of most inputs are the batch, or where none has open rows the first open dim is; what else
    is one, or made of others, is called after the first input that has it.

    Args:
        apart: whether the rows of an input may be others than the batch.
    """
    opened = list(_open_dims(results))
    ties = [*_ties(results), *([] if apart else [{s for s, _, is_row in opened if is_row}])]
    declared = [symbol for symbol, *_ in opened]
    known: Dict[str, Size] = {}
    for group in tied_together(declared, ties):
        first = next(filter(group.__contains__, declared), None)
        known.update({} if first is None else dict.fromkeys(group, Size.dim(first)))
    meanings = learn(program.global_block().ops, partial(_said_of, results), known)
    names = {symbol: Bound(Size.dim(name)) for symbol, name in _names(opened, meanings).items()}
    return {s: substituted(Bound(size), names).above for s, size in meanings.items()}


def _names(opened: Sequence[Tuple[str, str, bool]], meanings: Mapping[str, Size]) -> Dict[str, str]:
    """Of the symbols that stand for themselves."""
    free = {s: meanings[s] for s, *_ in opened if meanings[s] == Size.dim(s)}
    rows = Counter(meanings[s] for s, _, is_row in opened if is_row)
    batch = max(filter(rows.get, free.values()), key=lambda size: rows[size], default=None)
    names: Dict[str, str] = {}
    for symbol, size in free.items():
        called = [(not is_row, name) for s, name, is_row in opened if meanings[s] == size]
        names[symbol] = BATCH if size == batch else min(called, key=lambda each: each[0])[1]
    return names


def _unsure(results: Mapping[_Key, _Result], sizes: Mapping[str, Size]) -> Set[str]:
    """Symbols of two dims of one input that are taken for one: in a run either may be 1, and is broadcast to the other."""
    found: Set[str] = set()
    for result in results.values():
        if result.op.name() in DECLARATIONS:
            symbols = {s for dim in result.dims for s in symbols_of(dim) if s in sizes}
            alike = Counter(sizes[s] for s in symbols)
            found.update(s for s in symbols if alike[sizes[s]] > 1)
    return found


def _ties(results: Mapping[_Key, _Result]) -> Iterator[Set[str]]:
    """Symbols of one dim: what is broadcast to each other, and what gradients take of what their loops have kept for them, of which
    the inference may call the dims by other symbols."""
    for dim in (dim for result in results.values() for dim in result.dims):
        yield from ({e.id for e in sides if isinstance(e, ast.Name)} for sides in broadcast(dim))
    for op in {result.op.id(): result.op for result in results.values()}.values():
        for pair in _taken(op):
            known = [results[each.id].dims for each in pair if each.id in results]
            for taken, kept in zip(*known) if len(known) == 2 else ():
                if alike(taken) and alike(kept):
                    yield alike(taken) | alike(kept)


def _taken(op: Any) -> Iterator[Tuple[Any, Any]]:
    """Of an op that takes values off a stack, each with what was put there."""
    kept = kept_for(op) if op.name() == POP else ()
    yield from ((t, k) for t, k in zip(op.results(), kept) if t.initialized() and k.initialized())


def _open_dims(results: Mapping[_Key, _Result]) -> Iterator[Tuple[str, str, bool]]:
    """Of all inputs: the symbol of an open dim, what it may be called, and whether it may be the batch."""
    inputs = [(r.op, [(at, d.id)
                      for at, d in enumerate(r.dims)
                      if isinstance(d, ast.Name)])
              for r in results.values()
              if r.op.name() in DECLARATIONS]
    rows = any(at == 0 for _, dims in inputs for at, _ in dims)
    for op, dims in inputs:
        name = declared_name(op)
        for at, symbol in dims:
            is_row = at == 0 if rows else at == dims[0][0]
            yield symbol, f'{BATCH}({name})' if is_row else f'{name}[{at}]', is_row


def _probe(results: Mapping[_Key, _Result], sizes: Mapping[str, Size], dims: Mapping[str, int],
           carried: Carried) -> Dict[_Key, _Dims]:
    """The dims of results for these of inputs; without those that depend on anything else."""
    values = {symbol: Fraction(size.evaluate(dims)) for symbol, size in sizes.items()}
    for symbol, bound in carried.symbols.items():
        values.pop(symbol, None)
        if bound.exact:
            values[symbol] = Fraction(bound.above.evaluate(dims) - bound.below.evaluate(dims))
    found = _evaluated(results, values, rounded_down)
    return {key: tuple(map(int, made)) for key, made in found.items()}


def _bounds(results: Mapping[_Key, _Result], sizes: Mapping[str, Size],
            carried: Carried) -> Dict[_Key, Shape]:
    """What dims never go beyond: with what is divided not rounded down."""
    values = {symbol: Bound(size) for symbol, size in sizes.items()}
    values.update(carried.symbols)
    found = _evaluated(results, values, not_rounded)
    return {key: tuple(map(most, dims)) for key, dims in found.items()}


def _evaluated(results: Mapping[_Key, _Result], values: Dict[str, Any],
               rounded: Rounding) -> Dict[_Key, Tuple]:
    """The dims of results, of `values` of symbols; without those that depend on anything else. `rounded`: of quotients."""
    found: Dict[_Key, Tuple] = {}
    evaluated: Dict[int, Tuple] = {}  # by expressions: most results are like some other
    for key, result in results.items():
        if id(result.dims) not in evaluated:
            values.update(_new_symbols(result, found, values, rounded))
            try:
                evaluated[id(result.dims)] = tuple(
                    value_of(d, values, rounded) for d in result.dims)
            except (KeyError, ZeroDivisionError):
                continue
        found[key] = evaluated[id(result.dims)]
    return found


def _new_symbols(result: _Result, found: Mapping[_Key, Tuple], values: Mapping[str, Any],
                 rounded: Rounding) -> Dict[str, Any]:
    """What symbols stand for that the inference gives to results of which it knows nothing else."""
    first = result.op.operand_source(0) if result.op.num_operands() else None
    dims = found.get(first.id) if first is not None and first.initialized() else None
    if dims is None or any(not isinstance(d, ast.Name) for d in result.dims[_SPATIAL:]):
        return {}
    made = _spatial(result.op, dims[_SPATIAL:], rounded)
    return {d.id: size for d, size in zip(result.dims[_SPATIAL:], made) if d.id not in values}


def _spatial(op: Any, dims: Sequence[Any], rounded: Rounding) -> Sequence[Any]:
    """Height and width of what an interpolation by a factor, or a transposed convolution, makes of images of these `dims`."""
    kind, given = bare_kind(op), given_attributes(op)
    if not given.get('data_format', 'NCHW').startswith('NC'):
        return ()
    if kind.endswith('_interp'):
        return [rounded(d * Fraction(factor)) for d, factor in zip(dims, given.get('scale') or ())]
    if kind not in _TRANSPOSED or given.get('padding_algorithm') != 'EXPLICIT':
        return ()
    kernel, pads = _dims(op.operand_source(1))[_SPATIAL:], given['paddings']
    if len(pads) == len(dims):
        pads = [p for each in pads for p in (each, each)]
    return [
        d * stride + (dilation * (k - 1) + 1 - stride - before - behind)
        for d, k, stride, before, behind, dilation in zip(dims, kernel, given['strides'], pads[::2],
                                                          pads[1::2], given['dilations'])
    ]
