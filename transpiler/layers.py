"""memory_optimize for those who write layers: what `paddle.jit.to_static` makes of one is planned when it is made."""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass, field, replace
from functools import partial
from typing import (Any, Callable, Dict, FrozenSet, Hashable, Iterable, List, Mapping, Optional,
                    Sequence, Set, Tuple)

from rich.table import Table

from transpiler import arguments
from transpiler.analysis.kept import given_bytes, kept_bytes
from transpiler.analysis.owners import kept_by_layer, layers_of_ops, peak_by_layer
from transpiler.backends.base import Backend, MadeOf, Replanned, StepBytes, Traced, Watching
from transpiler.backends.installed import LayersAround, collects_garbage, functions_of, layers_of, step_bytes, watch
from transpiler.errors import InvalidArgumentError, MemoryBudgetError, TranspilerError
from transpiler.flow import Decision, keep_heap, rewrite
from transpiler.heap import Keeper, Kept
from transpiler.ir.boundary import read_again
from transpiler.planning import Plan, PlanOptions
from transpiler.plain import printable
from transpiler.report import HeapReport, MeasuredReport, MemoryReport
from transpiler.report.data import human
from transpiler.report.text import (add_row, measured_line, order_line, measured_tables,
                                    plain_console, plain_table, size_lines, text_width)
from transpiler.request import Request
from transpiler.runtime import COLLECTING

_REPORT = '_memory_report'  # of a static function: who plans its programs
_MOST_ROWS = 10
_NONE_YET = (
    'No program yet: Paddle makes one when the layer is called, and none of what it runs as it is written, as a loop over '
    'tensors with full_graph=False.')


@dataclass(frozen=True)
class ProgramReport:
    """One program of a layer. Bytes are predicted for one call; resting memory, parameters above all, is not counted.

    Attributes:
        function: the function that it was made of, as a path in the layer.
        traced: for training or not, and of which inputs.
        report: of the program; its `peak_bytes_*` count all gradients at the end, as the optimizer runs later. None if it
            could not be planned.
        kept_before: bytes that are there between the forward and the backward part, with outputs and inputs, untouched.
        kept_after: the same as planned.
        kept_by_layer: bytes of `kept_before` and `kept_after` by the path, in the layer that memory_optimize was given, of the
            layer that makes them: the innermost that is known from the parameters which are read before and after. '' is that
            layer itself, where inputs are counted, and all that is kept where no layer is known.
        peak_by_layer: bytes of the report's `peak_bytes_before` and `peak_bytes_after` by the path of the layer that has made what
            exists at that moment, told as above; behind the boundary by the parameters that gradients are made with. A
            parameter's gradient is its layer's. They add up to the peaks.
        seconds_by_layer: of the report's extra time (`recompute.extra_seconds`, predicted), the seconds of each layer: those of its
            operators that run again, told as above. What loops and branches inside run again is counted
            with the layer around all of them.
        step: what a step holds besides: parameters, gradients, and what the optimizer keeps if it was given.
        step_bytes: what a step that runs this program once needs at the most while it runs, `step` included: what `budget` limits. 0 if it
            could not be planned.
        why_not: why it is untouched.
    """

    function: str
    traced: Traced
    report: Optional[MemoryReport] = None
    kept_before: int = 0
    kept_after: int = 0
    kept_by_layer: Mapping[str, Tuple[int, int]] = field(default_factory=dict)
    peak_by_layer: Mapping[str, Tuple[int, int]] = field(default_factory=dict)
    seconds_by_layer: Mapping[str, float] = field(default_factory=dict)
    step: StepBytes = StepBytes({})
    step_bytes: int = 0
    why_not: str = ''


