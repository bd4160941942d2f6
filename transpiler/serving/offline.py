"""Saved programs: what memory_optimize does to a program in memory, done to one in files."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Dict, Optional, Sequence, Tuple

from paddle.base.proto import framework_pb2

from transpiler import arguments
from transpiler.analysis.timeline import Timeline
from transpiler.backends.paddle2 import environment
from transpiler.backends.paddle2.importer import ImportedProgram, declared, import_program, parse
from transpiler.backends.paddle2.programs import Serialized, SerializedPrograms
from transpiler.errors import InvalidArgumentError, MemoryBudgetError
from transpiler.flow import rewrite, write_proved
from transpiler.ir import RELEASE, Graph, Op, Size
from transpiler.passes.context import PassContext
from transpiler.passes.schedule import schedule
from transpiler.planning import Plan, PlanOptions
from transpiler.planning.plans import Recomputed
from transpiler.report.builder import build_report, resting_bytes
from transpiler.report.data import human
from transpiler.request import Request, check_names
from transpiler.runtime import COLLECTING, RETAINING
from transpiler.serving.again import computed_again
from transpiler.serving.chains import Chain
from transpiler.serving.enclosure import enclose, is_enclosed
from transpiler.serving.files import SavedProgram
from transpiler.serving.given import check_fetched
from transpiler.serving.in_parts import run_in_parts
from transpiler.serving.inputs import move_inputs
from transpiler.serving.layouts import PARAMETERS
from transpiler.serving.predictor import FusedProgram, fuse
from transpiler.serving.probing import Probe
from transpiler.serving.described import operators_of, row_view, signatures
from transpiler.serving.row_view import RowView
from transpiler.serving.splitting import split
from transpiler.serving.trial import try_import
from transpiler.serving.wanted import Optimized, Serving, check_in_parts

_KEPT_INPUTS = ('Inputs are kept, for runs that do not set them again. If every run does, '
                '--release-inputs needs {} less.')
_ALREADY = 'The program was written by an earlier optimize; it is unchanged.'


def optimize_saved(saved: SavedProgram,
                   request: Request,
                   options: PlanOptions,
                   serving: Serving = Serving()) -> Optimized:
    """Plans a saved program for the runtime that the request names; 'auto' is what the program is for.

    Raises:
        TranspilerError: bad arguments, a program that cannot be loaded, or a rewrite that was not proved equal.
    """
    environment.check_paddle()
    runtime = _runtime(saved, request.runtime)
    if serving.in_parts:
        check_in_parts(runtime == 'predictor', request)
    if runtime == 'predictor':
        return _for_predictor(saved, request, serving, options)
    return _for_executor(saved, request, options)


def _runtime(saved: SavedProgram, given: str) -> str:
    if given == 'auto':
        return 'predictor' if saved.for_inference else 'executor'
    if given == 'executor' and saved.for_inference:
        raise InvalidArgumentError(
            f'{saved.path} is an inference program: predictors may load it, and their passes misread programs '
            'that reuse names. Use --runtime predictor; the result runs in the executor too')
    if given == 'predictor' and not saved.for_inference:
        raise InvalidArgumentError(f'{saved.path} has no fetch operator, so no predictor can load '
                                   'it. Use --runtime executor')
    return given


def _for_executor(saved: SavedProgram, request: Request, options: PlanOptions) -> Optimized:
    try_import(saved)
    target = Serialized(saved.serialized)
    try:
        decision = rewrite(SerializedPrograms(), target, replace(request, runtime='executor'),
                           options)
    except MemoryBudgetError as error:
        raise MemoryBudgetError(
            f'no plan fits into {human(int(request.budget or 0))}, parameters and state included: the lowest '
            f'peak reached is {human(error.best_bytes)} above them', error.best_bytes) from error
    return Optimized(target.contents, decision.plan, decision.dims, decision.report)


def _for_predictor(saved: SavedProgram, request: Request, serving: Serving,
                   options: PlanOptions) -> Optimized:
    started = time.perf_counter()
    _check_names(saved, request)
    if is_enclosed(saved.message):
        return _unchanged(saved, request, started)
    options.progress("running Paddle's inference passes")
    fused = fuse(saved, serving.onednn)
    options.progress('planning: freed after the last use, schedule')
    old = import_program(fused.message.SerializeToString())
    _label(old.graph, _makers(import_program(saved.serialized)))
    # Enclosing shifts the numbers of blocks, and thereby the names of trip counts.
    symbols = old.symbols() | import_program(enclose(fused.message).SerializeToString()).symbols()
    dims, assumed = request.sizes(old.graph, old.inputs, symbols)
    before = Timeline(old.graph, RETAINING, dims)
    given, ordered = (_enclosed(m, old, dims) for m in (fused.message, _ordered(old, dims)))
    best = min((given, ordered), key=lambda e: e.after.peak_bytes)
    savings = [('freed after the last use', before.peak_bytes - given.after.peak_bytes),
               ('schedule', given.after.peak_bytes - best.after.peak_bytes)]
    kept, recomputed = best, None
    if not serving.in_parts and options.recompute:
        best, recomputed = _computed_again(kept, old, before, dims, request, options, serving)
        savings.append(('recompute', kept.after.peak_bytes - best.after.peak_bytes))
    moved = _enclosed(move_inputs(best.inner), old, dims)
    saved_by_moving = best.after.peak_bytes - moved.after.peak_bytes
    note = ''
    if serving.release_inputs:
        best = moved
        savings.append(('inputs given back', saved_by_moving))
    elif saved_by_moving and not serving.in_parts:
        note = _KEPT_INPUTS.format(human(saved_by_moving))
    if serving.in_parts:
        whole = best
        options.progress('planning: in parts, tried on this machine')
        best, note = _in_parts(whole, fused.parameters, saved, old, dims)
        savings.append(('run in parts', whole.after.peak_bytes - best.after.peak_bytes))
    plan = replace(_served(best, old, before),
                   savings=savings,
                   recomputed=recomputed,
                   step_seconds=options.cost.region_seconds(old.graph, 0, dims))
    report = build_report(plan, RETAINING, dims, assumed,
                          time.perf_counter() - started, note, _regions(old, best.program))
    # Paddle writes no file of no parameters, and does not load one.
    replaced = {PARAMETERS: fused.parameters} if fused.parameters else {}
    return Optimized(best.serialized, plan, dims, report, replaced)


def _served(enclosed: _Enclosed, old: ImportedProgram, before: Timeline) -> Plan:
    return Plan(old.graph, enclosed.program.graph, before, enclosed.after, served=True)


def _computed_again(best: _Enclosed, old: ImportedProgram, before: Timeline, dims: Dict[str, int],
                    request: Request, options: PlanOptions,
                    serving: Serving) -> Tuple[_Enclosed, Optional[Recomputed]]:
    """`best`, or, where a budget or `recompute` asks for less than it needs, a program that computes some again."""

    def needed(enclosed: _Enclosed) -> Plan:
        moved = _enclosed(move_inputs(enclosed.inner), old,
                          dims) if serving.release_inputs else enclosed
        return _served(moved, old, before)

    budget = arguments.byte_count('budget', request.budget)
    if budget is not None:
        budget -= resting_bytes(old.graph, dims)
    most = needed(best).sure_bytes
    if options.recompute == 'auto' if budget is None else most <= budget:
        return best, None
    options.progress('planning: recompute')
    made = computed_again(old.graph, dims, replace(options, budget=budget),
                          lambda plan: needed(_enclosed(_written(old, plan.graph), old, dims)))
    again = _enclosed(_written(old, made.graph), old, dims)
    return (again, made.recomputed) if needed(again).sure_bytes < most else (best, None)


def _in_parts(whole: _Enclosed, parameters: bytes, saved: SavedProgram, old: ImportedProgram,
              dims: Dict[str, int]) -> Tuple[_Enclosed, str]:
    """The same with chains of operators in parts, and what the report says of that."""

    def measure(chains: Sequence[Chain]) -> Tuple[RowView, Timeline]:
        enclosed = _enclosed(run_in_parts(whole.inner, chains), old, dims)
        return row_view(enclosed.program), enclosed.after

    probe = Probe(FusedProgram(whole.inner, parameters), whole.program, saved, dims)
    known = signatures(whole.inner, row_view(whole.program))
    found = split(operators_of(whole.inner), known, measure, probe)
    return _enclosed(run_in_parts(whole.inner, found.chains), old, dims), str(found)


def _check_names(saved: SavedProgram, request: Request) -> None:
    """What is not fetched by the program itself may be gone after Paddle's passes."""
    fetched, skipped = request.names()
    check_names(declared(parse(saved.serialized)), fetched, skipped)
    check_fetched(saved, fetched)


