"""What a report says of sizes for which no hint was given."""

from __future__ import annotations

from typing import Dict, List, Mapping, Optional

from transpiler.analysis.cost import CostModel
from transpiler.ir.symbols import is_step, is_trip
from transpiler.planning import Plan
from transpiler.planning.overhead import overhead
from transpiler.report.data import SizeReport

_LARGEST = 1 << 20  # times what was assumed: nobody asks further


def sizes_of(plan: Plan, assumed: List[str], cost: CostModel) -> List[SizeReport]:
    """The sizes that `plan` was chosen for, by rising size; none where it was made for one."""
    found = []
    for dims in plan.sizes[1:]:
        there = plan.at(dims)
        found.append(
            SizeReport({symbol: dims[symbol] for symbol in assumed}, there.before.peak_bytes,
                       there.after.peak_bytes, overhead(plan, cost, dims)))
    return found


def budget_up_to(plan: Plan, dims: Mapping[str, int], assumed: List[str],
                 budget: Optional[int]) -> Dict[str, int]:
    """How large the dims without a hint can be, all `dims` of them times the same number, for `sure_bytes` to stay within `budget`."""
    if budget is None or not assumed:
        return {}
    rows = set(assumed)
    if not any(map(is_trip, assumed)):  # as many steps, so more rows at each
        rows |= {symbol for symbol in dims if is_step(symbol)}

    def keeps(times: int) -> bool:
        grown = {symbol: size * times if symbol in rows else size for symbol, size in dims.items()}
        return plan.at(grown).sure_bytes <= budget

    low, high = 1, 2
    while high < _LARGEST and keeps(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return {symbol: dims[symbol] * low for symbol in assumed}