@dataclass
class LayerReport:
    """What memory_optimize has done for a layer so far. Each program that Paddle makes of it adds an entry to `programs`: one
    for each kind of inputs, and for training and evaluation. Untouched programs compute the same, and say why.
    """

    programs: List[ProgramReport] = field(default_factory=list)
    measured: Optional[MeasuredReport] = None  # by verify_runs
    heap: HeapReport = HeapReport({}, 'heap=False')  # kept ahead of each step
    _undo: List[Callable[[], None]] = field(default_factory=list, repr=False)

    def release(self) -> None:
        """Takes the layer back to what Paddle makes of it, from the next call on. What has been reported stays."""
        while self._undo:
            self._undo.pop()()

    def __getstate__(self) -> Dict[str, Any]:
        """Copies and pickles say what this one says; the layer is this one's to release."""
        return {**vars(self), '_undo': []}

    def __str__(self) -> str:
        console = plain_console(file=io.StringIO(), width=text_width())
        console.print(_programs_table(self.programs) if self.programs else _NONE_YET)
        for each in self.programs:
            if each.kept_by_layer:
                console.print(_kept_table(each))
            if each.peak_by_layer:
                console.print(_peak_table(each))
            if each.step_bytes:
                console.print(f'A step needs at most {human(each.step_bytes)}: '
                              f'{_parts_of(each.step, each.step_bytes)}.')
            for line in _lines(each.report) if each.report else ():
                console.print(f'{each.function} ({each.traced.mode}): {line}')
            if each.why_not:
                console.print(printable(f'{each.function} ({each.traced.mode}): {each.why_not}'))
        for table in measured_tables(self.measured, self._predicted()):
            console.print(table)
        for line in measured_line(self.measured, 'outputs, gradients'):
            console.print(printable(line))
        console.print(str(self.heap))
        return console.file.getvalue().rstrip()

    def _predicted(self) -> List[int]:
        """Peaks before and after, where one program is all that ran."""
        reports = [each.report for each in self.programs if each.report is not None]
        if len(reports) != 1 or len(self.programs) != 1:
            return []
        return [reports[0].peak_bytes_before, reports[0].needed_bytes]


def _lines(report: MemoryReport) -> List[str]:
    return order_line(report) + size_lines(report)


def optimize_layer(target: Any,
                   request: Request,
                   options: PlanOptions,
                   print_log: bool = False,
                   optimizer: Any = None,
                   heap: Optional[str] = None) -> LayerReport:
    """Watches the static functions of `target`, which `optimizer` trains. Those that are watched keep what they were told first.
    `heap`: how that of the process is kept ahead of each step, if it is.

    Raises:
        TranspilerError: bad arguments, no static function, or a Paddle whose layers nobody knows.
    """
    _check(request)
    functions = functions_of(target)
    report, so_far = known_report(target) or LayerReport(), _SoFar()
    if not report.heap.between_runs:
        report.heap = keep_heap(None if heap is None else Kept(0, heap == 'small'),
                                collects_garbage, so_far.keep)
    for name, function in functions.items():
        if hasattr(function, _REPORT):
            continue
        step = step_bytes(target, function, optimizer)
        planner = _Planner(name, layers_of(target, function), step, request, options, report,
                           print_log, so_far)
        watched = watch(function, planner)
        setattr(function, _REPORT, report)
        report._undo.append(lambda f=function, w=watched: _let_go(f, w))
    return report


def known_report(target: Any) -> Optional[LayerReport]:
    """That of an earlier call for a static function of `target`; raises TranspilerError if it has none."""
    functions = functions_of(target).values()
    return next((getattr(f, _REPORT) for f in functions if hasattr(f, _REPORT)), None)


def _check(request: Request) -> None:
    """What can be said before there is a program."""
    for argument, given in (('fetch_list', request.fetch_list), ('skip_opt_set',
                                                                 request.skip_opt_set)):
        if given is not None:
            raise InvalidArgumentError(
                f'{argument} names variables of programs; of a layer, all that it returns is kept')
    request.checked()
    arguments.runtime_of(request.runtime, COLLECTING)


def _let_go(function: Any, watched: Watching) -> None:
    delattr(function, _REPORT)
    watched.stop()


@dataclass
class _SoFar:
    """What programs of one layer keep that have run in the step so far; each function of it is called once a step.

    Stretches that Paddle finds in bytecode, and layers that are static each for itself, are several programs.
    """

    _called: Set[str] = field(default_factory=set)
    _keeper: Optional[Keeper] = None
    _planned: Dict[Hashable, Tuple[int, MadeOf]] = field(default_factory=dict)  # bytes kept
    _ran: Dict[Hashable, None] = field(default_factory=dict)

    def keep(self, keeper: Keeper) -> bool:
        self._keeper = keeper
        return True

    def began(self, function: str) -> None:
        if function in self._called:  # so this is the next step
            self._called.clear()
            self._ran.clear()
        if self._keeper is not None and not self._called:
            self._keeper.before_run()
        self._called.add(function)

    def planned(self, made: MadeOf, kept: int) -> None:
        self._planned[made.program] = (kept, made)

    def ran(self, program: Hashable) -> None:
        if program in self._planned:
            self._ran[program] = None

    def before(self, made: MadeOf) -> Tuple[int, FrozenSet[str]]:
        """Bytes that are kept when `made` runs, and the parameters of the programs that have come to their turn then."""
        others = [self._planned[other] for other in self._ran if other != made.program]
        names = made.parameters.union(*(each.parameters for _, each in others))
        return sum(kept for kept, _ in others), names


