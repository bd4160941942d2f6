"""A program that knows which of its variables memory_optimize took away, and says so to who asks for one.

That there is no such variable is a property of the desc, which every copy has: Paddle itself finds nothing. This is for the
error to name the cause and the way out, wherever the program is used as the object that it is, or as a clone of it.
"""

from __future__ import annotations

import gc
from typing import Any, Callable, Dict, Iterable, List, Mapping, Tuple

from paddle.base import framework
from paddle.base.proto import framework_pb2

from transpiler.backends.paddle2.run_once import is_segmented
from transpiler.backends.paddle2.segments import joined, joined_ops
from transpiler.errors import InvalidProgramError, MergedVariableError

_MERGED = '_merged_variables'
_KEEPER = '_heap_keeper'
# Of a copy, that it may be an executor's; the clones that are being made of it; that the executor has made a plan of it.
_IS_AN_EXECUTORS = '_transpiler_is_an_executors'
_CLONES, _IS_PLANNED = '_transpiler_clones_under_way', '_transpiler_is_planned'


def merged_variables(program: framework.Program) -> Dict[str, str]:
    """Names whose contents an earlier call gave up, and the names that have their memory now."""
    return dict(getattr(program, _MERGED, {}))


def guard(program: framework.Program, merged: Mapping[str, str]) -> None:
    """Lets `program` refuse whoever asks for one of the names in `merged`."""
    if merged:
        program.__class__ = OptimizedProgram
        setattr(program, _MERGED, dict(merged))
        for block in program.blocks:
            block.__class__ = _GuardedBlock


def keep(program: framework.Program, keeper: Any) -> None:
    """Lets `keeper.before_run()` be called ahead of each run of `program` by an executor, and of its clones."""
    if not isinstance(program, KeptProgram):
        program.__class__ = KeptProgram
    setattr(program, _KEEPER, keeper)


class KeptProgram(framework.Program):
    """A Program between whose runs the heap is kept small, and of which an executor keeps no more than it needs."""

    def clone(self, for_test: bool = False) -> framework.Program:
        clones = self.__dict__.setdefault(_CLONES, [])
        clones.append(None)  # several threads may make one
        try:
            copy = super().clone(for_test)
        finally:
            clones.pop()
        if for_test:
            _declare_again(copy, self)
        copy.__dict__[_IS_AN_EXECUTORS] = _feeds_or_fetches(self)
        if hasattr(self, _KEEPER):
            keep(copy, getattr(self, _KEEPER).fresh())
        return copy

    def _prune_with_input(self, feeded_var_names: Any, targets: Any) -> framework.Program:
        return _pruned(self, feeded_var_names, targets)

    @property
    def _pass_opt(self) -> Any:
        """What an executor asks its own copy for when it has made a plan of it, and else `clone`, and who sets it. The copy is one of a
        copy that it has added ops to; no program that a user has optimized is emptied, whoever asks."""
        if not self.__dict__.get(_CLONES) and self.__dict__.get(_IS_AN_EXECUTORS):
            self.__dict__[_IS_PLANNED] = True
        return self.__dict__['_pass_opt']

    @_pass_opt.setter
    def _pass_opt(self, options: Any) -> None:
        self.__dict__['_pass_opt'] = options

    def global_block(self) -> framework.Block:
        """The executor has made what runs of its plan, copied once more, by the time that it looks here for what is fed."""
        if self.__dict__.pop(_IS_PLANNED, False):
            _leave_feeds(self)
        return super().global_block()

    @property
    def _heter_pipeline_opt(self) -> Any:
        """What executors ask for once ahead of each run, and nobody else."""
        if hasattr(self, _KEEPER):
            getattr(self, _KEEPER).before_run()
        return self.__dict__['_heter_pipeline_opt']

    @_heter_pipeline_opt.setter
    def _heter_pipeline_opt(self, options: Any) -> None:
        self.__dict__['_heter_pipeline_opt'] = options


def _pruned(program: framework.Program, fed: Any, targets: Any) -> framework.Program:
    copy = framework.Program._prune_with_input(program, fed, targets)
    _declare_again(copy, program)
    return copy


def _declare_again(copy: framework.Program, program: framework.Program) -> None:
    """Of what the main block of `program` declares, what inner blocks of `copy` name: Paddle takes out what no op of the main block does,
    and so storage that a loop has from one trip to the next."""
    main = copy.blocks[0]
    named = {
        name for block in copy.blocks[1:] for op in block.ops
        for name in (*op.input_arg_names, *op.output_arg_names)
    }
    for name, variable in program.blocks[0].vars.items():
        if name in named and name not in main.vars:
            main._clone_variable(variable, False)


