"""The command line: what a saved program needs, a smaller one, proof that both give the same bytes, a picture.

Exit codes: 0 done, 1 the program, the files or the budget do not allow it (one line on stderr says why), 2 wrong
usage, 3 `check` found a difference.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import math
import os
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, Optional, Tuple

import click

from transpiler.errors import SavedFileError, TranspilerError
from transpiler.plain import printable

if TYPE_CHECKING:
    from rich.progress import Progress

FAILED, DIFFERENT = 1, 3
_TRACEBACK = 'TRANSPILER_TRACEBACK'
_TALK, _QUIET, _VERBOSE = 'transpiler.talk.', 'quiet', 'verbose'
_SECONDS_BETWEEN_LINES = 5.0
_LONGEST = 300
_PROGRAM = click.Path(
    readable=False)  # a shell completes files; what is wrong with one is told by who reads it
_TRACE = click.option('--trace',
                      type=click.Path(dir_okay=False),
                      help='Also a Chrome/Perfetto trace.')
# What options are called in Python, where errors come from.
_OPTIONS = {
    'fetch_list': '--fetch',
    'skip_opt_set': '--skip',
    'batch_size': '--batch-size',
    'trip_count': '--trip-count'
}


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


class FromZero(click.FloatRange):
    """A number from 0 on, which may be infinite."""

    def __init__(self) -> None:
        super().__init__(min=0)

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        found = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail(f'{value!r} is no number', param, ctx)
        return float(found)


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
    argument, colon, rest = message.partition(':')
    said = f'{_OPTIONS.get(argument, argument)}{colon}{rest}'
    click.echo('error: ' + printable(' '.join(said.split())), err=True)
    sys.exit(FAILED)


def _planning_options(command: Callable) -> Callable:
    options = [
        click.option('--fetch', multiple=True, help='Variable that will be fetched; repeatable.'),
        click.option('--skip', multiple=True, help='Variable to leave alone; repeatable.'),
        click.option('--batch-size',
                     type=click.IntRange(1),
                     help='The usual size of open batch dims.'),
        click.option('--trip-count',
                     type=click.IntRange(1),
                     help='The usual number of trips of loops.'),
        click.option('--runtime',
                     type=click.Choice(['auto', 'executor', 'predictor']),
                     default='auto',
                     show_default=True,
                     help='auto: predictor for a program that has fetch operators.'),
        click.option('--recompute',
                     type=click.Choice(['auto', 'cheap', 'max', 'off']),
                     default='auto',
                     show_default=True,
                     help='What may be computed again; without training auto needs a budget.'),
        click.option('--max-overhead',
                     type=FromZero(),
                     default=0.1,
                     show_default=True,
                     help='Share of a step that --recompute auto may cost.'),
        click.option(
            '--level',
            type=click.IntRange(0, 1),
            default=0,
            show_default=True,
            help='1: a larger variable may take over the memory of a smaller one, which grows.'),
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
        click.option(
            '--budget',
            type=ByteSize(),
            help='The cheapest plan whose parameters and peak fit; an error if none does.'),
        click.option('--json', 'as_json', is_flag=True, help='The report as JSON on stdout.'),
    ]
    for option in reversed(options):
        command = option(command)
    return _talking(command)


def _writing(target: str, what: str) -> Callable[[Callable], Callable]:
    """Adds --output, which `target` stands for in the usage, and --force."""
    output = click.option('-o', '--output', required=True, type=_PROGRAM, metavar=target, help=what)
    force = click.option('--force', is_flag=True, help=f'Replace {target}.')
    return lambda command: output(force(command))


def _talking(command: Callable) -> Callable:
    """Adds -q and -v, of which `_talk` tells."""
    options = [(_QUIET, 'Nothing on stderr but errors.'),
               (_VERBOSE, 'Each step on stderr, with the time.')]
    for name, what in reversed(options):
        option = click.option(f'-{name[0]}',
                              f'--{name}',
                              is_flag=True,
                              expose_value=False,
                              callback=_remember,
                              help=what)
        command = option(command)
    return command


def _remember(ctx: click.Context, param: click.Parameter, given: bool) -> None:
    ctx.meta[_TALK + str(param.name)] = given


def _talk() -> str:
    """'less', 'more', or '' where nothing was asked for."""
    asked = click.get_current_context().meta
    if asked.get(_TALK + _QUIET):
        return 'less'
    return 'more' if asked.get(_TALK + _VERBOSE) else ''


def _note(message: str) -> None:
    if _talk() != 'less':
        click.echo(printable(message), err=True)


@click.group(cls=_Commands, context_settings={'help_option_names': ['-h', '--help']})
@click.version_option(package_name='paddle-memory-transpiler')
def main() -> None:
    """Memory of saved PaddlePaddle programs: what they need, and how to make it less."""
    # Paddle's warnings are for its developers; read before it is imported.
    os.environ.setdefault('GLOG_minloglevel', '2')
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors='backslashreplace')  # for names that a terminal cannot show


@main.command(short_help='Write a program that needs less memory.')
@click.argument('source', metavar='IN', type=_PROGRAM)
@_writing('OUT', 'Where the new program goes.')
@_TRACE
@_planning_options
def optimize(source: str, output: str, force: bool, trace: Optional[str], as_json: bool,
             **hints: Any) -> None:
    """Write a program to OUT that computes the same bytes as IN in less memory. IN stays as it is."""
    saved, done = _planned(source, hints)
    with _progress('writing'):
        from transpiler.backends.installed import saved_programs
        paths = saved_programs().write(output, saved, done, force, _traced(trace, done))
    click.echo(_as_json(done.report) if as_json else str(done.report))
    _note('wrote ' + ', '.join(map(str, paths)))


@main.command(short_help='What a program needs, and what optimize would bring.')
@click.argument('source', metavar='IN', type=_PROGRAM)
@_TRACE
@click.option('--ir', is_flag=True, help='The graph before and after instead, as text.')
@click.option('--why',
              is_flag=True,
              help='Also the ten things that would lower the peak most, each with its bytes.')
@_planning_options
def report(source: str, trace: Optional[str], ir: bool, why: bool, as_json: bool,
           **hints: Any) -> None:
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
    if as_json:
        click.echo(_as_json(done.report, why=_weighed(done) if why else None))
        return
    click.echo(done.report.as_it_is())
    if why:
        from transpiler.report.text import wrapped
        click.echo('\n' + wrapped(_reasons(done)))


def _weighed(done: Any) -> Any:
    with _progress('weighing'):
        return [dataclasses.asdict(lever) for lever in done.report.weighed()]


def _reasons(done: Any) -> str:
    with _progress('weighing'):
        return str(done.report.why())


@main.command(short_help='Why a variable is in memory.')
@click.argument('source', metavar='IN', type=_PROGRAM)
@click.argument('variable', metavar='VARIABLE')
@_planning_options
def explain(source: str, variable: str, as_json: bool, **hints: Any) -> None:
    """Say why VARIABLE of IN is in memory when it is, at the peak above all, and why it shares no memory."""
    _, done = _planned(source, hints)
    said = done.report.explain(variable)
    if as_json:
        click.echo(json.dumps({'variable': variable, 'lines': said.splitlines()}))
        return
    from transpiler.report.text import wrapped
    click.echo(wrapped(said))


@main.command(short_help='What differs between two programs.')
@click.argument('first', metavar='A', type=_PROGRAM)
@click.argument('second', metavar='B', type=_PROGRAM)
@_planning_options
def diff(first: str, second: str, as_json: bool, **hints: Any) -> None:
    """Say what differs between the programs A and B: what they need, their operators and variables."""
    sides = [_planned(each, hints)[1] for each in (first, second)]
    if as_json:
        click.echo(json.dumps([side.report.to_dict() for side in sides], indent=2))
        return
    from transpiler.report.differences import differences
    names = [Path(first).name, Path(second).name]
    if names[0] == names[1]:
        names = [first, second]
    a, b = ((name, side.report, side.plan) for name, side in zip(names, sides))
    click.echo(differences(a, b))


@main.command(short_help='Run two programs; compare all bytes.')
@click.argument('source', metavar='IN', type=_PROGRAM)
@click.argument('target', metavar='OUT', type=_PROGRAM)
@click.option('--feed', type=click.Path(dir_okay=False), help='Inputs as .npz; drawn if not given.')
@click.option('--fetch', multiple=True, help='Variable to compare, for a program without fetches.')
@click.option('--batch-size',
              type=click.IntRange(1),
              default=1,
              show_default=True,
              help='Rows of inputs that are drawn.')
@click.option('--every-setting', is_flag=True, help='OUT under every predictor setting.')
@click.option(
    '--requests',
    type=click.IntRange(0),
    default=0,
    help='Serve so many, too: what does the process grow by, with serve-settings and without?')
@click.option('--json', 'as_json', is_flag=True, help='The figures as JSON on stdout.')
@_talking
def check(source: str, target: str, feed: Optional[str], fetch: Tuple[str, ...], batch_size: int,
          every_setting: bool, requests: int, as_json: bool) -> None:
    """Run IN and OUT, each in a fresh process; compare all bytes and print the measured peaks."""
    with _progress('running both') as advance:
        from transpiler.backends.installed import saved_programs
        rows = saved_programs().compare(source, target, feed, list(fetch), batch_size,
                                        every_setting, advance, requests)
    if as_json:
        click.echo(json.dumps([row.to_dict() for row in rows], indent=2))
    else:
        from transpiler.report.text import plain_console
        from transpiler.serving.rows import table
        plain_console().print(table(rows))
    different = [row.title for row in rows if not row.equal]
    if different:
        click.echo('error: different bytes: ' + printable('; '.join(different)), err=True)
        sys.exit(DIFFERENT)


@main.command(short_help='Draw the memory as one HTML page.')
@click.argument('source', metavar='IN', type=_PROGRAM)
@_writing('HTML', 'Where the page goes.')
@_TRACE
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
    _note(f'wrote {output}')


@main.command('serve-settings', short_help='What a process that serves should set.')
@click.argument('source', metavar='MODEL', type=_PROGRAM)
@click.option('--json', 'as_json', is_flag=True, help='The settings as JSON on stdout.')
@_talking
def serve_settings(source: str, as_json: bool) -> None:
    """Name what a process that serves MODEL should set on this machine, so that it stays small."""
    with _progress('reading'):
        from transpiler.backends.installed import saved_programs
        programs = saved_programs()
        saved = programs.read(source)
        if not saved.for_inference:
            raise SavedFileError(f'{saved.path} has no fetch operator, so no predictor serves it')
        found = programs.settings(saved)
    if as_json:
        click.echo(json.dumps(found.to_dict(), indent=2))
    else:
        from transpiler.serving.settings import text
        click.echo(text(found), nl=False)


@main.command(short_help='Give the buffers of a CSV offsets in one arena.')
@click.argument('source', metavar='FILE.csv', type=click.Path(dir_okay=False))
@_writing('OUT.csv', 'Where the offsets go.')
@click.option('--alignment',
              type=click.IntRange(1),
              default=1,
              show_default=True,
              help='Offsets are multiples of so many bytes.')
@click.option('--capacity', type=ByteSize(), help='Write nothing if no arena this small is found.')
@click.option('--seconds',
              type=FromZero(),
              default=20.0,
              show_default=True,
              help='How long the search may take at most.')
@_talking
def pack(source: str, output: str, force: bool, alignment: int, capacity: Optional[int],
         seconds: float) -> None:
    """Give each buffer of a minimalloc CSV (id,lower,upper,size) an offset in one arena."""
    with _progress('packing'):
        from transpiler.packing_files import pack_file
        packing, text = pack_file(Path(source), alignment, capacity, seconds)
    from transpiler.serving.outputs import write_files
    write_files([(output, text.encode())], [Path(source)], force)
    click.echo(f'height {packing.height}, lower bound {packing.bound}, {packing.strategy}')


def _planned(source: str, hints: Dict[str, Any]) -> Tuple[Any, Any]:
    """The saved program and what `optimize` makes of it."""
    with _progress('loading Paddle') as told:
        from transpiler.backends.installed import saved_programs
        programs = saved_programs()
        from transpiler.planning import PlanOptions
        from transpiler.request import Request
        from transpiler.serving.wanted import Serving, check_budget
        told.say(f'reading {source}')
        saved = programs.read(source)
        if not saved.for_inference and not hints['fetch']:
            likely = f', as --fetch {saved.losses[0]}' if saved.losses else ''
            raise SavedFileError(
                f'{saved.path} has no fetch operator: name with --fetch what will be fetched{likely}'
            )
        request = Request(list(hints['fetch']), list(hints['skip']), hints['batch_size'],
                          hints['trip_count'], hints['runtime'], hints['budget'])
        recompute = '' if hints['recompute'] == 'off' else hints['recompute']
        options = PlanOptions(level=hints['level'],
                              recompute=recompute,
                              max_overhead=hints['max_overhead'],
                              progress=told.say)
        serving = Serving(hints['onednn'], hints['release_inputs'], hints['in_parts'])
        done = programs.optimize(saved, request, options, serving)
        check_budget(done.report, hints['budget'])
        return saved, done


def _as_json(report: Any, **more: Any) -> str:
    """With what of `more` there is."""
    added = {name: value for name, value in more.items() if value is not None}
    return json.dumps({**report.to_dict(), **added}, indent=2)


def _traced(path: Optional[str], done: Any) -> Dict[str, bytes]:
    """The trace and where it goes, if one is asked for."""
    if path is None:
        return {}
    from transpiler.report.trace import trace
    return {path: json.dumps(trace(done.report)).encode()}


class _Told:
    """What is being done, for a person who waits: a bar where stderr is a terminal, else a line every few seconds."""

    def __init__(self, title: str, bar: Progress, talk: str) -> None:
        self._title, self._bar, self._talk = title, bar, talk
        self._task = bar.add_task(title, total=None)
        self._began = self._last = time.monotonic()
        if talk == 'more':
            self.say(title)

    def say(self, what: str) -> None:
        """What comes next."""
        now = time.monotonic()
        self._bar.update(self._task, description=what)
        if self._talk == 'less' or not self._bar.disable:
            return
        if self._talk or now - self._last >= _SECONDS_BETWEEN_LINES:
            self._last = now
            click.echo(printable(f'{now - self._began:6.1f} s  {what}'), err=True)

    def __call__(self, share: float) -> None:
        """Which share is done."""
        self._bar.update(self._task, total=1.0, completed=share)
        self.say(f'{self._title}: {share:.0%}')


@contextlib.contextmanager
def _progress(title: str) -> Iterator[_Told]:
    """A bar and the time on stderr, if that is a terminal; call what it gives with the share that is done.

    Paddle takes seconds to import, so that is done inside. Its warnings are for its developers.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    console = Console(stderr=True)
    talk = _talk()
    with _without_warnings(talk), Progress(TextColumn('{task.description}', markup=False),
                                           BarColumn(),
                                           TimeElapsedColumn(),
                                           console=console,
                                           transient=True,
                                           disable=bool(talk) or not console.is_terminal) as bar:
        yield _Told(title, bar, talk)


@contextlib.contextmanager
def _without_warnings(talk: str) -> Iterator[None]:
    """Shows none of the warnings of Python code, but where more is asked for."""
    with warnings.catch_warnings():
        if talk != 'more':
            warnings.simplefilter('ignore')
        yield
