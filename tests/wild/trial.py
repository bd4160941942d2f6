"""One generated program, untouched and optimized, in each executor mode: what is wrong with it, if anything."""
from __future__ import annotations

import ctypes
import hashlib
import importlib
import os
import re
import sys
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

import paddle

from tests.harness import (SEED, Case, Mode, Value, executor_mode, fresh_scope, prepared, snapshot)
from tests.harness import _set_learning_rate as set_learning_rate
from tests.harness import _state as state_of
from tests.memory import freeze
from tests.wild.children import Ended, in_child
from tests.wild.programs import Built, build
from tests.wild.recipes import Recipe, recipe
from tests.wild.seen import load
from tests.wild.verdict import Verdict
from transpiler import MemoryBudgetError, memory_optimize

MODES: Dict[str, Mode] = {
    'seq': Mode(order='sequential'),
    'default': Mode(),
    'serial': Mode(order='serial'),
    'hold': Mode(collect=False),
}
STEPS = 4
_SECONDS = 120.0
# Of so many programs one has a plan made for each mode.
_PLANNED_APART = 8
# So often is a peak looked at again. A collector that was late once may be in time at another try: peaks of later runs, which a busy
# machine makes twice and more of what they are, have as many tries as it takes.
_AGAIN = {'first': 4, 'later': 16}
_NEVER_RUN = sys.maxsize
# What the note says where Paddle itself adds to memory from run to run: of later runs nothing is sure then.
_PILES_UP = 'each run adds to memory, for good'
# Some programs give other bytes in one run of many: so often is the untouched one asked before one that differs is called wrong.
_REPEATS = 24
# Of a budget, in bytes: no program has less.
_TOO_LITTLE = 1
# A scalar that only the plan has, as what an order is held by.
_FEW_BYTES = 16
# What memory is filled with before anybody writes there, by M_PERTURB of malloc.h, when the untouched program is asked again: a kernel
# that reads what nobody has written gives the same bytes on one machine each time, and fails on another.
_M_PERTURB = -6
_FILLS = (0x01, 0xc0)
# Bytes that somebody allocates before, and keeps: so buffers lie elsewhere, by other multiples of 16, by which some kernels round.
_STIRS, _STIRRED = (16, 48, 80, 272), 4096


@dataclass(frozen=True)
class Run:
    """Digests of all values that a user can see, and bytes: at rest, and the highest after the first and the last run, and ahead of the
    first, as Paddle 2.6 cannot be made to forget what the startup program needed (4000024)."""

    values: Dict[str, str]
    resting: int
    first: int
    later: int
    begun: int = 0


def warm_up() -> None:
    """Imports what planning needs, and compiles, once for all children."""
    built = build(recipe(5))  # one of the quickest
    memory_optimize(built.case.main, fetch_list=built.case.fetch, runtime='predictor')
    importlib.import_module('ortools.graph.python.max_flow')  # what that one does not need
    freeze()


def trial(seed: int, modes: Sequence[str], values_alone: bool = False) -> Verdict:
    """Runs the program of `seed` in children. `values_alone`: peaks and budgets are not judged."""
    ended = in_child(partial(_trial, recipe(seed), modes, values_alone),
                     _SECONDS * (1 + len(modes)),
                     has_children=True)
    if ended.failure:
        alone = in_child(partial(_is_built, recipe(seed)), _SECONDS)
        if alone.failure == ended.failure:  # Paddle itself ends so, before anyone has optimized anything
            return Verdict(seed, why_not=f'not built: {alone.failure}')
        return Verdict(seed, failures=[f'TRIAL {ended.failure}'])
    return Verdict(**ended.value)


def _is_built(drawn: Recipe) -> bool:
    return build(drawn) is not None


def trial_of_seen(name: str) -> Verdict:
    """The same for a program that is kept because something was wrong with it once."""
    ended = in_child(partial(_trial_of_seen, name), _SECONDS * 3, has_children=True)
    if ended.failure:
        return Verdict(int(name), failures=[f'TRIAL {ended.failure}'])
    return Verdict(**ended.value)


def _trial_of_seen(name: str) -> Dict[str, Any]:
    seen, verdict = load(name), Verdict(int(name))
    for mode in seen.modes:
        _try_modes(seen.built, [mode], None, seen.budget, verdict)
    return asdict(verdict)


