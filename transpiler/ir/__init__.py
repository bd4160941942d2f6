"""The graph that every pass works on. Knows no Paddle."""

from transpiler.ir.facts import ArrayAccess, Meaning, OpFacts, Replay, Unit, Work
from transpiler.ir.graph import (Graph, Op, Region, RegionKind, Site, Value, ValueKind, When,
                                 exclude, leaves_out)
from transpiler.ir.intrinsics import (ADD_ROWS, CONVERT, DIVIDE, FILL, FORGET, HANDED_ON, HANDS_ON,
                                      KEEP, MEMORY_KINDS, MOVE, READ_ELEMENT, RELEASE, ROW_NUMBERS,
                                      ROWS, SELECT, SHARE, UNCOPIED, ZEROS_LIKE)
from transpiler.ir.size import NOTHING, ONE, Size

__all__ = [
    'ADD_ROWS', 'ArrayAccess', 'CONVERT', 'DIVIDE', 'FILL', 'FORGET', 'Graph', 'HANDED_ON',
    'HANDS_ON', 'KEEP', 'MEMORY_KINDS', 'MOVE', 'Meaning', 'NOTHING', 'ONE', 'Op', 'OpFacts',
    'READ_ELEMENT', 'RELEASE', 'ROWS', 'ROW_NUMBERS', 'Region', 'RegionKind', 'Replay', 'SELECT',
    'SHARE', 'Site', 'Size', 'UNCOPIED', 'Unit', 'Value', 'ValueKind', 'When', 'Work', 'ZEROS_LIKE',
    'exclude', 'leaves_out'
]
