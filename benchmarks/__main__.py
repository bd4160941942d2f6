"""The command: `python -m benchmarks PROGRAM...` measures programs in fresh processes."""
from __future__ import annotations

import itertools
from pathlib import Path
from types import MappingProxyType
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import click
from rich.console import Console
from rich.progress import Progress

from benchmarks.markdown import markdown
from benchmarks.output import show, write
from benchmarks.programs import OPTIMIZERS, PROGRAMS, Options, UnknownProgramError, check_name
from benchmarks.runner import Summary, measure_all
from benchmarks.spec import EXECUTORS, Spec
from benchmarks.table import table

# Wide enough for every column where the output is not a terminal.
PIPE_WIDTH = 220

PLAIN, OPTIMIZED, RELEASED = "plain", "optimized", "released"
KINDS: Mapping[str, Tuple[str, ...]] = MappingProxyType({
    PLAIN: (PLAIN,),
    OPTIMIZED: (OPTIMIZED,),
    RELEASED: (RELEASED,),
    "both": (PLAIN, OPTIMIZED)
})
COLLECTIONS: Mapping[str, Tuple[bool, ...]] = MappingProxyType({
    "on": (True,),
    "off": (False,),
    "both": (True, False)
})


def listing() -> str:
    """Every program and the first line of what its builder says about itself."""
    lines = []
    for name, builder in PROGRAMS.items():
        about = (getattr(builder, "func", builder).__doc__ or "").strip().splitlines()[0]
        lines.append("{:24}{}".format(name, about))
    return "\n".join(lines)


def _option_values(optimizer: str, given: Dict[str, Any]) -> Tuple[Tuple[str, Any], ...]:
    """Only what differs from the defaults, so that equal requests have equal specs."""
    default = Options()
    chosen = {key: value for key, value in given.items() if value != getattr(default, key)}
    chosen["optimizer"] = optimizer
    return tuple(sorted(chosen.items()))


def specs(programs: Sequence[str], optimizers: Sequence[str], kinds: str, collection: str,
          executors: Sequence[str], steps: int, level: int, recompute: Optional[str], watched: bool,
          options: Dict[str, Any]) -> List[Spec]:
    """Every combination that was asked for, the plain one of each program first."""
    return [
        Spec(program,
             _option_values(optimizer, options),
             kind != PLAIN,
             collect,
             executor,
             steps,
             level if kind == OPTIMIZED else 0,
             recompute if kind == OPTIMIZED else None,
             released=kind == RELEASED,
             watched=watched) for program, optimizer, executor, collect, kind in itertools.product(
                 programs, optimizers, executors, COLLECTIONS[collection], KINDS[kinds])
    ]


def _measure(wanted: Sequence[Spec], repeats: int) -> List[Summary]:
    with Progress(transient=True, console=Console(stderr=True)) as progress:
        task = progress.add_task("measuring", total=len(wanted) * repeats)

        def done(spec: Spec) -> None:
            progress.update(task, advance=1, description=spec.program)

        return measure_all(wanted, repeats, done)


def report(summaries: Sequence[Summary], out: Optional[Path], as_markdown: bool) -> None:
    """Print the table, and write the figures where asked."""
    if as_markdown:
        click.echo(markdown(summaries))
    else:
        show(table(summaries), PIPE_WIDTH)
    write((each.to_dict() for each in summaries), out)


SIZES = tuple(
    click.option("--" + name.replace("_", "-"), name, type=click.IntRange(min=1))
    for name in ("batch_size", "image_size", "classes", "layers", "length", "width", "heads",
                 "vocabulary", "trip_count"))


def size_options(command: Any) -> Any:
    """The sizes of Options; a program ignores those that mean nothing to it."""
    for option in reversed(SIZES):
        command = option(command)
    return command


@click.command()
@click.argument("programs", nargs=-1)
@click.option("--list", "listed", is_flag=True, help="Name the programs and stop.")
@click.option("--optimizer",
              "optimizers",
              multiple=True,
              type=click.Choice(OPTIMIZERS),
              default=("sgd",),
              show_default=True)
@click.option("--plain", "kind", flag_value="plain", default="plain", help="Untouched (default).")
@click.option("--optimized", "kind", flag_value="optimized", help="After memory_optimize.")
@click.option("--released", "kind", flag_value="released", help="After release_memory.")
@click.option("--both", "kind", flag_value="both", help="Untouched and optimized.")
@click.option("--collection",
              type=click.Choice(tuple(COLLECTIONS)),
              default="both",
              show_default=True,
              help="The executor's garbage collection.")
@click.option("--executor",
              "executors",
              multiple=True,
              type=click.Choice(tuple(EXECUTORS)),
              default=("default",),
              show_default=True)
@click.option("--steps", type=click.IntRange(min=1), default=5, show_default=True)
@click.option("--repeat",
              type=click.IntRange(min=1),
              default=1,
              show_default=True,
              help="Fresh processes for each measurement.")
@click.option("--level", type=click.IntRange(0, 1), default=0, help="memory_optimize's level.")
@click.option("--recompute",
              type=click.Choice(("auto", "cheap", "max", "off")),
              help="memory_optimize's recompute.")
@click.option("--watched",
              is_flag=True,
              help="Look at the bytes held all the time too: Paddle's counter misses peaks of the "
              "default executor. Takes time from the runs.")
@click.option("--inference", is_flag=True, help="Forward only.")
@click.option("--static-batch", is_flag=True, help="A concrete batch size in place of -1.")
@click.option("--dropout", type=click.FloatRange(0, 1, max_open=True))
@click.option("--seed", type=int, default=Options().seed, show_default=True)
@click.option("--json", "out", type=click.Path(dir_okay=False, path_type=Path), help="Figures.")
@click.option("--markdown",
              "as_markdown",
              is_flag=True,
              help="README's table, of what was measured untouched and optimized.")
@size_options
def main(programs: Tuple[str,
                         ...], listed: bool, optimizers: Tuple[str,
                                                               ...], kind: str, collection: str,
         executors: Tuple[str, ...], steps: int, repeat: int, level: int, recompute: Optional[str],
         watched: bool, out: Optional[Path], as_markdown: bool, **options: Any) -> None:
    """Measure PROGRAMS, each figure in a fresh process; `all` names every one of them."""
    if listed or not programs:
        click.echo(listing())
        return
    if as_markdown and kind != "both":
        raise click.UsageError("--markdown has both in a row: give --both, too")
    names = tuple(PROGRAMS) if programs == ("all",) else programs
    try:
        for name in names:
            check_name(name)
        wanted = specs(names, optimizers, kind, collection, executors, steps, level, recompute,
                       watched, options)
        summaries = _measure(wanted, repeat)
    except UnknownProgramError as error:
        raise click.ClickException(str(error)) from error
    report(summaries, out, as_markdown)
    for each in summaries:
        if each.failure is not None:
            click.echo(each.failure, err=True)
    if not all(each.sound for each in summaries):
        raise click.ClickException(
            "not everything ran, or not all results are equal to the last bit")


if __name__ == "__main__":
    main()
