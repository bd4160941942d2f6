"""A program, tried in a fork before it is planned: Paddle may end the process on a damaged one."""

from __future__ import annotations

from transpiler.backends.paddle2.importer import import_message, parse
from transpiler.serving.files import SavedProgram
from transpiler.serving.forks import in_a_fork


def try_import(saved: SavedProgram) -> None:
    """Asks Paddle all that is asked of the program when it is planned; raises InvalidProgramError if Paddle ends."""

    def work() -> None:
        import_message(parse(saved.serialized))

    in_a_fork(work, str(saved.path))