def _trial(drawn: Recipe, modes: Sequence[str], values_alone: bool) -> Dict[str, Any]:
    verdict = Verdict(drawn.seed)
    try:
        plain = build(drawn)
    except Exception as error:  # Paddle refuses some combinations, which is nothing that we could judge
        verdict.why_not = f'not built: {type(error).__name__}: {str(error).strip().splitlines()[-1][:150]}'
        return asdict(verdict)
    verdict.kinds = sorted({op.type for block in plain.case.main.blocks for op in block.ops})
    plans: Dict[bool, Set[Optional[str]]] = {True: set(), False: set()}
    for names in _planned_once(drawn.seed, modes):
        plans[MODES[names[0]].collect].add(
            _try_modes(plain, names, drawn.room, None, verdict, values_alone))
    if any(len(made - {None}) > 1 for made in plans.values()):
        verdict.failures.append('PLANS differ between modes')
    return asdict(verdict)


def _planned_once(seed: int, modes: Sequence[str]) -> List[List[str]]:
    """A plan knows of a mode only whether it collects. Of some programs one is made for each mode all the same."""
    if seed % _PLANNED_APART == 0:
        return [[name] for name in modes]
    found = [[name for name in modes if MODES[name].collect is collect] for collect in (True, False)
            ]
    return [names for names in found if names]


def _try_modes(plain: Built,
               names: Sequence[str],
               room: Optional[float],
               budget: Optional[int],
               verdict: Verdict,
               values_alone: bool = False) -> Optional[str]:
    """One plan, made for the first mode of `names`, run in each of them. Gives its digest, if there is one."""
    before: Dict[str, Run] = {}
    for name in names:
        ended = _run(plain.case, MODES[name])
        if ended.failure:
            verdict.why_not = f'{name}: untouched: {ended.failure}'
        else:
            before[name] = Run(**ended.value)
    if not before:
        return None
    verdict.modes += before
    modes = [MODES[name] for name in before]
    optimized = in_child(partial(_optimized, plain, modes[0], room, budget, modes),
                         _SECONDS * len(modes),
                         has_children=True)
    told = optimized.value or {'failures': [optimized.failure] * len(modes)}
    for at, name in enumerate(before):
        failure = told['failures'][at]
        if not failure:
            _judge(plain, name, room, before[name], told, at, verdict, values_alone)
        elif _fails_at_times(plain.case, MODES[name], failure):
            verdict.why_not = f'{name}: untouched, at times: {failure}'
        else:
            verdict.failures.append(f'CRASH {name} room={room}: {failure}')
    return told.get('plan')


def _judge(plain: Built, name: str, room: Optional[float], before: Run, told: Dict[str, Any],
           at: int, verdict: Verdict, values_alone: bool) -> None:
    """Adds to `verdict` what is wrong with one run of those that `_optimized` has `told` of."""
    verdict.changed += told['changed']
    verdict.budgets += told['budget'] is not None
    verdict.traded += told['traded']
    if told['runs'] is None:  # what piles up from run to run keeps to no budget; that of one that was seen may be too little
        if told['too_little'] and room is not None:
            verdict.failures.append(f'REFUSED {name} room={room}: {told["budget"]}')
        return
    judge = _Judge(plain, MODES[name], before, told['budget'], told['changed'], told['same'],
                   told['traded'], told['said'][-1], told['piles_up'])
    verdict.failures += [
        f'{what} {name} room={room}: {text}; said {told["said"]}'
        for what, text in judge.wrong(Run(**told['runs'][at]), values_alone)
    ]


