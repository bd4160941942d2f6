"""Runs every kernel alone and keeps what it allocates: `python -m benchmarks.kernels` writes the table anew, of the Paddle that is
installed.

`--check` compares with the table that is kept, and exits with 1 where a kernel allocates something else. `--only TEXT`
takes the recipes whose name has TEXT in it. The whole takes about 10 minutes on one core.
"""

from __future__ import annotations

import argparse
import sys
from typing import Iterator, List

from benchmarks.kernels.children import observe_apart
from benchmarks.kernels.draw import DOUBLE, SIZES
from benchmarks.kernels.fit import Sample
from benchmarks.kernels.recipes import all_recipes
from benchmarks.kernels.runtimes import installed
from benchmarks.kernels.table import make_table, misses, text


def main(arguments: List[str]) -> int:
    """See above. Returns the exit code."""
    parser = argparse.ArgumentParser(prog='python -m benchmarks.kernels', description=__doc__)
    parser.add_argument('--check', action='store_true')
    parser.add_argument('--only', default='', metavar='TEXT')
    asked = parser.parse_args(arguments)
    paddle = installed()
    seen = list(_samples(asked.only))
    if asked.check:
        wrong = misses(paddle.table(), seen, paddle.workspace)
        for miss in wrong:
            print(f'{miss.kind}: {miss.said} bytes by the table, {miss.seen} seen')
        kinds = {one.kernel.kind for one in seen}
        print(f'{len(seen)} runs of {len(kinds)} kinds, {len(wrong)} not as the table says')
        return int(bool(wrong))
    made = make_table(seen, paddle.special, paddle.bounds)
    kept = {**paddle.table(), **made} if asked.only else made
    paddle.path.write_text(text(kept), encoding='utf-8')
    print(f'{len(made)} kinds from {len(seen)} runs')
    return 0


def _samples(only: str) -> Iterator[Sample]:
    wanted = [(name, size) for name in all_recipes() if only in name
              for size in (*range(SIZES), DOUBLE)]
    for run in observe_apart(wanted):
        if run.problem:
            print(f'{run.recipe}, size {run.size}: {run.problem}', file=sys.stderr)
        yield from map(installed().sample, run.seen)


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
