"""What the command line does with saved programs of Paddle 3. See `backends.base.SavedPrograms`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, List, Mapping

from transpiler.errors import InvalidArgumentError
from transpiler.planning import PlanOptions
from transpiler.request import Request
from transpiler.serving.pir import checking
from transpiler.serving.pir.files import SavedModel, read_model, write_model
from transpiler.serving.pir.offline import check_written, optimize_model
from transpiler.serving.rows import Row
from transpiler.serving.wanted import Optimized, Serving


class Saved:

    def read(self, given: str) -> SavedModel:
        return read_model(given)

    def optimize(self, saved: SavedModel, request: Request, options: PlanOptions,
                 serving: Serving) -> Optimized:
        return optimize_model(saved, request, options, serving)

    def write(self, out: str, saved: SavedModel, done: Optimized, force: bool,
              others: Mapping[str, bytes]) -> List[Path]:
        check_written(saved)
        return write_model(out, saved, done.serialized, force, others)

    def compare(self, *args: Any) -> List[Row]:
        return checking.compare(*args)

    def settings(self, saved: SavedModel) -> Any:
        raise InvalidArgumentError(
            'serve-settings is for programs of Paddle 2 (.pdmodel): what Paddle 3 keeps from request '
            'to request is not modelled')
