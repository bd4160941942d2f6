"""Programs of Paddle 3 in files."""
from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

import numpy as np
import paddle
from paddle import static

from transpiler.backends.scopes import fresh_scope


def save(path: Path,
         build: Callable[[Any], Any],
         shape: List[Optional[int]],
         dtype: str = 'float32') -> Path:
    """What `build` makes of an input `x`, as served; gives `path` as the command line takes it."""
    main, startup = static.Program(), static.Program()
    with paddle.utils.unique_name.guard(), static.program_guard(main, startup):
        paddle.seed(7)
        x = static.data('x', shape, dtype)
        y = build(x)
        with fresh_scope():
            executor = static.Executor(paddle.CPUPlace())
            executor.run(startup)
            static.save_inference_model(str(path), [x], [y], executor, program=main)
    return path


def wide(x: Any, branches: int = 4, width: int = 4096) -> Any:
    """Built level by level: in this order all the wide results are there at once."""
    large = [static.nn.fc(x, width) for _ in range(branches)]
    return paddle.concat([static.nn.fc(each, 8) for each in large], axis=-1)


def contents(folder: Path) -> Dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob('*') if p.is_file()}


def save_arrays(path: Path, rows: int, width: int) -> None:
    np.savez(str(path), x=np.random.RandomState(3).rand(rows, width).astype('float32'))
