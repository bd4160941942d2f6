"""Saved programs of Paddle 3: what memory_optimize does to a program in memory, done to one in files.

A predictor runs the ops of such a program in their order and frees what nobody reads any more: an order is all it takes. It fuses
ops when it loads the program, so that OUT gives the bytes of IN under the same settings.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, FrozenSet, Mapping, Sequence, Tuple

import paddle

from transpiler.analysis.timeline import Timeline
from transpiler.backends.paddle3 import environment
from transpiler.backends.paddle3.importer import ImportedProgram, import_program
from transpiler.backends.paddle3.known_workspaces import look_up
from transpiler.backends.paddle3.marks import mark, mark_of
from transpiler.backends.paddle3.packing import dump, load
from transpiler.backends.paddle3.programs import LivePrograms
from transpiler.backends.settings import static_mode
from transpiler.errors import InvalidArgumentError, VerificationError
from transpiler.flow import Decision, rewrite
from transpiler.ir import Site
from transpiler.ir.text import printed
from transpiler.planning import PlanOptions
from transpiler.report.builder import build_report
from transpiler.request import Request
from transpiler.runtime import COLLECTING, Runtime, Upkeep
from transpiler.serving.chains import Chain
from transpiler.serving.given import check_fetched
from transpiler.serving.pir.files import SavedModel
from transpiler.serving.pir.in_parts import constants_first, run_in_parts
from transpiler.serving.pir.probing import Probe
from transpiler.serving.pir.row_operators import operators_of, row_view
from transpiler.serving.pir.sides import keep_sides
from transpiler.serving.row_view import RowView, key_of
from transpiler.serving.splitting import split
from transpiler.serving.wanted import Optimized, Serving, check_in_parts

_FUSES = (
    'The figures are those of the program as it is saved; the predictor fuses operators when it loads it, and needs less '
    'where it does.')
_NOT_HERE = ('{} is for programs of Paddle 2 (.pdmodel): {}')


class ServedPrograms(LivePrograms):
    """Programs that a predictor will run, whatever the flags of this process are."""

    @property
    def runtime(self) -> Runtime:
        return replace(COLLECTING, can=environment.ORDER_ALONE, upkeep=Upkeep())

    def read(self, target: Any, fetched: FrozenSet[str],
             skipped: FrozenSet[str]) -> ImportedProgram:
        imported = super().read(target, fetched, skipped)
        keep_sides(imported)
        return imported


def optimize_model(saved: SavedModel, request: Request, options: PlanOptions,
                   serving: Serving) -> Optimized:
    """Plans a saved program.

    Raises:
        TranspilerError: bad arguments, or a rewrite that was not proved equal.
    """
    environment.check_paddle()
    _check_wanted(saved, request, serving)
    if saved.for_inference:
        check_fetched(saved, request.names()[0])
        if request.runtime == 'executor':
            raise InvalidArgumentError(
                f'{saved.path} is an inference program. Use --runtime predictor; the result runs in the executor too'
            )
        request = replace(request, runtime='auto', fetch_list=None, budget=None)
    elif request.runtime == 'predictor':
        raise InvalidArgumentError(
            f'{saved.path} has no fetch operator, so no predictor can load it. '
            'Use --runtime executor')
    backend = ServedPrograms() if saved.for_inference else LivePrograms()
    program, started = load(saved.serialized), time.perf_counter()
    done = rewrite(backend, program, request, options)
    serialized = saved.serialized
    if done.written is not None:
        serialized = dump(program, saved.trainable)
        _check_same(program, load(serialized))
    if serving.in_parts and not (mark_of(saved.program) or done.imported.closed):
        options.progress('planning: in parts, tried on this machine')
        return _in_parts(saved, serialized, done, request, started)
    if saved.for_inference:
        done.report.note = ' '.join(filter(None, (done.report.note, _FUSES)))
    return Optimized(serialized, done.plan, done.dims, done.report)


def _in_parts(saved: SavedModel, given: bytes, done: Decision, request: Request,
              started: float) -> Optimized:
    """The program as it was `given`, with chains of operators in parts, and what the report says of that."""
    with static_mode():
        program = load(given)
        constants_first(program)
        whole = dump(program, saved.trainable)
        read = import_program(load(whole))
        view = row_view(read)
        known = {key_of(op): op.signature(view.shapes) for op in operators_of(read).values()}

        def measure(chains: Sequence[Chain]) -> Tuple[RowView, Timeline]:
            return _measured(whole, chains, done.dims)

        found = split(list(operators_of(read).values()),
                      known,
                      measure,
                      Probe(whole, saved, int(request.batch_size or 0)),
                      evenly=True)
        plan, serialized = done.plan, given
        if found.chains:
            parted = run_in_parts(whole, found.chains).program
            mark(parted)
            serialized = dump(parted, saved.trainable)
            _check_same(parted, load(serialized))
            view, after = measure(found.chains)
            gained = plan.after.peak_bytes - after.peak_bytes
            plan = replace(plan,
                           graph=view.graph,
                           after=after,
                           savings=[*plan.savings, ('run in parts', gained)])
    report = build_report(plan, COLLECTING, done.dims, done.report.assumed,
                          time.perf_counter() - started, f'{found} {_FUSES}')
    return Optimized(serialized, plan, done.dims, report)


def _measured(whole: bytes, chains: Sequence[Chain],
              dims: Mapping[str, int]) -> Tuple[RowView, Timeline]:
    """The program with `chains` in parts, its values under the names that they have in the whole."""
    parted = run_in_parts(whole, chains)
    read = import_program(parted.program)
    for i, value in read.values.items():
        new = read.graph.values[i]
        new.name = parted.names.get(value.id, f'{new.name}@parts')
    for op in read.graph.ops:  # none of them was made by a line of the user's
        op.label, op.site = '', Site()
    look_up(read)
    sizes = {**{symbol: 1 for symbol in read.graph.symbols()}, **dims}
    return row_view(read), Timeline(read.graph, COLLECTING, sizes)


def check_written(saved: SavedModel) -> None:
    """Raises InvalidArgumentError for a program that does not hold an order once it is in a file."""
    if not saved.for_inference:
        raise InvalidArgumentError(
            f'{saved.path} has no fetch operator: of programs that train, no file holds the order; call memory_optimize in '
            f'the process that trains (paddlepaddle {paddle.__version__})')


def _check_wanted(saved: SavedModel, request: Request, serving: Serving) -> None:
    if serving.in_parts:
        check_in_parts(saved.for_inference and request.runtime != 'executor', request)
        _check_cut(saved)
    for given, option, why in (
        (serving.release_inputs, '--release-inputs', 'a predictor of Paddle 3 keeps its inputs'),
        (not serving.onednn, '--no-onednn',
         'OUT follows config.disable_mkldnn(), as IN does')):  # yapf: disable
        if given:
            raise InvalidArgumentError(_NOT_HERE.format(option, why))


def _check_cut(saved: SavedModel) -> None:
    """Raises InvalidArgumentError for a program of which it is not known what a part of its rows is, or where."""
    fed = sorted(name for name, value in saved.inputs.items() if list(value.shape[:1]) == [-1])
    if len(fed) > 1:
        raise InvalidArgumentError(
            f'--in-parts splits the rows of one input, and {saved.path} has several of open rows: {", ".join(fed)}; nothing in '
            'a program of Paddle 3 says that they have as many')
    if any(op.num_regions()
           for op in saved.program.global_block().ops) and not mark_of(saved.program):
        raise InvalidArgumentError(
            f'--in-parts: {saved.path} has loops or branches of its own, which '
            'are not run in parts on Paddle 3')


def _check_same(program: object, again: object) -> None:
    """Raises VerificationError unless the file has what was proved, but for who made it."""
    with static_mode():
        graphs = [import_program(each).graph for each in (program, again)]
    for graph in graphs:
        for op in graph.ops:
            op.label, op.site = '', Site()
    if printed(graphs[0]) != printed(graphs[1]):
        raise VerificationError('Paddle writes the program as another one')
