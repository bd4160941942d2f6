"""What kernels allocate for themselves while they run (Paddle 3.3.1 on a CPU), without running them.

`workspaces.json` is what `python -m benchmarks.kernels` found by running each kernel alone at several sizes, in cases: see
`backends.kernel_tables`. Slots and attributes are called what Paddle 3 calls them; an operand that is a number in the program is an
attribute, too.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import paddle

from transpiler.backends import einsum
from transpiler.backends.formulas import Tensor
from transpiler.backends.kernel_tables import NONE, Cases, Kernel, by_cases, is_bound, parse
from transpiler.backends.paddle3 import broadcasts
from transpiler.backends.paddle3.aliases import DIALECT
from transpiler.backends.paddle3.attributes import given_attributes
from transpiler.backends.paddle3.constants import constant_maker
from transpiler.backends.paddle3.flattened import FLATTENS
from transpiler.backends.paddle3.importer import Handle, ImportedProgram
from transpiler.backends.paddle3.naming import bare_kind
from transpiler.backends.paddle3.tensors import item_bytes
from transpiler.ir import NOTHING, Op, Size, Value, ValueKind

TABLE = Path(__file__).with_name('workspaces.json')
# Versions whose kernels take what the table says. In 3.0 some take less, as gradients of broadcasts.
_COVERED = ('3.2', '3.3')
# They make numbers that the program has; `data` is what the caller gives.
NUMBERS = ('full', 'full_int_array')
# Kernels that hand on what is there, or what they make, or look at it.
_WITHOUT = frozenset({
    'data', 'feed', 'fetch', 'share_data', 'share_var', 'depend', 'nop', FLATTENS, 'print', 'assert'
})


@lru_cache(maxsize=1)
def table() -> Mapping[str, Cases]:
    """Cases by kind of operator."""
    return parse(TABLE.read_text(encoding='utf-8'))


def is_covered(version: str = paddle.__version__) -> bool:
    """Whether the table is of that Paddle."""
    return '.'.join(version.split('.')[:2]) in _COVERED


def look_up(imported: ImportedProgram) -> None:
    """Says of each op of the graph what its kernel allocates, or at most allocates if the table is of another Paddle; None if nobody
    knows."""
    values = imported.graph.values
    for at, handle in imported.handles.items():
        op = imported.graph.ops[at]
        if not _is_nothing(op, handle):
            op.workspace, op.bounded = _of(handle, values)


def _is_nothing(op: Op, handle: Handle) -> bool:
    """Whether no kernel runs for it, or one that needs no memory."""
    return bool(handle.op.num_regions() or op.facts.boundary or op.kind in _WITHOUT or
                not handle.op.name().startswith(DIALECT))


def _of(handle: Handle, values: Sequence[Value]) -> Tuple[Optional[Size], bool]:
    """Bytes that the kernel allocates, None if nobody knows; and whether it may be less."""
    kind = bare_kind(handle.op)
    cases = table().get(kind)
    if cases is None and kind not in broadcasts.KINDS:
        return None, False
    made = [() if _is_unread_list(value) else ids
            for value, ids in zip(handle.op.results(), handle.results)]
    touched = (values[v] for slot in (*handle.operands, *made) for v in slot if v >= 0)
    if any(each.kind is not ValueKind.DENSE for each in touched):
        return None, False
    if cases == NONE:
        return NOTHING, False
    slots = _slots(handle.op.get_output_names(), made, values)
    slots.update(_slots(handle.op.get_input_names(), handle.operands, values))
    kernel = Kernel(kind, attributes_of(handle.op), slots)
    may_be_less = _exactly(kernel) is None and is_bound(kernel, cases or ())
    return workspace(kernel, cases or ()), may_be_less


def _is_unread_list(value: Any) -> bool:
    """Whether it is a list of which nobody has a member: the graph has none of them, and the table counts them as the kernel's own."""
    return bool(value.initialized() and value.is_combine() and value.use_empty())


def workspace(kernel: Kernel, cases: Cases) -> Optional[Size]:
    """Bytes that `kernel` allocates besides its results, by `cases` if nothing says it better; None if they don't tell."""
    exact = _exactly(kernel)
    return by_cases(kernel, cases) if exact is None else exact


def _exactly(kernel: Kernel) -> Optional[Size]:
    """By what its operands and attributes say together, which no case can; None if that does not tell."""
    if kernel.kind in broadcasts.KINDS:
        return broadcasts.workspace(kernel.kind, kernel.slots)
    return _of_einsum(kernel) if kernel.kind in einsum.KINDS else None


def _of_einsum(kernel: Kernel) -> Optional[Size]:
    """As in 2.6, and what it makes of gradients before it copies them to its results; None where only a bound is known."""
    named = {'Operands': 'x', 'Out': 'out', 'Operands@GRAD': 'x_grad', 'Out@GRAD': 'out_grad'}
    slots = {old: kernel.slots[new] for old, new in named.items() if new in kernel.slots}
    turned = einsum.workspace(kernel.kind, kernel.attributes(einsum.EQUATION), slots)
    made = [each.bytes for each in slots.get('Operands@GRAD', ())]
    return None if turned is None else Size.total([turned, *made])


def _slots(names: Sequence[str], ids: Sequence[Sequence[int]],
           values: Sequence[Value]) -> Dict[str, Tuple[Tensor, ...]]:
    return {
        name: tuple(_tensor(values[v]) for v in each if v >= 0) for name, each in zip(names, ids)
    }


def _tensor(value: Value) -> Tensor:
    return Tensor(value.shape, item_bytes(value.dtype), value.dtype)


def attributes_of(op: Any) -> Callable[[str], Any]:
    """Gives an attribute of `op` by its name; None if it has none."""
    known: List[Dict[str, Any]] = []

    def find(name: str) -> Any:
        if not known:
            known.append(given_attributes(op))
        return plain(known[0][name]) if name in known[0] else number_of(op, name)

    return find


def plain(value: Any) -> Any:
    """Numbers, texts and lists of them are what they are; of a type its name; else None."""
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, (bool, int, float, str)):
        return value
    return getattr(value, 'name', None) if type(value).__name__ == 'DataType' else None


def number_of(op: Any, name: str) -> Any:
    """What the operand of that name is, if the program has it as a number, or as some."""
    names = op.get_input_names()
    source = op.operand_source(names.index(name)) if name in names else None
    maker = constant_maker(source, *NUMBERS)
    if maker is None:
        return None
    value = plain(given_attributes(maker)['value'])
    whole = isinstance(value, float) and 'INT' in source.dtype.name
    return int(value) if whole else value
