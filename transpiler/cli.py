"""The command line: what a saved program needs, a smaller one, proof that both give the same bytes, a picture.

Exit codes: 0 done, 1 the program, the files or the budget do not allow it (one line on stderr says why), 2 wrong
usage, 3 `check` found a difference.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, Optional, Tuple

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from transpiler.errors import SavedFileError, TranspilerError
from transpiler.plain import printable

FAILED, DIFFERENT = 1, 3
_TRACEBACK = 'TRANSPILER_TRACEBACK'
_LONGEST = 300


class ByteSize(click.ParamType):
    """A number of bytes: 6000000, 6GB, 512MiB."""

    name = 'bytes'

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        from transpiler import arguments
        size = arguments.parse_bytes(str(value))
        if size is None:
            self.fail(f'{value!r} is no size; write 6GB, 512MiB or a number of bytes', param, ctx)
        if not size:
            self.fail('a budget is more than nothing', param, ctx)
        return arguments.byte_count(param.opts[0], size)


class _Commands(click.Group):
    """Turns errors that are the user's to solve into one line and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except TranspilerError as error:
            _fail(str(error))
        except OSError as error:
            _fail(f'{error.filename or "file"}: {error.strerror or error}')
        except MemoryError:
            _fail('out of memory')
        except RecursionError:
            _fail('the blocks of the program are nested too deep to be planned')
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:  # nobody can act on a traceback; whoever mends this sets the variable
            if os.environ.get(_TRACEBACK):
                raise
            _fail(f'internal error, please report it: {type(error).__name__}: {error}'[:_LONGEST])


def _fail(message: str) -> None:
    click.echo('error: ' + printable(' '.join(message.split())), err=True)
    sys.exit(FAILED)


def _planning_options(command: Callable) -> Callable:
    options = [
        click.option('--fetch', multiple=True, help='Variable that will be fetched; repeatable.'),
        click.option('--skip', multiple=True, help='Variable to leave alone; repeatable.'),
        click.option('--batch-size',
                     type=click.IntRange(1),
                     help='What open batch dims mostly are.'),
        click.option('--trip-count', type=click.IntRange(1), help='Trips that loops mostly make.'),
        click.option('--runtime',
                     type=click.Choice(['auto', 'executor', 'predictor']),
                     default='auto',
                     show_default=True,
                     help='auto: predictor for a program that has fetch operators.'),
        click.option('--recompute',
                     type=click.Choice(['auto', 'cheap', 'max', 'off']),
                     default='auto',
                     show_default=True,
                     help='What may be computed again for gradients.'),
        click.option('--max-overhead',
                     type=click.FloatRange(0),
                     default=0.1,
                     show_default=True,
                     help='Share of a step that --recompute auto may cost.'),
        click.option('--level',
                     type=click.IntRange(0, 1),
                     default=0,
                     show_default=True,
                     help='1 lets smaller memory be taken over, and grow.'),
        click.option('--onednn/--no-onednn',
                     default=True,
                     show_default=True,
                     help='Predictor: keep what Paddle fuses with or without oneDNN.'),
        click.option('--release-inputs',
                     is_flag=True,
                     help='Predictor: every run sets its inputs, so free them when used.'),
        click.option('--in-parts',
                     is_flag=True,
                     help='Predictor: run operators once for each part of the batch, where that '
                     'gives the same bytes on this kind of machine with this number of threads. '
                     'It is tried here; check repeats it elsewhere. Needs --batch-size.'),
        click.option('--json', 'as_json', is_flag=True, help='The report as JSON on stdout.'),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@click.group(cls=_Commands, context_settings={'help_option_names': ['-h', '--help']})
@click.version_option(package_name='paddle-memory-transpiler')
def main() -> None:
    """Memory of saved PaddlePaddle programs: what they need, and how to make it less."""
    # Paddle's warnings are for its developers; read before it is imported.
    os.environ.setdefault('GLOG_minloglevel', '2')
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors='backslashreplace')  # for names that a terminal cannot show


@main.command()
@click.argument('source', metavar='IN')
@click.option('-o', '--output', required=True, metavar='OUT', help='Where the new program goes.')
@click.option('--force', is_flag=True, help='Replace OUT.')
@click.option(
    '--budget',
    type=ByteSize(),
    help='The cheapest plan whose parameters and peak fit; nothing is written if none does.')
