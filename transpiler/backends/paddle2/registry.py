"""Facts about operators, asked of Paddle's own registry.

An operator that eager mode offers in place, as `relu_`, runs there with one tensor as operand and result: so may
it here. What the registry does not know (which operators draw random numbers without a seed attribute, or act
on the world outside the program) stands in the few sets below.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Container, Dict, FrozenSet, Hashable, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

from paddle import _legacy_C_ops
from paddle.base import core
from paddle.base.framework import OpProtoHolder
from paddle.base.proto import framework_pb2

from transpiler.backends.extents import extents_of
from transpiler.backends.operators import ELEMENTWISE, by_name, share_kept
from transpiler.backends.paddle2.descs import OF_MAKING, declare_vector, is_onednn, read_by, written_by
from transpiler.backends.paddle2.rows import BY_ROWS, rows_of
from transpiler.backends.settings import has_cpu_kernels_alone
from transpiler.ir import OpFacts, Replay

EMPTY_NAME = '@EMPTY@'
# What `python -m benchmarks.kernels.fresh`, `late` and `separate` found by running each kernel, by kind of operator: slots of results
# in which it goes on with what is there; those that it makes in other memory at first, and whether it does so where it needs none of
# its own, too; and by slot of a result, slots of operands that are not read for that alone.
FRESH = Path(__file__).with_name('fresh_results.json')
LATE = Path(__file__).with_name('late_results.json')
SEPARATE = Path(__file__).with_name('separate_results.json')
_CHANNEL_LAST = ('NHWC', 'NDHWC')  # some kernels copy all operands to another layout first
# Draw random numbers, yet may have no attribute with `seed` in its name.
_UNSEEDED_RANDOM = frozenset({
    'bernoulli', 'bernoulli_p', 'binomial', 'dirichlet', 'dropout', 'dropout_nd', 'exponential',
    'flash_attn', 'flash_attn_unpadded', 'graph_khop_sampler', 'graph_sample_neighbors',
    'gumbel_softmax', 'memory_efficient_attention', 'multinomial', 'poisson', 'random_routing',
    'rrelu', 'sampling_id', 'shuffle_batch', 'standard_gamma', 'weighted_sample_neighbors'
})
# Act on something that is no variable of the program.
_SIDE_EFFECTS = frozenset({
    'feed', 'fetch', 'fetch_v2', 'print', 'assert', 'py_func', 'py_layer', 'save', 'load',
    'save_combine', 'load_combine', 'read', 'read_file', 'create_py_reader', 'enqueue', 'dequeue',
    'delete_var', 'share_buffer', 'share_data', 'barrier', 'nop', 'depend'
})
# Talk to servers of parameters: what they give may be something else each time, and what they take they know by its name. By what
# such operators are called, and by attributes that no others have.
_OF_SERVERS = frozenset({
    'send', 'recv', 'prefetch', 'fetch_barrier', 'pull_box_sparse', 'push_box_sparse',
    'pull_box_extended_sparse', 'push_box_extended_sparse', 'pull_gpups_sparse', 'push_gpups_sparse'
})
_ASKS_SERVERS = frozenset(
    {'table_id', 'TableId', 'send_varnames', 'next_endpoints', 'pserver_id', 'half_async'})
_GRADIENT = '@GRAD'
_SCRATCH_SIZE = 2
# How Paddle describes a kernel of oneDNN's, and what it calls types there.
_ONEDNN_KERNEL = re.compile(r'\{data_type\[(?:.*::)?(\w+)\]; data_layout\[ONEDNN\]')
# Paddle has one, and never picks it: the op reads and writes the layout of all others, as `GLOG_v=3` tells (2.6.2).
_NEVER_ONEDNN = frozenset({'reshape2'})
_TYPES_OF_KERNELS = MappingProxyType({
    'bfloat16': 'BF16',
    'float': 'FP32',
    'int8_t': 'INT8',
    'uint8_t': 'UINT8'
})
_IN, _OUT = 'in:', 'out:'  # what the arguments of an op alone are called, before their slot

# Slots of state that an operator carries on in training and computes nothing else from. Batch statistics make
# batch_norm's result; running ones do as soon as one of these attributes is set.
_STATE = {'batch_norm': (('Mean', 'MeanOut'), ('Variance', 'VarianceOut'))}
# Slots that are there for their names: the kernel looks at none of the variables. What ops of its block read is another
# matter.
_UNREAD = {'while_grad': ('X', 'Out')}
_STATE_IS_USED = ('is_test', 'use_global_stats')
_TRAINS_IN_TESTS = 'trainable_statistics'  # as if `is_test` were not set

# Types of attributes that point into the program of an op.
_OF_PROGRAM = frozenset(
    {framework_pb2.BLOCK, framework_pb2.BLOCKS, framework_pb2.VAR, framework_pb2.VARS})
_Pairs = Tuple[Tuple[int, int], ...]
_Signature = Tuple[Hashable, ...]
# Gives all workers of a ring what its root has.
_SENDS_TO_ALL = 'c_broadcast'
_ROOT = 'root'
# Operators of which some facts depend on attributes.
_BY_ATTRIBUTES = frozenset({
    *_STATE, *ELEMENTWISE, *BY_ROWS, 'increment', 'fill_constant', 'fill_any_like', 'sum',
    'dropout', _SENDS_TO_ALL
})


class OpRegistry:
    """Answers what an operator may do, one instance (and one cache) for a program and what is written of it."""

    def __init__(self, rank: Optional[int] = None) -> None:
        """`rank`: this process, in which the program will run, has it in all rings of workers; None where that is not known."""
        self._rank = rank
        self._protos = OpProtoHolder.instance().op_proto_map
        self._cache: Dict[_Signature, OpFacts] = {}
        # Signatures of ops of which Paddle looks at the attributes, too, to say which operands it reads.
        self._with_attributes: Set[_Signature] = set()

    def is_registered(self, kind: str) -> bool:
        try:
            core.has_infer_inplace(kind)
        except Exception:  # the binding has no narrower type for "not registered"
            return False
        return True

    def facts(self, desc: framework_pb2.OpDesc) -> OpFacts:
        """Facts of the operator in `desc`; positions count its arguments slot by slot.

        One of which Paddle does not answer what it is asked, whatever it throws, is unknown.
        """
        signature: _Signature = (desc.type,
                                 tuple([(s.parameter, len(s.arguments)) for s in desc.inputs]),
                                 tuple([(s.parameter, len(s.arguments)) for s in desc.outputs]))
        if desc.type in _BY_ATTRIBUTES:
            signature += (_updates(desc), _unchanged(desc, self._rank), _adds(desc), _fills(desc),
                          _folds(desc), _replay(desc), _is_elementwise(desc), rows_of(desc))
        if desc.type in _measured(SEPARATE):
            signature += (_separate(desc),)
        if signature in self._with_attributes:
            signature += (_attribute_bytes(desc),)
        found = self._cache.get(signature)
        if found is None:
            found = self._ask(desc, signature)
        return found

    def _ask(self, desc: framework_pb2.OpDesc, signature: _Signature) -> OpFacts:
        facts = replace(by_name(desc.type), known=False)
        if self.is_registered(desc.type):
            try:
                in_place = self._in_place_positions(desc)
                shape_only, by_attributes = _shape_only_positions(desc)
            except Exception:  # the bindings throw what the kernels' authors did
                pass
            else:
                facts = self._facts(desc, in_place, shape_only)
                if by_attributes and signature not in self._with_attributes:
                    self._with_attributes.add(signature)
                    signature += (_attribute_bytes(desc),)
        self._cache[signature] = facts
        return facts

    def _facts(self, desc: framework_pb2.OpDesc, in_place: _Pairs,
               shape_only: FrozenSet[int]) -> OpFacts:
        attributes = {a.name for a in desc.attrs}
        proto = self._protos.get(desc.type)
        if proto is not None:
            attributes |= {a.name for a in proto.attrs}
        of_servers = desc.type in _OF_SERVERS or not _ASKS_SERVERS.isdisjoint(attributes)
        return replace(
            by_name(desc.type),
            by_names=of_servers,
            random=_draws_random_numbers(desc.type, attributes),
            aliases=desc.type == 'share_data',
            side_effect=of_servers or desc.type in _SIDE_EFFECTS or not desc.outputs,
            collective='ring_id' in attributes,
            # Devices communicate on streams of their own.
            asynchronous='ring_id' in attributes and not has_cpu_kernels_alone(),
            in_place=in_place,
            same_name=hasattr(_legacy_C_ops, f'{desc.type}_'),
            onto=((0, 0),) if _is_elementwise(desc) else (),
            shape_only=shape_only,
            unread=_unread_positions(desc),
            fresh=_fresh_positions(desc),
            late=_late_positions(desc, always=False),
            elsewhere=_late_positions(desc, always=True),
            separate=_separate(desc),
            updates=_updates(desc),
            unchanged=_unchanged(desc, self._rank),
            adds=_adds(desc),
            fills=_fills(desc),
            left_fold=_folds(desc),
            replay=_replay(desc),
            elementwise=_is_elementwise(desc),
            rows=rows_of(desc),
            chooses=desc.type == 'select_output',
            **extents_of(desc.type, [s.parameter for s in desc.inputs],
                         _by_slot(desc.inputs), [s.parameter for s in desc.outputs],
                         _by_slot(desc.outputs), _GRADIENT, desc.type == 'sum'))

    def _in_place_positions(self, desc: framework_pb2.OpDesc) -> Tuple[Tuple[int, int], ...]:
        if not core.has_infer_inplace(desc.type):
            return ()
        slots = self._ask_in_place(desc)
        first_in, first_out = first_positions(desc.inputs), first_positions(desc.outputs)
        return tuple(
            (first_in[i], first_out[o]) for i, o in slots if i in first_in and o in first_out)

    def _ask_in_place(self, desc: framework_pb2.OpDesc) -> Tuple[Tuple[str, str], ...]:
        """In-place (input, output) slots: Paddle's in-place pass, run on a program of this op alone."""
        program = core.ProgramDesc(_single_op_program(desc).SerializeToString())
        core.apply_pass(program, core.ProgramDesc(), 'buffer_shared_inplace_pass', {
            'use_cuda': core.is_compiled_with_cuda(),
            'mem_opt_skip_vars': []
        }, {
            'use_cuda': 'bool',
            'mem_opt_skip_vars': 'list[str]'
        })
        ops = [program.block(0).op(i) for i in range(program.block(0).op_size())]
        return tuple((source[len(_IN):], target[len(_OUT):]) for op in ops
                     if op.type() == 'share_buffer'
                     for source, target in zip(op.input('X'), op.output('Out')))


