"""Generated programs with which something was wrong once: saved as they were, with the shapes that they are fed."""
from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np
import paddle

from tests.harness import Case
from tests.wild.programs import Built

_FOLDER = Path(__file__).parent / 'seen'
NAMES = tuple(sorted(path.name for path in _FOLDER.iterdir()))
_Looks = Dict[str, Tuple[List[int], str,
                         Optional[int]]]  # by input: shape, type, and what integers are below


@dataclass(frozen=True)
class Seen:
    """A program, the modes in which it failed, and the budget that it broke, if that was it."""

    built: Built
    modes: Sequence[str]
    budget: Optional[int]


def load(name: str) -> Seen:
    paddle.enable_static()
    folder = _FOLDER / name
    told = json.loads((folder / 'case.json').read_text())
    main, startup = (paddle.static.Program.parse_from_string(
        (folder / f'{part}.pdmodel').read_bytes()) for part in ('main', 'startup'))
    case = Case(main, startup, lambda step: _fed(told['feeds'][step % len(told['feeds'])], step),
                told['fetch'])
    return Seen(Built(case, told['options']), told['modes'], told['budget'])


def _fed(looks: _Looks, step: int) -> Dict[str, Any]:
    rng = np.random.RandomState(1000 + step)
    fed = {}
    for name, (shape, dtype, below) in looks.items():
        drawn = rng.uniform(-1, 1, shape) if below is None else rng.randint(0, below, shape)
        fed[name] = (drawn > 0 if dtype == 'bool' else drawn).astype(dtype)
    return fed
