"""The graph that every pass works on. Knows no Paddle."""

from transpiler.ir.graph import FORGET, HANDED_ON, HANDS_ON, MOVE, RELEASE, SHARE, UNCOPIED, Graph, Op, OpFacts, Region, RegionKind, Replay, Value, ValueKind, When, exclude
from transpiler.ir.size import NOTHING, ONE, Size

__all__ = [
    'FORGET', 'HANDED_ON', 'HANDS_ON', 'MOVE', 'NOTHING', 'ONE', 'RELEASE', 'SHARE', 'UNCOPIED',
    'Graph', 'Op', 'OpFacts', 'Region', 'RegionKind', 'Replay', 'Size', 'Value', 'ValueKind',
    'When', 'exclude'
]