@dataclass
class _Judge:
    """Compares with the untouched run `before`."""

    plain: Built
    mode: Mode
    before: Run
    budget: Optional[int]
    changed: bool  # by the report
    same: bool  # byte for byte
    traded: bool  # for the budget: see Verdict
    sure: int  # bytes above resting
    piles_up: bool = False  # from run to run, by the report
    ended: List[str] = field(default_factory=list)  # how other tries of the optimized one failed

    def wrong(self, after: Run, values_alone: bool) -> List[Tuple[str, str]]:
        """What is wrong with the optimized run: the kind of failure, and the figures."""
        before, found = self.before, []
        unequal = sorted(k for k in {*before.values, *after.values}
                         if before.values.get(k) != after.values.get(k))
        if unequal and self._repeats() and not self._are_right(unequal, after):
            found.append(('BYTES', f'{len(unequal)} differ, first {unequal[0]}'))
        if self.same == self.changed:
            found.append(('REPORT', f'changed is {self.changed}, the bytes say {not self.same}'))
        return found if values_alone else found + self._peaks(after) + self._crashes()

    def _crashes(self) -> List[Tuple[str, str]]:
        """What no first try came to."""
        return [('CRASH', f'at another try: {failure}')
                for failure in sorted(set(self.ended))
                if not _fails_at_times(self.plain.case, self.mode, failure)]

    def _peaks(self, after: Run) -> List[Tuple[str, str]]:
        before, found = self.before, []
        most = after.first if self.piles_up else max(after.first, after.later)
        if most > after.begun and most - after.resting > self.sure:
            found.append(
                ('SURE', f'{after.first}, later {after.later}, at rest {after.resting}: more '
                 f'than the {self.sure} above that no run needs more than'))
        if self.budget is not None and max(after.first, after.later) > self.budget:
            which = 'first' if after.first > self.budget else 'later'
            found.append(
                (f'BUDGET-{which}', f'{after.first}, later {after.later} of {self.budget}, at rest '
                 f'{after.resting}, untouched {before.first}, {before.later}'))
        if self.same or self.traded:  # if the same, what differs is the machine
            return found
        if after.first > before.first + _FEW_BYTES and self._rises(after, 'first'):
            found.append(
                ('PEAK-first', f'{before.first} became {after.first}, at rest {before.resting}'))
        elif after.later > before.later and self._rises(after, 'later'):
            found.append(('PEAK-later',
                          f'{before.later} became {after.later}, at rest {before.resting}, first '
                          f'{before.first} became {after.first}'))
        return found

    def _are_right(self, unequal: Sequence[str], after: Run) -> bool:
        """Whether each of these values is what the untouched program gives in another mode that collects, or with its buffers elsewhere;
        or is one of which it gives several in one mode, as its buffers lie: then nothing can be told.

        Without collection untouched Paddle reads what earlier runs left for branches that this one did not take; a parameter that
        lies in the memory of others (Paddle's LSTM makes one) is read before or after their updates, as it comes; and where buffers
        lie decides how some kernels round.
        """
        left = set(unequal)
        for mode in (m for m in MODES.values() if m.collect):
            seen: Dict[str, Set[Optional[str]]] = {k: set() for k in left}
            for stir in (0, *_STIRS):
                run = _run(self.plain.case, mode, stir=stir)
                for k in left if not run.failure else ():
                    seen[k].add(run.value['values'].get(k))
                left = {k for k in left if len(seen[k]) < 2 and after.values.get(k) not in seen[k]}
                if not left:
                    return True
        return False

    def _repeats(self) -> bool:
        """Whether the untouched program gives the same bytes at other tries and with something else in memory that nobody
        has written, which not each does."""
        runs = (_run(self.plain.case, self.mode, fill) for fill in (*_FILLS, *[0] * _REPEATS))
        return all(e.value['values'] == self.before.values for e in runs if not e.failure)

    def _rises(self, after: Run, which: str) -> bool:
        """Whether the peak of the `first` run, or of `later` ones, is above the highest of the untouched program at more tries,
        too: ops may start in another order, and the collector may be late. Of a first run the serial executor has to say the
        same: Paddle counts a peak only when the thread that allocates holds more than ever before, so that what one thread
        allocated and another freed hides one."""
        slack = _FEW_BYTES if which == 'first' else 0
        if not self._is_above(which, slack, self.mode, [asdict(after)]):
            return False
        return which != 'first' or self._is_above(which, slack, replace(self.mode, order='serial'),
                                                  [])

    def _is_above(self, which: str, slack: int, mode: Mode, seen: List[Dict[str, Any]]) -> bool:
        """Whether no try of the optimized program, and none of those `seen`, is as low as the highest of the untouched one. Of the
        two one runs after the other, so that the machine is as busy for both, until it is not above any more."""
        function = partial(_optimized, self.plain, self.mode, None, self.budget, (mode,))
        highest = asdict(self.before)[which] if mode == self.mode else 0
        lowest = min((run[which] for run in seen), default=_NEVER_RUN)
        for _ in range(_AGAIN[which]):
            untouched = _run(self.plain.case, mode)
            highest = max(highest, 0 if untouched.failure else untouched.value[which])
            if lowest > highest + slack:
                optimized = in_child(function, _SECONDS, has_children=True)
                failure = optimized.failure or optimized.value['failures'][0]
                if failure:
                    self.ended.append(failure)
                else:
                    lowest = min(lowest, optimized.value['runs'][0][which])
            if lowest <= highest + slack:
                return False
        return True


