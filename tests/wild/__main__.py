"""Runs generated programs, untouched and optimized, and says which of them break a promise."""
from __future__ import annotations

import argparse
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Iterator, List, Optional, Sequence, Tuple

from tests.drops import no_plan_is_dropped
from tests.wild.seen import NAMES
from tests.wild.trial import MODES, Verdict, trial, trial_of_seen, warm_up


def _arguments(words: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog='python -m tests.wild', description=__doc__)
    parser.add_argument('--seeds',
                        default='0..300',
                        help='A..B: from A to before B; or A,B:MODE,C (default: %(default)s)')
    parser.add_argument(
        '--modes',
        default=','.join(MODES),
        help=f'some of {",".join(MODES)} (default: all), or "one": another one for each seed')
    parser.add_argument('--jobs', type=int, default=1, help='processes at a time (default: 1)')
    parser.add_argument('--values-alone',
                        action='store_true',
                        help='do not judge peaks and budgets')
    parser.add_argument('--seen',
                        action='store_true',
                        help='not generated ones: the programs with which something was wrong once')
    parser.add_argument('--verbose',
                        action='store_true',
                        help='name the programs that could not be run')
    return parser.parse_args(words)


def chosen_modes(seed: int, modes: str) -> List[str]:
    names = list(MODES)
    return [names[seed % len(names)]] if modes == 'one' else modes.split(',')


def _seeds(text: str, modes: str) -> Iterator[Tuple[int, List[str]]]:
    """Seeds, and in which modes they are to run."""
    if '..' in text:
        yield from (
            (seed, chosen_modes(seed, modes)) for seed in range(*map(int, text.split('..'))))
        return
    for each in text.split(','):
        seed, _, mode = each.partition(':')
        yield int(seed), [mode] if mode else chosen_modes(int(seed), modes)


def _verdicts(told: argparse.Namespace) -> Iterator[Verdict]:
    with ThreadPoolExecutor(told.jobs) as pool:
        if told.seen:
            yield from pool.map(trial_of_seen, NAMES)
            return
        yield from pool.map(lambda chosen: trial(*chosen, told.values_alone),
                            _seeds(told.seeds, told.modes))


@no_plan_is_dropped()
def main(words: Optional[Sequence[str]] = None) -> int:
    """Prints a line a failure and a summary; 1 if there was one. `words`: of a command line, if not that of this process."""
    told = _arguments(words)
    warm_up()
    whole, changed, budgets, traded, failed = 0, 0, 0, 0, 0
    kinds: Counter = Counter()
    why_not: Counter = Counter()
    classes: Counter = Counter()
    for verdict in _verdicts(told):
        for failure in verdict.failures:
            print(f'{verdict.seed}: {failure}', flush=True)
        classes.update(failure.split(' ')[0] for failure in verdict.failures)
        failed += bool(verdict.failures)
        if verdict.why_not:
            why_not[verdict.why_not] += 1
            if told.verbose:
                print(f'{verdict.seed}: not run: {verdict.why_not}', flush=True)
        else:
            whole += 1
            kinds.update(verdict.kinds)
        changed, budgets = changed + verdict.changed, budgets + verdict.budgets
        traded += verdict.traded
    _summary(whole, sum(why_not.values()), changed, budgets, traded, failed, kinds, classes)
    return int(bool(failed))


def _summary(whole: int, not_run: int, changed: int, budgets: int, traded: int, failed: int,
             kinds: Counter, classes: Counter) -> None:
    forward = [kind for kind in kinds if not kind.endswith('_grad')]
    print(
        f'{whole} programs ran whole, {not_run} could not be run untouched; {len(forward)} kinds of operators and '
        f'{len(kinds) - len(forward)} of gradients; {changed} plans changed a program, {budgets} had a budget, '
        f'for {traded} of which the report says that some runs may need more than untouched')
    print(f'{failed} programs failed' + ''.join(f'; {k}: {n}' for k, n in classes.most_common()))


if __name__ == '__main__':
    sys.exit(main())
