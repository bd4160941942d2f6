"""What the symbolic dims of sizes are called, and what they count."""

from __future__ import annotations

BATCH = 'N'  # rows of inputs: the batch, or `N(input)` where inputs differ
WORDS = 'L'  # rows of a LoD tensor: words, not sentences
STEP = 'R'  # rows at one time step of the sequences of a rank table


def is_batch(symbol: str) -> bool:
    """Whether `symbol` counts rows of an input, which a batch size is a hint for."""
    return symbol == BATCH or symbol.startswith(f'{BATCH}(')


def is_words(symbol: str) -> bool:
    return symbol.startswith(f'{WORDS}(')


def is_step(symbol: str) -> bool:
    """Whether it counts rows at one time step: on average, the rows of all steps divided by the steps."""
    return symbol.startswith(f'{STEP}(')


def input_of(symbol: str) -> str:
    """The input after which rows are called, as in `N(input)`; '' for others."""
    kind, _, name = symbol.partition('(')
    return name[:-1] if kind in (BATCH, WORDS) else ''


def is_length(symbol: str) -> bool:
    """Whether it is an open dim of an input that is not its rows: `input[1]`, by the input and the dim."""
    return symbol.endswith(']')


def is_trip(symbol: str) -> bool:
    """Whether it counts the trips of a loop: `T` and the number of its block."""
    return symbol[0] == 'T' and symbol[1:].isdigit()


def trip(block: int) -> str:
    """The symbol of the trips of the loop whose body is `block`."""
    return f'T{block}'
