"""A plan that the verifier rejects is dropped for one that saves less, and only the report says so: where tests run, it is an
error."""
from __future__ import annotations

import contextlib
from typing import Any, Iterator
from unittest import mock

from transpiler import flow
from transpiler.errors import VerificationError


@contextlib.contextmanager
def no_plan_is_dropped() -> Iterator[None]:
    """Here, and in forks that begin here, AssertionError in place of a simpler plan."""
    write_proved = flow.write_proved

    def write(*arguments: Any, **more: Any) -> Any:
        try:
            return write_proved(*arguments, **more)
        except VerificationError as error:
            raise AssertionError(f"a plan would be dropped: {error}") from error

    with mock.patch.object(flow, "write_proved", write):
        yield
