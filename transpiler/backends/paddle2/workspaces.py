"""What kernels allocate for themselves while they run (Paddle 2.6.2 on a CPU, without oneDNN).

`workspaces.json` is what `python -m benchmarks.kernels` found by running each kernel alone at several sizes, in cases: see
`backends.kernel_tables`.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, Callable, Dict, Hashable, Iterable, Mapping, Optional, Tuple

from paddle.base import core
from paddle.base.proto import framework_pb2

from transpiler.backends.formulas import Tensor
from transpiler.backends.kernel_tables import NONE, Case, Kernel, attributes_asked, by_cases, is_bound, parse
from transpiler.backends import einsum
from transpiler.backends.paddle2.descs import runs_blocks, value_of
from transpiler.ir import NOTHING, Graph, Op, Size, Value, ValueKind

TABLE = Path(__file__).with_name('workspaces.json')
# Kernels that only run others, move names about, or hand buffers in and out.
_WITHOUT = frozenset({'feed', 'fetch', 'fetch_v2', 'share_buffer', 'share_data', 'depend', 'nop'})
# Kernels that wait for those of other workers, and take no memory of Paddle's besides: tests/fleet_worker.py runs them over gloo.
COLLECTIVES = frozenset({
    'c_allreduce_sum', 'c_allreduce_max', 'c_allreduce_min', 'c_allreduce_prod', 'c_broadcast',
    'c_reduce_sum', 'c_reduce_max', 'c_allgather'
})


@lru_cache(maxsize=1)
def table() -> Mapping[str, Tuple[Case, ...]]:
    """Cases by kind of operator."""
    return parse(TABLE.read_text(encoding='utf-8'))


def workspace(kernel: Kernel, cases: Tuple[Case, ...]) -> Optional[Size]:
    """Bytes that `kernel` allocates besides its results, by `cases`; None if they don't tell."""
    if kernel.kind in (einsum.KIND, einsum.GRADIENT):
        exact = einsum.workspace(kernel.kind, kernel.attributes(einsum.EQUATION), kernel.slots)
        if exact is not None:
            return exact
    return by_cases(kernel, cases)


class Workspaces:
    """What kernels allocate besides their results, for one import: most ops of a deep program are like some other."""

    def __init__(self) -> None:
        self._found: Dict[Hashable, Tuple[Optional[Size], bool]] = {}

    def of(self, graph: Graph, op: Op, desc: framework_pb2.OpDesc) -> Tuple[Optional[Size], bool]:
        """Bytes that the kernel of `op`, imported from `desc` into `graph`, allocates, None if nobody knows; and whether it may be less."""
        if desc.type in _WITHOUT or desc.type in COLLECTIVES:
            return NOTHING, False
        cases = table().get(desc.type, ())
        if cases == NONE or runs_blocks(desc):
            return NOTHING, False
        kernel = kernel_of(graph, op, desc)
        asked = (einsum.EQUATION,) if desc.type in (einsum.KIND, einsum.GRADIENT) else ()
        said = [repr(kernel.attributes(name)) for name in (*asked, *attributes_asked(cases))]
        key = (desc.type, *kernel.slots.items(), *said)
        if key not in self._found:
            self._found[key] = workspace(kernel, cases), is_bound(kernel, cases)
        return self._found[key]


def attributes_of(desc: framework_pb2.OpDesc) -> Callable[[str], Any]:
    """Gives an attribute of `desc` by its name; None if it has none."""

    def find(name: str) -> Any:
        return next((value_of(a) for a in desc.attrs if a.name == name), None)

    return find


def kernel_of(graph: Graph, op: Op, desc: framework_pb2.OpDesc) -> Kernel:
    """`op` of `graph`, which is imported from `desc`, as the kernel that it runs."""
    named = values_of(graph, desc.outputs, op.results)
    named.update(values_of(graph, desc.inputs, op.operands))
    slots = {slot: tuple(map(_tensor, values)) for slot, values in named.items()}
    return Kernel(desc.type, attributes_of(desc), slots)


def values_of(graph: Graph, slots: Iterable[framework_pb2.OpDesc.Var],
              ids: Tuple[int, ...]) -> Dict[str, Tuple[Value, ...]]:
    """By slot: the values of `graph` that it names; `ids` are those of all `slots` by position."""
    found: Dict[str, Tuple[Value, ...]] = {}
    position = 0
    for slot in slots:
        own = ids[position:position + len(slot.arguments)]
        position += len(own)
        found.setdefault(slot.parameter, tuple(graph.values[v] for v in own if v >= 0))
    return found


def _tensor(value: Value) -> Tensor:
    return Tensor(value.shape,
                  item_bytes(value.dtype) if value.dtype else 0, value.dtype, value.kind
                  is ValueKind.SELECTED_ROWS)


@lru_cache(maxsize=None)
def item_bytes(dtype: str) -> int:
    """Bytes of an element of a type, by its name."""
    return core.size_of_dtype(getattr(core.VarDesc.VarType, dtype))
