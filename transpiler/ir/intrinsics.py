"""Kinds of ops that passes insert: each has a meaning here, and a back end that knows how to say it.

None of them but ADD_ROWS stands for an op of the imported program.
"""

from __future__ import annotations

# Kind of an op that gives back the memory of its results, whose data nobody reads any more. Their shapes
# stay.
RELEASE = 'release'
# Kind of an op that empties its results, shapes apart, before anyone writes them: of what an earlier run left there, the first
# run had nothing.
FORGET = 'forget'
# Kind of an op that makes each of its results hold the buffer of its operand at the same position, for the next op
# to work in place under two names.
SHARE = 'share'
# Kind of an op that hands the buffer of each operand on to the result at the same position, with shape and contents.
# Nobody touches the operand after it.
MOVE = 'move'
# Kinds of ops whose results have the buffers of their operands.
HANDS_ON = (SHARE, MOVE)
# In the name of each value that is there for a MOVE op alone.
HANDED_ON = '@HANDED_ON'
# Kind of an op without effect, whose operand is its result: a loop does not copy a value that its body names so.
UNCOPIED = 'uncopied'
# Kind of an op of a gradient region for whose sake the runtime keeps its operands, trip for trip, whoever else reads them.
# It reads their shapes alone.
KEEP = 'keep'
# Those above compute nothing: they say what becomes of memory. A back end knows them again in a program that has them.
MEMORY_KINDS = (RELEASE, FORGET, SHARE, MOVE, UNCOPIED, KEEP)

# Kinds of ops that compute: see `transpiler.passes.replay`, `reloads` and `row_sums`. An element of an array at an index; zeros that look
# like the operand; one number; the operand in another type; of two operands, by truth values; one operand over the other; some
# rows of the operand; their numbers; the first operand, to rows of which the second is added, by the numbers in the third.
READ_ELEMENT = 'read element'
ZEROS_LIKE = 'zeros like'
FILL = 'fill number'
CONVERT = 'convert'
SELECT = 'select'
DIVIDE = 'divide'
ROWS = 'rows'
ROW_NUMBERS = 'row numbers'
# It stands for a step of a sum of the imported program.
ADD_ROWS = 'add rows'