@dataclass(frozen=True)
class _Enclosed:
    """A program, and what becomes of it in a block of its own."""

    inner: framework_pb2.ProgramDesc
    serialized: bytes
    program: ImportedProgram
    after: Timeline


def _enclosed(inner: framework_pb2.ProgramDesc, old: ImportedProgram, dims: Dict[str,
                                                                                 int]) -> _Enclosed:
    serialized = enclose(inner).SerializeToString()
    program = import_program(serialized)
    _label(program.graph, _makers(old))
    _hand_over(program.graph)
    after = Timeline(program.graph, COLLECTING, dims)
    return _Enclosed(inner, serialized, program, after)


def _regions(old: ImportedProgram, new: ImportedProgram) -> Dict[int, int]:
    """By region of a program, the one of the enclosed program that has its ops: blocks are shifted by one."""
    found = new.block_regions
    return {r: found[b + 1] for b, r in old.block_regions.items() if b + 1 in found}


def _hand_over(graph: Graph) -> None:
    """An input whose buffer is moved to another variable, and that is emptied then, has no memory of its own."""
    emptied = {v for op in graph.ops if op.kind == RELEASE for v in op.writes()}
    for value in (graph.values[v] for v in emptied):
        if value.fed:
            value.size = Size.of(0)


def _ordered(program: ImportedProgram, dims: Dict[str, int]) -> framework_pb2.ProgramDesc:
    """The same ops in an order that needs less."""
    return _written(program, schedule(program.graph.copy(), PassContext(COLLECTING, dims)))


