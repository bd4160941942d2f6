"""From a graph to a plan: which passes run in which order, what is computed again, what a late collector asks for."""

from transpiler.planning.plans import Plan, PlanOptions
from transpiler.planning.planner import choice_for_budgets, plan
from transpiler.planning.segments import in_segments_or_not
from transpiler.planning.sequences import OPTIMIZE, RELEASE_ONLY, Sequences, simpler_and_simpler
from transpiler.planning.unhinted import Sizes, plan_for
from transpiler.planning.work import Work

__all__ = [
    'choice_for_budgets', 'OPTIMIZE', 'RELEASE_ONLY', 'Plan', 'PlanOptions', 'Sequences', 'Sizes',
    'Work', 'in_segments_or_not', 'plan', 'plan_for', 'simpler_and_simpler'
]
