"""What every pass is told besides the graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, List, Mapping

from transpiler.analysis.cost import CostModel
from transpiler.analysis.runtime import RuntimeModel


@dataclass
class Reuse:
    """One value that took over the memory of earlier ones. Bytes are for the hinted dims."""

    value: int
    storage: int
    tier: str  # 'in-place', '1', '2' or '3'
    waste_bytes: int


@dataclass
class PassContext:
    """Hints and options in, decisions out.

    `dims` ranks choices; it never makes a plan unsafe for other sizes. `reuses` and `left_alone` (value id ->
    reason) are what the passes did and did not do, for the report.
    """

    model: RuntimeModel
    dims: Mapping[str, int]
    level: int = 0
    skip_grads: bool = True
    recompute: str = 'auto'  # 'auto', 'cheap', 'max' or '' for nothing
    max_overhead: float = 0.10  # extra time that 'auto' may cost, as a share of the step
    cost: CostModel = field(default_factory=CostModel)
    parallel: bool = False  # share memory only where that adds no dependence
    reuses: List[Reuse] = field(default_factory=list)
    left_alone: Dict[int, str] = field(default_factory=dict)
    saved_seconds: float = 0.0  # time that earlier passes took off the step; recompute may spend it
    spent_seconds: float = 0.0  # extra time of a step that passes so far have spent on recomputing