def _feeds_or_fetches(program: framework.Program) -> bool:
    """Whether it has the ops that an executor adds to its first copy."""
    ops = program.blocks[0].ops
    return bool(ops) and (ops[0].type == 'feed' or ops[-1].type == 'fetch_v2')


def _leave_feeds(program: framework.Program) -> None:
    """Of what an executor keeps of a program, which has a copy of it besides, it looks at the feed ops alone; and another copy, which it
    made the program with, is left in cycles."""
    for block in program.blocks:
        fed = [op for op in block.ops if op.type == 'feed']
        if [op.type for op in block.ops[:len(fed)]] == ['feed'] * len(fed):
            block.desc._remove_op(len(fed), len(block.ops))
            block.ops = fed
    if gc.isenabled():
        gc.collect()


class OptimizedProgram(KeptProgram):
    """A Program some of whose variables are gone."""

    def clone(self, for_test: bool = False) -> framework.Program:
        copy = super().clone(for_test)
        guard(copy, merged_variables(self))
        return copy

    def _create_block(self, parent_idx: Any = None) -> framework.Block:
        block = super()._create_block(parent_idx)
        block.__class__ = _GuardedBlock
        return block

    def _prune_with_input(self, feeded_var_names: Any, targets: Any) -> framework.Program:
        fed = feeded_var_names if isinstance(feeded_var_names, list) else [feeded_var_names]
        _refuse(self, [*fed, *(targets if isinstance(targets, list) else [targets])])
        whole, moved = _in_one_piece(self)
        return _pruned(whole, feeded_var_names, _named(targets, moved))

    @property
    def _appending_grad_times(self) -> int:
        return self.__dict__['_appending_grad_times']

    @_appending_grad_times.setter
    def _appending_grad_times(self, times: int) -> None:
        """Paddle counts here, first of all, how often it adds gradients: to values that are gone by then."""
        if times > self._appending_grad_times:
            raise InvalidProgramError(
                'gradients cannot be added to a program that memory_optimize has rewritten: it keeps what the gradients '
                'need no longer. Build the program again and call minimize or append_backward before memory_optimize'
            )


def _in_one_piece(program: framework.Program) -> Tuple[framework.Program, Callable[[Any], Any]]:
    """`program` without segments, and what gives the op that stands there for one of `program`. Paddle keeps all of a block that runs,
    and what that reads, to get one result of it."""
    message = framework_pb2.ProgramDesc.FromString(program.desc.serialize_to_string())
    if not is_segmented(message):
        return program, lambda op: op
    whole = framework.Program.parse_from_string(joined(message).SerializeToString())
    whole._copy_param_info_from(program)
    whole._copy_dist_param_info_from(program)
    places = {place: (0, at) for at, place in enumerate(joined_ops(message))}

    def moved(op: framework.Operator) -> framework.Operator:
        place = op.block.idx, op.idx
        block, at = places.get(place, place)
        return whole.blocks[block].ops[at]

    return whole, moved


def _named(targets: Any, moved: Callable[[Any], Any]) -> List[Any]:
    """Variables by their names, and ops where they are."""
    given = targets if isinstance(targets, list) else [targets]
    by_name = [t.name if isinstance(t, framework.Variable) else t for t in given]
    return [moved(t) if isinstance(t, framework.Operator) else t for t in by_name]


class _GuardedBlock(framework.Block):

    def append_op(self, *args: Any, **kwargs: Any) -> framework.Operator:
        _refuse_operands(self, kwargs)
        return super().append_op(*args, **kwargs)

    def _prepend_op(self, *args: Any, **kwargs: Any) -> framework.Operator:
        _refuse_operands(self, kwargs)
        return super()._prepend_op(*args, **kwargs)

    def _insert_op(self, index: int, *args: Any, **kwargs: Any) -> framework.Operator:
        _refuse_operands(self, kwargs)
        return super()._insert_op(index, *args, **kwargs)


def _refuse_operands(block: framework.Block, made_of: Mapping[str, Any]) -> None:
    operands = (made_of.get('inputs') or {}).values()
    _refuse(
        block.program,
        (v for given in operands for v in (given if isinstance(given, (list, tuple)) else [given])))


def _refuse(program: framework.Program, asked: Iterable[Any]) -> None:
    merged = getattr(program, _MERGED, {})
    for variable in asked:
        name = variable if isinstance(variable, str) else getattr(variable, 'name', None)
        if isinstance(name, str) and name in merged:
            raise MergedVariableError(_is_gone(name, merged[name]))


def _is_gone(name: str, instead: str) -> str:
    return (
        f'variable {name!r} cannot be fetched or read: memory_optimize releases it after its last use, or has others in '
        f'its memory ({instead!r}). Build the program again and pass it in fetch_list: '
        f'memory_optimize(program, fetch_list=[{name!r}, ...])')