@click.option('--trace', type=click.Path(dir_okay=False), help='Also a Chrome/Perfetto trace.')
@_planning_options
def optimize(source: str, output: str, force: bool, budget: Optional[int], trace: Optional[str],
             as_json: bool, **hints: Any) -> None:
    """Write a program to OUT that computes the same bytes as IN in less memory. IN stays as it is."""
    saved, done = _planned(source, hints, budget)
    with _progress('writing'):
        from transpiler.serving.files import write_program
        from transpiler.serving.offline import check_budget
        check_budget(done.report, budget)
        paths = write_program(output, saved, done.serialized, done.replaced, force,
                              _traced(trace, done))
    click.echo(_as_json(done.report) if as_json else str(done.report))
    click.echo(printable('wrote ' + ', '.join(map(str, paths))), err=True)


@main.command()
@click.argument('source', metavar='IN')
@click.option('--trace', type=click.Path(dir_okay=False), help='Also a Chrome/Perfetto trace.')
@click.option('--ir', is_flag=True, help='The graph before and after instead, as text.')
@_planning_options
def report(source: str, trace: Optional[str], ir: bool, as_json: bool, **hints: Any) -> None:
    """Say what IN needs, which variables make up its peak, and what `optimize` would bring."""
    saved, done = _planned(source, hints)
    if trace:
        from transpiler.serving.outputs import write_files
        write_files(_traced(trace, done).items(), saved.files, force=False)
    if ir:
        from transpiler.ir.text import printed
        click.echo(f'# before\n{printed(done.plan.original)}# after\n{printed(done.plan.graph)}',
                   nl=False)
        return
    click.echo(_as_json(done.report) if as_json else done.report.as_it_is())


@main.command()
@click.argument('source', metavar='IN')
@click.argument('target', metavar='OUT')
@click.option('--feed', type=click.Path(dir_okay=False), help='Inputs as .npz; drawn if not given.')
@click.option('--fetch', multiple=True, help='Variable to compare, for a program without fetches.')
@click.option('--batch-size', type=click.IntRange(1), default=1, show_default=True)
@click.option('--every-setting', is_flag=True, help='OUT under every predictor setting.')
@click.option(
    '--requests',
    type=click.IntRange(0),
    default=0,
    help='Serve so many, too: what does the process grow by, with serve-settings and without?')
@click.option('--json', 'as_json', is_flag=True, help='The figures as JSON on stdout.')
def check(source: str, target: str, feed: Optional[str], fetch: Tuple[str, ...], batch_size: int,
          every_setting: bool, requests: int, as_json: bool) -> None:
    """Run IN and OUT, each in a fresh process; compare all bytes and print the measured peaks."""
    with _progress('running both') as advance:
        from transpiler.backends.installed import check_serves_files
        check_serves_files()
        from transpiler.serving import checking
        rows = checking.compare(source, target, feed, list(fetch), batch_size, every_setting,
                                advance, requests)
    if as_json:
        click.echo(json.dumps([row.to_dict() for row in rows], indent=2))
    else:
        from transpiler.report.text import plain_console
        plain_console().print(checking.table(rows))
    different = [row.title for row in rows if not row.equal]
    if different:
        click.echo('error: different bytes: ' + printable('; '.join(different)), err=True)
        sys.exit(DIFFERENT)


@main.command()
@click.argument('source', metavar='IN')
@click.option('-o', '--output', required=True, metavar='HTML', help='Where the page goes.')
@click.option('--force', is_flag=True, help='Replace HTML.')
@click.option('--trace', type=click.Path(dir_okay=False), help='Also a Chrome/Perfetto trace.')
@_planning_options
def view(source: str, output: str, force: bool, trace: Optional[str], as_json: bool,
         **hints: Any) -> None:
    """Draw the memory of IN, before and after optimize, as one HTML page that needs no network."""
    saved, done = _planned(source, hints)
    with _progress('drawing'):
        from transpiler.report.html import page
        from transpiler.serving.outputs import write_files
        text = page(done.report, title=Path(source).name)
        write_files([(output, text.encode()), *_traced(trace, done).items()], saved.files, force)
    if as_json:
        click.echo(_as_json(done.report))
    click.echo(printable(f'wrote {output}'), err=True)


