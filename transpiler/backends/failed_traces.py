"""What a trace of `paddle.jit.to_static` leaves behind that fails.

Paddle notes what a trace meets, parameters above all, under the id of the program that it makes, and forgets that when the trace is through. One
that raises it does not forget: a later program that comes to lie where the failed one did takes the parameters of that for its own,
which are gone, and the process crashes or computes with the wrong ones. Of two of one name it updates either.
"""

from __future__ import annotations

import contextlib
from typing import Any, Dict, Iterator, List

from paddle.jit.dy2static.program_translator import ProgramTranslator

try:
    from paddle.jit.dy2static import parameter_recorder
except ImportError:
    try:  # where it is up to Paddle 3.2
        from paddle.jit.pir_dy2static import parameter_recorder
    except ImportError:
        parameter_recorder = None


@contextlib.contextmanager
def forgotten_if_failed() -> Iterator[None]:
    """Inside, what raises leaves nothing of the traces that began there."""
    before = [set(found) for found in noted()]
    try:
        yield
    except BaseException:
        for found, known in zip(noted(), before):
            for key in set(found) - known:
                del found[key]
        raise


def noted() -> List[Dict[int, Any]]:
    """What Paddle holds of traces that are not through, by ids of programs."""
    parameters = getattr(parameter_recorder, '_global_parameter_recorder', None)
    if not hasattr(parameters, 'tensor2value'):  # Paddle 2, whose traces are of old programs
        translator = ProgramTranslator.get_instance()
        return [translator._params_recorder.params_dict, translator._inplace_map.params_dict]
    return [
        parameters.params_dict, parameters.tensor2value,
        parameter_recorder._global_inplace_map.params_dict
    ]
