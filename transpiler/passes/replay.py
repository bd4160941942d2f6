"""What random numbers decided, made again from what records it: a dropout's result from its mask."""

from __future__ import annotations

from dataclasses import replace
from typing import List, Mapping, Tuple

from transpiler.analysis.cost import CostModel
from transpiler.ir import (DIVIDE, FILL, CONVERT, ONE, SELECT, ZEROS_LIKE, Graph, Meaning, Op,
                           OpFacts, Replay, Size, ValueKind, Work)
from transpiler.ir.dtypes import SINGLE_AND_DOUBLE, TRUTH
from transpiler.passes.cloning import Cloner

# The ops of a replay, as a multiple of one that reads the operand and the result and writes the result: measured in programs and by
# themselves, on 2.6.2 and 3.3.1, of 1 to 37 MiB. The choice is a branch for each element, which takes time where a processor cannot
# foretell it: where a tenth is dropped, all take 0.7 to 1.2 ms for a MiB, three tenths 1.1 to 1.6, half 1.3 to 2.1.
_FORETOLD, _NOT_FORETOLD = 1.0, 2.0


def replayed(op: Op, replay: Replay) -> Tuple[Tuple[int, int], int]:
    """Values: the operand and the mask, and the result that they make."""
    return (op.operands[replay.operand], op.results[replay.mask]), op.results[replay.result]


def scratch_bytes(graph: Graph, op: Op, dims: Mapping[str, int]) -> int:
    """What the ops of `add_replay` have besides their result: the mask as truth values, and a number."""
    size = graph.values[op.results[op.facts.replay.mask]].size
    return size.evaluate(dims) if size is not None else 0


def can_be_replayed(graph: Graph, op: Op) -> bool:
    """Whether the operand and what the op makes are tensors of the types that it is done for."""
    (operand, mask), result = replayed(op, op.facts.replay)
    kinds = {graph.values[v].kind for v in (operand, mask, result)}
    return kinds == {ValueKind.DENSE} and graph.values[result].dtype in SINGLE_AND_DOUBLE


def replay_seconds(graph: Graph, op: Op, cost: CostModel, dims: Mapping[str, int]) -> float:
    """What the ops of `add_replay` take."""
    read, result = replayed(op, op.facts.replay)
    choice = replace(op,
                     kind=SELECT,
                     operands=(*read, result),
                     results=(result,),
                     facts=_choosing(op.facts.replay))
    return choice_seconds(graph, choice, cost, dims)


def choice_seconds(graph: Graph, choice: Op, cost: CostModel, dims: Mapping[str, int]) -> float:
    """The same of the one among them that chooses (`is_choice`), for all of them."""
    return cost.seconds(graph, choice, dims) + 4 * cost.seconds_per_op


def _choosing(replay: Replay) -> OpFacts:
    """Of the op that chooses; its work is that of all that are added with it."""
    kept = 0.5 if replay.divisor is None else replay.divisor
    work = Work(slowness=_FORETOLD + _NOT_FORETOLD * min(kept, 1.0 - kept))
    if replay.in_copy:
        return OpFacts(in_place=((1, 0),), same_name=True, work=work)
    return OpFacts(means=Meaning.SELECT, work=work)


def add_replay(graph: Graph, cloner: Cloner, op: Op, operand: int, result: int) -> List[int]:
    """Ids of new ops, which the caller has to put in their place, that make `result` what `op` made of `operand`.

    The result is written up to three times: zeros; the operand where the mask is not zero; that over the divisor. Each of these kernels
    goes through its operands element by element, so that it may write over one of them. Where zeros go into a copy, there are no others.
    """
    replay = op.facts.replay
    mask = op.results[replay.mask]
    chosen = cloner.value(mask)
    graph.values[chosen].dtype = TRUTH
    added = [cloner.added(CONVERT, (mask,), chosen, OpFacts(means=Meaning.CONVERTED))]
    if replay.in_copy:
        added.append(cloner.added(SELECT, (chosen, operand), result, _choosing(replay)))
    else:
        zeros = OpFacts(fills=0.0, shape_only=frozenset({0}))
        added = [
            cloner.added(ZEROS_LIKE, (operand,), result, zeros), *added,
            cloner.added(SELECT, (chosen, operand, result), result, _choosing(replay))
        ]
    if replay.divisor is not None:
        divisor = _number(graph, cloner, op.results[replay.result])
        facts = OpFacts(fills=replay.divisor)
        added += [
            cloner.added(FILL, (), divisor, facts),
            cloner.added(DIVIDE, (result, divisor), result, OpFacts(means=Meaning.QUOTIENT))
        ]
    return added


def is_choice(op: Op) -> bool:
    """Whether `op` is that of the added ones that chooses between the operand and zeros: there is one each time."""
    return op.kind == SELECT and op.origin is None


def _number(graph: Graph, cloner: Cloner, like: int) -> int:
    number = graph.values[cloner.value(like)]
    number.shape, number.size = (ONE,), Size.of(SINGLE_AND_DOUBLE[number.dtype])
    return number.id