def _written(program: ImportedProgram, graph: Graph) -> framework_pb2.ProgramDesc:
    """What a pass made of the program, proved equal. No name is shared: predictors may load the result."""
    return parse(write_proved(SerializedPrograms(), program, graph).message.SerializeToString())


def _makers(program: ImportedProgram) -> Dict[str, Op]:
    """Ops that say where they were made, by the names of what they make."""
    graph = program.graph
    return {graph.values[v].name: op for op in graph.walk() for v in op.writes() if op.label}


def _label(graph: Graph, makers: Dict[str, Op]) -> None:
    """Paddle's passes drop where an op was made; the names of its results lead back to it."""
    for op in graph.ops:
        found = [makers[n] for n in (graph.values[v].name for v in op.writes()) if n in makers]
        if found and not op.regions:
            op.label, op.site = found[0].label, found[0].site


def _unchanged(saved: SavedProgram, request: Request, started: float) -> Optimized:
    try_import(saved)
    program = import_program(saved.serialized)
    dims, assumed = request.sizes(program.graph, program.inputs)
    timeline = Timeline(program.graph, COLLECTING, dims)
    plan = Plan(program.graph, program.graph, timeline, timeline, served=True)
    report = build_report(plan, RETAINING, dims, assumed, time.perf_counter() - started, _ALREADY)
    return Optimized(saved.serialized, plan, dims, report)
