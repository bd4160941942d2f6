"""What of a saved program runs again, for its results not to be kept: the cheapest plan that keeps to a budget, or the lowest.

The program runs in a block of its own, which works in place nowhere by itself. Names are written once, as predictors need it.
"""

from __future__ import annotations

from typing import Callable, Dict

from transpiler.ir import Graph
from transpiler.planning import Plan, PlanOptions
from transpiler.planning.bases import in_orders, reordered
from transpiler.planning.fitting import Fitter
from transpiler.planning.runner import Runner
from transpiler.runtime import COLLECTING


def computed_again(graph: Graph, dims: Dict[str, int], options: PlanOptions,
                   judge: Callable[[Plan], Plan]) -> Plan:
    """A plan of `graph` for which some of it may run again: of those that need at most `options.budget` bytes above resting memory, as
    `judge` makes what is served of them, the cheapest; the one of the lowest peak where there is none, or no budget."""
    runner = Runner(graph, COLLECTING.in_segments(), dims, options)
    bases = in_orders(runner)
    lowest = min(bases, key=lambda base: base.after.peak_bytes)
    fitter = Fitter(bases, lowest, runner.context, exact=True, reorder=reordered(runner, graph))
    found = fitter.within_peak(options.budget, judge) if options.budget is not None else None
    return found or fitter.lowest()