def _draws_random_numbers(kind: str, attributes: FrozenSet[str]) -> bool:
    is_gradient = kind.endswith('_grad')
    has_seed = any('seed' in name for name in attributes)
    return not is_gradient and (has_seed or kind in _UNSEEDED_RANDOM)


def _updates(desc: framework_pb2.OpDesc) -> _Pairs:
    used = any(a.b for a in desc.attrs if a.name in _STATE_IS_USED)
    return () if used else _state_positions(desc)


def _unchanged(desc: framework_pb2.OpDesc, rank: Optional[int]) -> _Pairs:
    if desc.type == _SENDS_TO_ALL:
        return ((0, 0),) if _sends_its_own(desc, rank) else ()
    said = {a.name for a in desc.attrs if a.b}
    left = 'use_global_stats' in said or 'is_test' in said and _TRAINS_IN_TESTS not in said
    return _state_positions(desc) if left else ()


def _sends_its_own(desc: framework_pb2.OpDesc, rank: Optional[int]) -> bool:
    """The root sends what it has, and its kernel writes nothing there. Kernels of devices, on streams of their own, are not known
    so well."""
    if rank is None or not has_cpu_kernels_alone():
        return False
    root = next((a.i for a in desc.attrs if a.name == _ROOT), 0)
    return root == rank and len(read_by(desc)) == len(written_by(desc)) == 1