def _fails_at_times(case: Case, mode: Mode, failure: str) -> bool:
    """Whether the untouched program ends as the optimized one did: some kernels read memory that nobody has written. Some write where
    they may not, and such a program ends now so, now so: if the optimized one was killed, whether untouched none of its tries is
    through (210916)."""
    ended = [_run(case, mode, fill).failure for fill in (*_FILLS, *[0] * _AGAIN['first'])]
    killed = any(os.WIFSIGNALED(int(s)) for s in re.findall(r'ended with status (\d+)', failure))
    return killed and all(ended) or any(
        said and said.split(' at trial.py')[0] in failure for said in ended)


def _run(case: Case, mode: Mode, fill: int = 0, stir: int = 0) -> Ended:
    """`fill`, `stir`: see `_FILLS` and `_STIRS`; 0 leaves memory as it is."""
    return in_child(lambda: asdict(_run_here(case, mode, fill, stir)), _SECONDS)


def _optimized(built: Built, mode: Mode, room: Optional[float], budget: Optional[int],
               runs_in: Sequence[Mode]) -> Dict[str, Any]:
    """In a child: plans for `mode`, and runs in another child for each of `runs_in`. None of them has anything allocated
    before, and `built` is the child's own."""
    with executor_mode(mode):
        if room is not None:
            budget = budget_with(built, room)
        untouched = built.case.main.desc.serialize_to_string()
        try:
            report = _optimize(built, {} if budget is None else {'budget': budget})
        except MemoryBudgetError as error:
            too_little = error.held_bytes + error.best_bytes > budget
            return {
                'changed': False,
                'budget': budget,
                'traded': False,
                'runs': None,
                'failures': [''] * len(runs_in),
                'too_little': too_little
            }
        planned = built.case.main.desc.serialize_to_string()
    ended = [_run(built.case, each) for each in runs_in]
    said = (report.resting_bytes, report.peak_bytes_before, report.peak_bytes_after,
            report.sure_bytes)
    return {
        'changed': report.changed,
        'same': planned == untouched,
        'plan': hashlib.sha256(planned).hexdigest(),
        'budget': budget,
        'traded': budget is not None and report.grows_elsewhere,
        'runs': [each.value for each in ended],
        'failures': [each.failure and f'optimized: {each.failure}' for each in ended],
        'said': said,
        'piles_up': _PILES_UP in report.note
    }


def budget_with(built: Built, room: float) -> int:
    """The least budget that a plan is said to keep to, and this share of what the plan for no budget needs more; `built` stays."""
    try:
        _optimize(_twin(built), {'budget': _TOO_LITTLE})
    except MemoryBudgetError as error:
        least = error.held_bytes + error.best_bytes
    else:
        return _TOO_LITTLE
    if not room:
        return least
    free = _optimize(_twin(built), {})
    return least + int(room * max(0, free.resting_bytes + free.budget_bytes - least))


def _twin(built: Built) -> Built:
    return replace(built, case=replace(built.case, main=built.case.main.clone()))


def _optimize(built: Built, more: Dict[str, Any]) -> Any:
    return memory_optimize(built.case.main,
                           fetch_list=list(built.case.fetch),
                           **built.options,
                           **more)


def _run_here(case: Case, mode: Mode, fill: int, stir: int) -> Run:
    """In a process that has allocated nothing so far."""
    libc = ctypes.CDLL(None)
    if fill:
        libc.mallopt(_M_PERTURB, fill)
    for size in range(stir, stir + _STIRRED if stir else 0, 16):
        libc.malloc(size)
    core = paddle.base.core
    paddle.seed(SEED)
    peaks: List[int] = []
    values: Dict[str, str] = {}
    with prepared().used(), executor_mode(mode), fresh_scope() as scope:
        executor = paddle.static.Executor(paddle.CPUPlace())
        executor.run(case.startup)
        resting = core.host_memory_stat_current_value('Allocated', 0)
        begun = core.host_memory_stat_peak_value('Allocated', 0)
        feeds = [case.feed(step) for step in range(STEPS)]
        for step, fed in enumerate(feeds):
            set_learning_rate(case.main, step)
            got = executor.run(case.main, feed=fed, fetch_list=list(case.fetch))
            peaks.append(core.host_memory_stat_peak_value('Allocated', 0))
            values.update((f'{name} at step {step}', _digest(snapshot(value)))
                          for name, value in zip(case.fetch, got))
        values.update((name, _digest(value)) for name, value in state_of(case.main, scope).items())
    return Run(values, resting, peaks[0], peaks[-1], begun)


def _digest(value: Value) -> str:
    if isinstance(value, tuple):
        return ' '.join(map(_digest, value))
    facts = f'{value.dtype} {value.shape} {value.lod} '
    return facts + hashlib.sha256(value.data).hexdigest()
