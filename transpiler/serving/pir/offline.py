"""Saved programs of Paddle 3: what memory_optimize does to a program in memory, done to one in files.

A predictor runs the ops of such a program in their order and frees what nobody reads any more: an order is all it takes. It fuses
ops when it loads the program, so that OUT gives the bytes of IN under the same settings.
"""

from __future__ import annotations

from dataclasses import replace

import paddle

from transpiler.backends.paddle3 import environment
from transpiler.backends.paddle3.importer import import_program
from transpiler.backends.paddle3.packing import dump, load
from transpiler.backends.paddle3.programs import LivePrograms
from transpiler.backends.settings import static_mode
from transpiler.errors import InvalidArgumentError, VerificationError
from transpiler.flow import rewrite
from transpiler.ir.text import printed
from transpiler.planning import PlanOptions
from transpiler.request import Request
from transpiler.runtime import COLLECTING, Runtime, Upkeep
from transpiler.serving.given import check_fetched
from transpiler.serving.pir.files import SavedModel
from transpiler.serving.wanted import Optimized, Serving

_FUSES = (
    'The figures are those of the program as it is saved; the predictor fuses operators when it loads it, and needs less '
    'where it does.')
_NOT_HERE = ('{} is for programs of Paddle 2 (.pdmodel): {}')


class ServedPrograms(LivePrograms):
    """Programs that a predictor will run, whatever the flags of this process are."""

    @property
    def runtime(self) -> Runtime:
        return replace(COLLECTING, can=environment.runtime().can, upkeep=Upkeep())


def optimize_model(saved: SavedModel, request: Request, options: PlanOptions,
                   serving: Serving) -> Optimized:
    """Plans a saved program.

    Raises:
        TranspilerError: bad arguments, or a rewrite that was not proved equal.
    """
    environment.check_paddle()
    _check_wanted(serving)
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
    program = load(saved.serialized)
    done = rewrite(backend, program, request, options)
    serialized = saved.serialized
    if done.written is not None:
        serialized = dump(program, saved.trainable)
        _check_same(program, load(serialized))
    if saved.for_inference:
        done.report.note = ' '.join(filter(None, (done.report.note, _FUSES)))
    return Optimized(serialized, done.plan, done.dims, done.report)


def check_written(saved: SavedModel) -> None:
    """Raises InvalidArgumentError for a program that does not hold an order once it is in a file."""
    if not saved.for_inference:
        raise InvalidArgumentError(
            f'{saved.path} has no fetch operator: of programs that train, no file holds the order; call memory_optimize in '
            f'the process that trains (paddlepaddle {paddle.__version__})')


def _check_wanted(serving: Serving) -> None:
    for given, option, why in (
        (serving.in_parts, '--in-parts', 'nothing of Paddle 3 cuts and joins a batch yet'),
        (serving.release_inputs, '--release-inputs', 'a predictor of Paddle 3 keeps its inputs'),
        (not serving.onednn, '--no-onednn',
         'OUT follows config.disable_mkldnn(), as IN does')):  # yapf: disable
        if given:
            raise InvalidArgumentError(_NOT_HERE.format(option, why))


def _check_same(program: object, again: object) -> None:
    """Raises VerificationError unless the file has what was proved, but for who made it."""
    with static_mode():
        graphs = [import_program(each).graph for each in (program, again)]
    for graph in graphs:
        for op in graph.ops:
            op.label = ''
    if printed(graphs[0]) != printed(graphs[1]):
        raise VerificationError('Paddle writes the program as another one')
