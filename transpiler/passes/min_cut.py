"""A minimum cut between a source and a sink, by OR-Tools' maximum flow (Goldberg and Tarjan's push-relabel)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Sequence, Set

import numpy

SOURCE, SINK, FIRST = 0, 1, 2  # nodes; those of the caller begin with the third
INFINITE = -1  # capacity of what is never cut


@dataclass(frozen=True)
class Cut:
    """The capacity of a minimum cut. Of several, `before` are the nodes ahead of the one nearest to the source, and `behind`
    those after the one nearest to the sink."""

    value: int
    before: Set[int]
    behind: Set[int]


def min_cut(tails: Sequence[int], heads: Sequence[int], capacities: Sequence[int]) -> Cut:
    """The cut of the arcs `tails[i]` to `heads[i]`.

    Raises:
        ArithmeticError: the capacities together are more than a flow can count.
    """
    # Here only: loading it takes time and 25 MB, and many programs need no cut.
    from ortools.graph.python.max_flow import SimpleMaxFlow
    flow = SimpleMaxFlow()
    given = numpy.array(capacities, numpy.int64)
    finite = given >= 0
    flow.add_arcs_with_capacity(tails, heads, numpy.where(finite, given, 1 + given[finite].sum()))
    status = flow.solve(SOURCE, SINK)
    if status != SimpleMaxFlow.OPTIMAL:
        raise ArithmeticError(f'the minimum cut of {len(tails)} arcs: {status}')
    return Cut(flow.optimal_flow(), set(flow.get_source_side_min_cut()),
               set(flow.get_sink_side_min_cut()))
