"""What Paddle 3 does not say of its operators, by their names."""

from __future__ import annotations

from types import MappingProxyType
from typing import FrozenSet, Mapping, Tuple

from transpiler.backends.operators import by_name
from transpiler.ir import Work

# Names of Paddle 2.6, where Paddle 3 has another one for the same kernel and the name matters.
_FORMER: Mapping[str, str] = MappingProxyType({
    'add': 'elementwise_add',
    'subtract': 'elementwise_sub',
    'multiply': 'elementwise_mul',
    'divide': 'elementwise_div',
    'maximum': 'elementwise_max',
    'minimum': 'elementwise_min',
    'embedding': 'lookup_table_v2',
    'matmul': 'matmul_v2',
    'full': 'fill_constant',
})
_GRADIENT = '_grad'
# Draw random numbers without an attribute that says so.
UNSEEDED_RANDOM: FrozenSet[str] = frozenset({
    'bernoulli', 'binomial', 'dirichlet', 'exponential', 'flash_attn', 'flash_attn_qkvpacked', 'flash_attn_unpadded',
    'flash_attn_varlen_qkvpacked', 'fractional_max_pool2d', 'fractional_max_pool3d', 'fused_dropout_add', 'graph_khop_sampler', 'graph_sample_neighbors',
    'gumbel_softmax', 'memory_efficient_attention', 'multinomial', 'poisson', 'randint', 'random_routing', 'randperm',
    'rrelu', 'sampling_id', 'shuffle_batch', 'standard_gamma', 'top_p_sampling', 'truncated_gaussian_random',
    'variable_length_memory_efficient_attention', 'weighted_sample_neighbors', 'random', 'cauchy', 'geometric',
    'normal', 'uniform_inplace', 'gaussian_inplace'
})  # yapf: disable
# Act on something that is no value of the program.
SIDE_EFFECTS: FrozenSet[str] = frozenset({
    'assert', 'barrier', 'depend', 'dequeue', 'enqueue', 'feed', 'fetch', 'load_combine', 'memcpy_d2h_multi_io', 'nop',
    'print', 'py_func', 'py_layer', 'read_file', 'save_combine', 'seed', 'set_parameter', 'shadow_feed', 'shadow_output',
    'share_data', 'share_var', 'sync_calc_stream', 'sync_comm_stream',
    # Talk to servers of parameters.
    'distributed_lookup_table', 'distributed_push_sparse', 'pull_box_sparse', 'pull_gpups_sparse', 'pull_sparse_v2',
    'push_box_sparse', 'push_dense', 'push_gpups_sparse', 'push_sparse_v2', 'send', 'send_and_recv'
})  # yapf: disable
# Have a variant in place, which the executor does not take: for kernels that cannot, or which do so in dygraph mode alone.
NOT_IN_PLACE: FrozenSet[str] = frozenset({'add_grad', 'subtract_grad', 'transpose'})
# Their kernels read, for each element, those of the operands that stand where it does: they may work in place on what they read twice.
EACH_ELEMENT_ALONE: FrozenSet[str] = frozenset({
    'add', 'bitwise_and', 'bitwise_or', 'bitwise_xor', 'copysign', 'divide', 'elementwise_pow', 'floor_divide', 'lerp',
    'logical_and', 'logical_or', 'logical_xor', 'maximum', 'minimum', 'multiply', 'remainder', 'subtract', 'where'
})  # yapf: disable
# Their kernels add to the first of the list that they are given, where that is the variable of the result.
ADD_TO_THE_FIRST: FrozenSet[str] = frozenset({'add_n'})
# Their result is what they may work in place on, in other dims, and their kernels ask for no dims of that: what is squeezed, or gets more
# dims, may be so twice in one variable.
SAME_BYTES: FrozenSet[str] = frozenset(
    {'flatten', 'flatten_grad', 'reshape', 'reshape_grad', 'squeeze_grad', 'unsqueeze_grad'})
# State that is carried on, and on which nothing else depends that is computed: (operand, result) slots by name. Batch
# statistics make batch_norm's result; running ones do as soon as one of the attributes is set.
STATE: Mapping[str, Tuple[Tuple[str, str], ...]] = MappingProxyType(
    {'batch_norm': (('mean', 'mean_out'), ('variance', 'variance_out'))})
STATE_IS_USED = ('is_test', 'use_global_stats')


def former_name(kind: str) -> str:
    """What Paddle 2.6 calls it."""
    if kind.endswith(_GRADIENT):
        return former_name(kind[:-len(_GRADIENT)]) + _GRADIENT
    return _FORMER.get(kind, kind)


def work_of(kind: str) -> Work:
    return by_name(former_name(kind)).work


# Results whose dims Paddle leaves open and whose memory no kernel for CPUs asks for: by operator, the name of the result.
UNMADE: Mapping[str, str] = MappingProxyType({'batch_norm': 'reserve_space', 'einsum': 'xshape'})
# Their kernels make other dims than Paddle declares.
MISDECLARED: FrozenSet[str] = frozenset({'slogdet'})
# Results that the kernel for CPUs makes of another type than the program says: by operator, name of the result.
MADE_AS: Mapping[str, Mapping[str, str]] = MappingProxyType({
    'rnn': MappingProxyType({'dropout_state_out': 'UINT8'}),
    'equal_all': MappingProxyType({'out': 'BOOL'}),
})
# The same of kernels of oneDNN.
MADE_AS_BY_ONEDNN: Mapping[str, Mapping[str, str]] = MappingProxyType(
    dict.fromkeys(('conv2d', 'depthwise_conv2d'), MappingProxyType({'out': 'FP32'})))