def _state_positions(desc: framework_pb2.OpDesc) -> _Pairs:
    if desc.type not in _STATE:
        return ()
    first_in, first_out = first_positions(desc.inputs), first_positions(desc.outputs)
    return tuple((first_in[i], first_out[o])
                 for i, o in _STATE[desc.type]
                 if i in first_in and o in first_out)


def _unread_positions(desc: framework_pb2.OpDesc) -> FrozenSet[int]:
    return _positions(desc.inputs, _UNREAD.get(desc.type, ()))


def _fresh_positions(desc: framework_pb2.OpDesc) -> FrozenSet[int]:
    return _positions(desc.outputs, _measured(FRESH).get(desc.type, ()))


@lru_cache(maxsize=None)
def _measured(table: Path) -> Mapping[str, Any]:
    """What stands in FRESH, LATE or SEPARATE."""
    return MappingProxyType(json.loads(table.read_text(encoding='utf-8')))


def _late_positions(desc: framework_pb2.OpDesc, always: bool) -> FrozenSet[int]:
    slots = _measured(LATE).get(desc.type, {})
    return _positions(desc.outputs, [slot for slot, each in slots.items() if each is always])


def _alone(desc: framework_pb2.OpDesc) -> Dict[str, Sequence[str]]:
    """By slot of a result that it is asked for, slots that are not read for that alone; nothing if that is not sure of each. Kernels of
    devices were not run."""
    slots = _measured(SEPARATE).get(desc.type, {})
    asked = [s for s in desc.outputs if any(n != EMPTY_NAME for n in s.arguments)]
    sure = slots and all(len(s.arguments) == 1 and s.parameter in slots for s in asked)
    if not sure or not _runs_on_own_cpu_kernel(desc) or is_channel_last(desc):
        return {}
    return {s.parameter: slots[s.parameter] for s in asked}


