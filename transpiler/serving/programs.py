"""What the command line does with saved programs of Paddle 2. See `backends.base.SavedPrograms`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, List, Mapping

from transpiler.planning import PlanOptions
from transpiler.request import Request
from transpiler.serving import checking
from transpiler.serving.files import SavedProgram, read_program, write_program
from transpiler.serving.offline import optimize_saved
from transpiler.serving.rows import Row
from transpiler.serving.settings import Settings, serve_settings
from transpiler.serving.wanted import Optimized, Serving


class Saved:

    def read(self, given: str) -> SavedProgram:
        return read_program(given)

    def optimize(self, saved: SavedProgram, request: Request, options: PlanOptions,
                 serving: Serving) -> Optimized:
        return optimize_saved(saved, request, options, serving)

    def write(self, out: str, saved: SavedProgram, done: Optimized, force: bool,
              others: Mapping[str, bytes]) -> List[Path]:
        return write_program(out, saved, done.serialized, done.replaced, force, others)

    def compare(self, *args: Any) -> List[Row]:
        return checking.compare(*args)

    def settings(self, saved: SavedProgram) -> Settings:
        return serve_settings(saved)
