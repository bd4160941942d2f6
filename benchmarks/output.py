"""What the commands leave: a table for people, figures as JSON."""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Iterable, Optional

from rich.console import Console
from rich.table import Table


def show(table: Table, width: int) -> None:
    """Prints it as wide as the terminal is, or `width` columns wide where the output is none."""
    console = Console()
    (console if console.is_terminal else Console(width=width)).print(table)


def write(figures: Iterable[Any], out: Optional[Path]) -> None:
    """JSON-ready ones, where asked."""
    if out is not None:
        out.write_text(json.dumps(list(figures), indent=1) + "\n")
