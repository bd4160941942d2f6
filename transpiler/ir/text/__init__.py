"""Graphs as text that people read and that a program reads back: `parse(printed(graph)) == graph`, whatever the graph.

    region 0 block {
      value 0 %x: FP32[N, 8] 32*N bytes fed
      value 1 %h: FP32[N, 8] 32*N bytes storage=%x
      op 0 relu(%x) -> %h facts=(in_place=[[0, 0]] same_name)
    }

Values, ops and regions have their numbers; fields that are as they are in a new value, op or region are left out. `%x'3` is
value 3 where several are called x. A region stands in the op that runs it, and `#` begins a comment.
"""
from transpiler.ir.text.parser import parse
from transpiler.ir.text.printer import printed

__all__ = ['parse', 'printed']