def _separate(desc: framework_pb2.OpDesc) -> Tuple[Tuple[int, FrozenSet[int]], ...]:
    """Where it is asked for more than one of them."""
    alone, first_out = _alone(desc), first_positions(desc.outputs)
    if len(alone) < 2:
        return ()
    return tuple(
        (first_out[slot], _positions(desc.inputs, unread)) for slot, unread in alone.items())


def unread_when_released(desc: framework_pb2.OpDesc) -> FrozenSet[int]:
    """Operands of which it reads the shape alone, if it makes one of its `separate` results and no other."""
    alone = list(_alone(desc).values())
    return _positions(desc.inputs, alone[0]) if len(alone) == 1 else frozenset()


def has_onednn_kernel(kind: str, dtypes: Container[str]) -> bool:
    """Whether Paddle runs a kernel of oneDNN's, which has one of that kind for one of `dtypes`; also if Paddle does not know the kind."""
    found = _onednn_types().get(kind)
    return kind not in _NEVER_ONEDNN and (found is None or any(dtype in dtypes for dtype in found))


@lru_cache(maxsize=None)
def _onednn_types() -> Mapping[str, FrozenSet[str]]:
    """By kind of operator: the types for which Paddle has a kernel of oneDNN's."""
    found = {}
    for kind, kernels in core._get_all_register_op_kernels('all').items():
        matches = map(_ONEDNN_KERNEL.match, map(str, kernels))
        names = {match.group(1) for match in matches if match}
        found[kind] = frozenset(dtype for name, dtype in _TYPES_OF_KERNELS.items() if name in names)
    return MappingProxyType(found)


def is_channel_last(desc: framework_pb2.OpDesc) -> bool:
    return any(a.s in _CHANNEL_LAST for a in desc.attrs if a.name == 'data_format')


def _adds(desc: framework_pb2.OpDesc) -> float:
    if desc.type != 'increment':
        return 0.0
    step = next((a for a in desc.attrs if a.name == 'step'), None)
    return 1.0 if step is None else step.f if step.type == framework_pb2.FLOAT else 0.0


def _fills(desc: framework_pb2.OpDesc) -> Optional[float]:
    """The value of a fill_constant that takes it from its attributes, of which the kernel prefers the text; and that of a
    fill_any_like."""
    if desc.type == 'fill_any_like':
        return _float(desc, 'value')
    if desc.type != 'fill_constant' or any(s.arguments for s in desc.inputs):
        return None
    text = next((a.s for a in desc.attrs if a.name == 'str_value'), '')
    try:
        return float(text) if text else _float(desc, 'value')
    except ValueError:
        return None


def _float(desc: framework_pb2.OpDesc, name: str) -> Optional[float]:
    named = (a for a in desc.attrs if a.name == name and a.type == framework_pb2.FLOAT)
    return next((a.f for a in named), None)


def _folds(desc: framework_pb2.OpDesc) -> bool:
    """Whether the kernel adds its operands from left to right, starting with the sum of the first two.

    Paddle's own CPU kernel does. Those for other devices start from zero, which turns -0 into 0.
    """
    return desc.type == 'sum' and _runs_on_own_cpu_kernel(desc)


