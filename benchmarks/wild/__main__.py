"""The command: `python -m benchmarks.wild [NAME...]` measures scripts, untouched and optimized, each in a fresh process."""
from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Dict, List, Mapping, Optional, Tuple

import click

from benchmarks.output import show
from benchmarks.spec import Spec
from benchmarks.wild.figures import Row
from benchmarks.wild.processes import DEFAULT_SECONDS, Processes, ScriptError
from benchmarks.wild.registry import builders
from benchmarks.wild.table import cells, markdown, table

PIPE_WIDTH = 200


def row(processes: Processes, group: str, name: str) -> Row:
    """Both kinds of one script."""
    try:
        return Row(group, name,
                   *(processes.measure(name, optimized) for optimized in (False, True)))
    except ScriptError as error:
        return Row(group, name, failure=str(error))


def chosen(names: Tuple[str, ...]) -> List[Tuple[str, str]]:
    """(group, name) of all scripts that were asked for by their name or their group's; of all, if none was."""
    found = [(group, name) for group, scripts in builders().items() for name in scripts]
    unknown = set(names) - {each for pair in found for each in pair}
    if unknown:
        raise click.ClickException('no script is called {}; --list names them'.format(', '.join(
            sorted(unknown))))
    return [pair for pair in found if not names or set(pair) & set(names)]


def measured_before(figures: Optional[Path]) -> Dict[Tuple[str, str], Row]:
    """The rows of an earlier table, by group and name, but for those that failed."""
    if figures is None or not figures.exists():
        return {}
    rows = [Row.from_dict(each) for each in json.loads(figures.read_text())]
    return {(each.group, each.name): each for each in rows if not each.failure}


def in_order(rows: Mapping[Tuple[str, str], Row]) -> List[Row]:
    """As --list has them."""
    return [rows[pair] for pair in chosen(()) if pair in rows]


def write(rows: List[Row], out: Optional[Path], text: Optional[Path]) -> None:
    """The figures and the table, as far as they are."""
    if out is not None:
        out.write_text(json.dumps([asdict(each) for each in rows], indent=1) + '\n')
    if text is not None:
        text.write_text(markdown(rows))


@click.command()
@click.argument('names', nargs=-1)
@click.option('--list', 'listed', is_flag=True, help='Name the scripts and stop.')
@click.option('--json', 'out', type=click.Path(dir_okay=False, path_type=Path), help='Figures.')
@click.option('--resume', is_flag=True, help='Measure only what --json has no figures of.')
@click.option('--markdown', 'text', type=click.Path(dir_okay=False, path_type=Path), help='Table.')
@click.option('--seconds',
              default=DEFAULT_SECONDS,
              show_default=True,
              help='For each of the two measurements of a script.')
def main(names: Tuple[str, ...], listed: bool, out: Optional[Path], resume: bool,
         text: Optional[Path], seconds: int) -> None:
    """Measure the scripts NAMES, or groups (updates, layers, flow, language, networks, vision), or all."""
    pairs = chosen(names)
    if listed:
        click.echo('\n'.join(f'{group:10}{name}' for group, name in pairs))
        return
    known = measured_before(out) if resume else {}
    rows = dict(known)
    processes = Processes({'PYTHONHASHSEED': '0', **Spec('').environment()}, seconds)
    for group, name in (pair for pair in pairs if pair not in known):
        found = rows[group, name] = row(processes, group, name)
        click.echo('  '.join(cells(found)), err=True)
        if found.failure:
            click.echo(found.failure, err=True)
        write(in_order(rows), out, text)
    write(in_order(rows), out, text)
    conclude(in_order(rows))


def conclude(rows: List[Row]) -> None:
    """Prints the table; raises ClickException if a script does not hold what is promised."""
    show(table(rows), PIPE_WIDTH)
    faulty = [each for each in rows if each.faults()]
    if faulty:
        raise click.ClickException('{} of {} scripts do not hold what is promised: {}'.format(
            len(faulty), len(rows), ', '.join(each.name for each in faulty)))


if __name__ == '__main__':
    main()
