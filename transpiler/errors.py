"""Errors that a user of the library can meet. Each message names the thing and the way out."""

from __future__ import annotations


class TranspilerError(Exception):
    """Base of all errors raised on purpose. The program is unchanged when one is raised."""


class UnsupportedPaddleError(TranspilerError):
    """The installed Paddle is missing, or is a version whose runtime is not modelled."""


class InvalidProgramError(TranspilerError, TypeError):
    """The argument is no static-graph program, or its description is damaged."""


class InvalidArgumentError(TranspilerError, ValueError):
    """An argument of the call has a wrong type or an impossible value."""


class UnknownVariableError(TranspilerError, ValueError):
    """A variable named in `fetch_list` is not in the program."""


class MergedVariableError(TranspilerError, RuntimeError):
    """A variable was fetched whose memory the optimizer gave to another."""


class ChangedTensorError(TranspilerError, RuntimeError):
    """What a backward part of a layer makes again would not be what its forward part has made."""


class VerificationError(TranspilerError):
    """The rewritten program was not proved equal to the original; nothing was written back."""


class MemoryBudgetError(TranspilerError):
    """No plan fits into the budget. `best_bytes` is the lowest peak above resting that was reached, `held_bytes` what is there
    besides, resting memory included."""

    def __init__(self, message: str, best_bytes: int = 0, held_bytes: int = 0) -> None:
        super().__init__(message)
        self.best_bytes = best_bytes
        self.held_bytes = held_bytes


class SavedFileError(TranspilerError):
    """A saved program cannot be read, or the new one cannot be written. Nothing was written."""