def _is_elementwise(desc: framework_pb2.OpDesc) -> bool:
    """An operand more would be an attribute in a tensor."""
    named = [len(s.arguments) for slots in (desc.inputs, desc.outputs) for s in slots]
    return desc.type in ELEMENTWISE and sum(named) == 2 and _runs_on_own_cpu_kernel(desc)


def _replay(desc: framework_pb2.OpDesc) -> Optional[Replay]:
    """How to make a dropout's result again from its mask. Paddle's own CPU kernel divides by the share that is kept; others
    multiply."""
    if desc.type != 'dropout' or not _runs_on_own_cpu_kernel(desc):
        return None
    attributes = {a.name: a for a in desc.attrs}
    first_in, first_out = first_positions(desc.inputs), first_positions(desc.outputs)
    share = _float(desc, 'dropout_prob')  # which may be a variable, too
    testing = 'is_test' in attributes and attributes['is_test'].b
    if (testing or share is None or not 0.0 <= share < 1.0 or 'X' not in first_in or
            not {'Out', 'Mask'} <= first_out.keys()):
        return None
    kept = share_kept(share)
    mode = attributes.get('dropout_implementation')
    divisor = kept if mode is not None and mode.s == 'upscale_in_train' else None
    return Replay(first_in['X'], first_out['Out'], first_out['Mask'], divisor)


def _runs_on_own_cpu_kernel(desc: framework_pb2.OpDesc) -> bool:
    return has_cpu_kernels_alone() and not is_onednn(desc)


def first_positions(slots: Iterable[framework_pb2.OpDesc.Var]) -> Dict[str, int]:
    """Of the first argument of each slot that has one, among the arguments of all."""
    positions, position = {}, 0
    for slot in slots:
        if slot.arguments:
            positions[slot.parameter] = position
        position += len(slot.arguments)
    return positions


def _by_slot(slots: Iterable[framework_pb2.OpDesc.Var]) -> List[Sequence[int]]:
    """Positions of the arguments of each, among the arguments of all."""
    found: List[Sequence[int]] = []
    for slot in slots:
        start = sum(map(len, found))
        found.append(range(start, start + len(slot.arguments)))
    return found


def _single_op_program(desc: framework_pb2.OpDesc) -> framework_pb2.ProgramDesc:
    """A program of one op like `desc`, whose arguments are named after their slots."""
    program = framework_pb2.ProgramDesc()
    block = program.blocks.add(idx=0, parent_idx=-1)
    op = block.ops.add(type=desc.type)
    op.attrs.extend(a for a in desc.attrs if a.type not in _OF_PROGRAM and a.name not in OF_MAKING)
    for prefix, slots, target in ((_IN, desc.inputs, op.inputs), (_OUT, desc.outputs, op.outputs)):
        for slot in slots:
            if slot.arguments:
                target.add(parameter=slot.parameter, arguments=[prefix + slot.parameter])
                declare_vector(block, prefix + slot.parameter, _SCRATCH_SIZE)
    return program


def _shape_only_positions(desc: framework_pb2.OpDesc) -> Tuple[FrozenSet[int], bool]:
    """Operands of which it needs the shape alone; and whether that hangs on its attributes."""
    inputs = {s.parameter: list(s.arguments) for s in desc.inputs}
    outputs = {s.parameter: list(s.arguments) for s in desc.outputs}
    try:
        slots = core.infer_no_need_buffer_slots(desc.type, inputs, outputs, {})
    except Exception:  # it looks for an attribute, and that question has no room for one
        program = core.ProgramDesc(_single_op_program(desc).SerializeToString())
        needed = core._get_eager_deletion_vars(program, [])[0][0]
        slots = {slot for slot in inputs if f'{_IN}{slot}' not in needed}
        return _positions(desc.inputs, slots), True
    return _positions(desc.inputs, slots), False


def _attribute_bytes(desc: framework_pb2.OpDesc) -> Tuple[bytes, ...]:
    return tuple(
        a.SerializeToString(deterministic=True) for a in desc.attrs if a.name not in OF_MAKING)


def _positions(described: Iterable[framework_pb2.OpDesc.Var],
               slots: Container[str]) -> FrozenSet[int]:
    """Positions of the arguments in `slots`, of all that are described."""
    positions, position = set(), 0
    for slot in described:
        if slot.parameter in slots:
            positions.update(range(position, position + len(slot.arguments)))
        position += len(slot.arguments)
    return frozenset(positions)