@dataclass(frozen=True)
class _Planner:
    """Plans the programs of one function. What goes wrong leaves a program as it is: the caller is in the middle of a step."""

    function: str
    layers: Callable[[], LayersAround]
    step: StepBytes
    request: Request
    options: PlanOptions
    report: LayerReport
    print_log: bool
    so_far: _SoFar

    def began(self) -> None:
        self.so_far.began(self.function)

    def ran(self, program: Hashable) -> None:
        self.so_far.ran(program)

    def plan(self, backend: Backend, target: Any, traced: Traced, made: MadeOf) -> Replanned:
        before, parameters = self.so_far.before(made)
        step = replace(self.step, before=before)
        try:
            layers = self.layers()
            decision = self._decision(backend, target, step, parameters)
        except Exception as error:  # whatever it is, the caller's step goes on with the program as it was
            why_not = str(error) if isinstance(error, TranspilerError) else repr(error)
            if isinstance(error, MemoryBudgetError):
                why_not = self._over_budget(error, step)
            warnings.warn(f'memory_optimize: {self.function} is untouched: {why_not}', stacklevel=2)
            self._add(ProgramReport(self.function, traced, why_not=why_not))
            return Replanned()
        reported = _reported(self.function, traced, decision, layers, step)
        self.so_far.planned(made, reported.kept_after)
        self._add(reported)
        if decision.written is None:
            return Replanned()
        return Replanned(True, read_again(decision.plan.original, decision.plan.graph))

    def _decision(self, backend: Backend, target: Any, step: StepBytes,
                  parameters: FrozenSet[str]) -> Decision:
        """Of a program with a part of the layer's parameters others come later in the step: it gets that part of what the budget
        leaves, or if that is too little as little as it can do with."""
        wanted = replace(self.request, besides=_besides(step))
        tried = partial(self._check_update, step)
        budget = arguments.byte_count('budget', self.request.budget)
        mine, everything = (sum(step.tensors[name]
                                for name in names)
                            for names in (step.parameters & parameters, step.parameters))
        if budget is not None and mine < everything:
            fixed = sum(_besides(step).values())
            part = fixed + max(0, budget - fixed) * mine // everything
            try:
                return rewrite(backend,
                               target,
                               replace(wanted, budget=part),
                               self.options,
                               tried=tried)
            except MemoryBudgetError as error:
                wanted = replace(wanted, budget=min(budget, error.held_bytes + error.best_bytes))
        return rewrite(backend, target, wanted, self.options, tried=tried)

    def _check_update(self, step: StepBytes, decision: Decision) -> None:
        """Raises MemoryBudgetError if the budget has less than the optimizer needs when the program is through."""
        budget = arguments.byte_count('budget', self.request.budget)
        needed = _updating(step, decision) - step.before  # by then nothing is kept
        if budget is not None and decision.held_bytes + needed > budget:
            raise MemoryBudgetError('', needed, decision.held_bytes)

    def _over_budget(self, error: MemoryBudgetError, step: StepBytes) -> str:
        """What does not fit, in one line."""
        needed = error.held_bytes + error.best_bytes
        return (
            f'budget={self.request.budget!r} is less than the {needed} bytes that a step needs: '
            f'{_parts_of(step, needed)}')

    def _add(self, made: ProgramReport) -> None:
        self.report.programs.append(made)
        if self.print_log:
            print(self.report)


def _reported(function: str, traced: Traced, decision: Decision, layers: LayersAround,
              step: StepBytes) -> ProgramReport:
    plan = decision.plan
    why_not = '' if decision.written is not None else decision.report.note
    made = layers_of_ops(plan.original, *layers)
    return ProgramReport(function,
                         traced,
                         decision.report,
                         kept_before=sum(kept_bytes(plan.original, plan.before).values()),
                         kept_after=sum(kept_bytes(plan.graph, plan.after).values()),
                         kept_by_layer=_by_layer(kept_by_layer, plan, made, layers[1][-1]),
                         peak_by_layer=_by_layer(peak_by_layer, plan, made, layers[1][-1]),
                         seconds_by_layer=_seconds_by_layer(plan, made, layers[1][-1]),
                         step=step,
                         step_bytes=decision.held_bytes +
                         max(plan.sure_bytes,
                             _updating(step, decision) - step.before),
                         why_not=why_not)


def _besides(step: StepBytes) -> Dict[str, int]:
    """As a request has it. No tensor has a name with a space."""
    return {
        **step.tensors, 'all gradients': step.gradients,
        'all state': step.state,
        'all that is kept': step.before
    }


