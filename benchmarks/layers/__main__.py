"""The command: `python -m benchmarks.layers [NETWORK...]` trains networks in every way there is to need less memory."""
from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import List, Optional, Tuple

import click
from rich.console import Console
from rich.progress import track

from benchmarks.layers.figures import conditions, failures, table
from benchmarks.layers.networks import BATCH, NETWORKS
from benchmarks.layers.trainer import WAYS
from benchmarks.layers.training import WARMING, Row, measured, ways

_MODES = ('ast', 'sot')


def _measured_before(figures: Optional[Path]) -> List[Row]:
    return json.loads(figures.read_text()) if figures is not None and figures.exists() else []


@click.command()
@click.argument('networks', nargs=-1, type=click.Choice(tuple(NETWORKS)))
@click.option('--way', 'names', multiple=True, type=click.Choice(tuple(WAYS)), help='All if none.')
@click.option('--sot',
              'mode',
              flag_value='sot',
              help='Only stretches that Paddle finds in bytecode.')
@click.option('--ast', 'mode', flag_value='ast', help='Only whole layers. Both if neither.')
@click.option('--python',
              'pythons',
              multiple=True,
              default=(sys.executable,),
              show_default='this one',
              help='Whose Paddle trains; several if given so often.')
@click.option('--steps',
              type=click.IntRange(min=WARMING + 1),
              default=10,
              show_default=True,
              help=f'Compared, one of each way in turn; timed from step {WARMING + 1} on.')
@click.option('--json', 'out', type=click.Path(dir_okay=False, path_type=Path), help='Figures.')
@click.option('--resume', is_flag=True, help='Measure only networks that --json has no figures of.')
def main(networks: Tuple[str, ...], names: Tuple[str, ...], mode: Optional[str],
         pythons: Tuple[str, ...], steps: int, out: Optional[Path], resume: bool) -> None:
    """Train NETWORKS, all but the first if none is named, in fresh processes of one thread. Peak and kept (after forward) are bytes of
    Paddle's allocator above resting, which has the parameters, the least of some steps; process is VmHWM above what was resident when the
    layer had been made, after all steps that are compared. Times: least / median. Fails if a loss, parameter or statistic of ours
    differs from to_static's.
    """
    os.environ.setdefault('OMP_NUM_THREADS', '1')
    rows = _measured_before(out) if resume else []
    known = {(each['python'], each['network']) for each in rows}
    asked = ways(names or tuple(WAYS), (mode,) if mode else _MODES)
    pairs = [(p, n) for n in networks or tuple(NETWORKS)[1:] for p in pythons if (p, n) not in known
            ]
    for python, network in track(pairs, console=Console(stderr=True), transient=True):
        rows += measured(python, network, asked, steps)
        if out is not None:
            out.write_text(json.dumps(rows, indent=1) + '\n')
    print(f'{conditions(rows)}, batch {BATCH}, SGD\n\n{table(rows)}')
    if failures(rows):
        raise click.ClickException('; '.join(failures(rows)))


if __name__ == '__main__':
    main()