@main.command('serve-settings')
@click.argument('source', metavar='MODEL')
@click.option('--json', 'as_json', is_flag=True, help='The settings as JSON on stdout.')
def serve_settings(source: str, as_json: bool) -> None:
    """Name what a process that serves MODEL should set on this machine, so that it stays small."""
    with _progress('reading'):
        from transpiler.backends.installed import check_serves_files
        check_serves_files()
        from transpiler.serving import settings
        from transpiler.serving.files import read_program
        saved = read_program(source)
        if not saved.for_inference:
            raise SavedFileError(f'{saved.path} has no fetch operator, so no predictor serves it')
        found = settings.serve_settings(saved)
    if as_json:
        click.echo(json.dumps(found.to_dict(), indent=2))
    else:
        click.echo(settings.text(found), nl=False)


@main.command()
@click.argument('source', metavar='FILE.csv', type=click.Path(dir_okay=False))
@click.option('-o', '--output', required=True, metavar='OUT.csv')
@click.option('--force', is_flag=True, help='Replace OUT.csv.')
@click.option('--alignment', type=click.IntRange(1), default=1, show_default=True)
@click.option('--capacity', type=ByteSize(), help='Write nothing if no packing is this low.')
@click.option('--seconds', type=click.FloatRange(0), default=20.0, show_default=True)
def pack(source: str, output: str, force: bool, alignment: int, capacity: Optional[int],
         seconds: float) -> None:
    """Give each buffer of a minimalloc CSV (id,lower,upper,size) an offset in one arena."""
    with _progress('packing'):
        from transpiler.packing_files import pack_file
        packing, text = pack_file(Path(source), alignment, capacity, seconds)
    from transpiler.serving.outputs import write_files
    write_files([(output, text.encode())], [Path(source)], force)
    click.echo(f'height {packing.height}, lower bound {packing.bound}, {packing.strategy}')


def _planned(source: str, hints: Dict[str, Any], budget: Optional[int] = None) -> Tuple[Any, Any]:
    """The saved program and what `optimize` makes of it."""
    with _progress('planning'):
        from transpiler.backends.installed import check_serves_files
        check_serves_files()
        from transpiler.planning import PlanOptions
        from transpiler.request import Request
        from transpiler.serving.files import read_program
        from transpiler.serving.offline import Serving, optimize_saved
        saved = read_program(source)
        if not saved.for_inference and not hints['fetch']:
            raise SavedFileError(
                f'{saved.path} has no fetch operator: name with --fetch what will be '
                'fetched')
        request = Request(list(hints['fetch']), list(hints['skip']), hints['batch_size'],
                          hints['trip_count'], hints['runtime'], budget)
        recompute = '' if hints['recompute'] == 'off' else hints['recompute']
        options = PlanOptions(level=hints['level'],
                              recompute=recompute,
                              max_overhead=hints['max_overhead'])
        serving = Serving(hints['onednn'], hints['release_inputs'], hints['in_parts'])
        return saved, optimize_saved(saved, request, options, serving)


def _as_json(report: Any) -> str:
    return json.dumps(report.to_dict(), indent=2)


def _traced(path: Optional[str], done: Any) -> Dict[str, bytes]:
    """The trace and where it goes, if one is asked for."""
    if path is None:
        return {}
    from transpiler.report.trace import trace
    return {path: json.dumps(trace(done.report)).encode()}


@contextlib.contextmanager
def _progress(title: str) -> Iterator[Callable[[float], None]]:
    """A bar and the time on stderr, if that is a terminal; call what it gives with the share that is done.

    Paddle takes seconds to import, so that is done inside.
    """
    console = Console(stderr=True)
    with Progress(TextColumn(title),
                  BarColumn(),
                  TimeElapsedColumn(),
                  console=console,
                  transient=True,
                  disable=not console.is_terminal) as bar:
        task = bar.add_task(title, total=None)
        yield lambda share: bar.update(task, total=1.0, completed=share)