def _updating(step: StepBytes, decision: Decision) -> int:
    """Bytes besides those that are held, while the optimizer works: gradients have been added to those that are."""
    return given_bytes(decision.plan.original, decision.plan.before) + step.updating


def _parts_of(step: StepBytes, needed: int) -> str:
    """What the bytes of a step are for."""
    state = f'what {step.optimizer} keeps {human(step.state)}' if step.optimizer else (
        'what the optimizer keeps is not counted (optimizer=)')
    kept = f', what programs before it keep {human(step.before)}' if step.before else ''
    program = needed - sum(step.tensors.values()) - step.gradients - step.state - step.before
    return (
        f'parameters and buffers {human(sum(step.tensors.values()))}, gradients of the step before '
        f'{human(step.gradients)}, {state}{kept}, the program or the update {human(program)}')


def _by_layer(shares: Callable[..., Dict[str, int]], plan: Plan, made: Mapping[int, str],
              otherwise: str) -> Dict[str, Tuple[int, int]]:
    """Before and after, of all that have any of the bytes, most first."""
    before = shares(plan.original, plan.before, made, otherwise)
    after = shares(plan.graph, plan.after, made, otherwise)
    found = {name: (before.get(name, 0), after.get(name, 0)) for name in {**before, **after}}
    return dict(sorted(found.items(), key=_most_first))


def _seconds_by_layer(plan: Plan, made: Mapping[int, str], otherwise: str) -> Dict[str, float]:
    """Extra seconds of all that run again, most first."""
    found = {otherwise: plan.extra_seconds} if plan.extra_seconds else {}
    again = plan.recomputed.by_origin if plan.recomputed else {}
    for origin, seconds in again.items():
        layer = otherwise if origin is None else made.get(origin, otherwise)
        found[layer] = found.get(layer, 0.0) + seconds
    return dict(sorted(found.items(), key=lambda each: (-each[1], each[0])))


def _most_first(row: Tuple[str, Tuple[int, int]]) -> Tuple[int, str]:
    return -max(row[1]), row[0]


def _kept_table(made: ProgramReport) -> Table:
    nothing = dict.fromkeys(made.seconds_by_layer, (0, 0))
    return _layers_table('Kept for backward by layer', made, {
        **nothing,
        **made.kept_by_layer
    }, {'more time': lambda paths: _share(made, paths)})


def _peak_table(made: ProgramReport) -> Table:
    return _layers_table('There at the peak by layer', made, made.peak_by_layer, {})


def _layers_table(title: str, made: ProgramReport, bytes_of: Mapping[str, Tuple[int, int]],
                  more: Mapping[str, Callable[[Iterable[str]], str]]) -> Table:
    """The layers that have most; the others in one row. `more` are further columns: what to say of some layers."""
    traced = made.traced
    table = plain_table(f'{title}: {made.function} ({traced.mode}, {traced.inputs})')
    for column in ('layer', 'before', 'after', *more):
        table.add_column(column, justify='left' if column == 'layer' else 'right')
    rows = sorted(bytes_of.items(), key=_most_first)
    others = dict(rows[_MOST_ROWS:])
    shown = [(path or f'{made.function} itself', (path,), each) for path, each in rows[:_MOST_ROWS]]
    if others:
        shown.append((f'{len(others)} more', tuple(others), tuple(map(sum, zip(*others.values())))))
    for said, paths, (before, after) in shown:
        add_row(table, said, human(before), human(after), *(each(paths) for each in more.values()))
    return table


def _share(made: ProgramReport, paths: Iterable[str]) -> str:
    """Of a step, what `paths` add to it."""
    step = made.report.recompute.step_seconds if made.report and made.report.recompute else 0.0
    spent = sum(made.seconds_by_layer.get(path, 0.0) for path in paths)
    return f'{spent / step if step else 0.0:.1%}'


def _programs_table(programs: Sequence[ProgramReport]) -> Table:
    table = plain_table('Memory of the layer, above resting: before, after')
    for column in ('function', 'for', 'inputs', 'peak', 'kept for backward', 'more time'):
        table.add_column(column)
    for each in programs:
        add_row(table, each.function, each.traced.mode, each.traced.inputs, *_figures(each))
    return table


def _figures(made: ProgramReport) -> List[str]:
    report = made.report
    if report is None:
        return ['', '', '']
    again = report.recompute
    share = again.extra_seconds / again.step_seconds if again and again.step_seconds else 0.0
    return [
        f'{human(report.peak_bytes_before)}, {human(report.peak_bytes_after)}',
        f'{human(made.kept_before)}, {human(made.kept_after)}' if made.kept_before else '',
        f'{share:.1%}',
    ]
