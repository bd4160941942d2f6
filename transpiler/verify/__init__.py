"""Translation validation: is the rewritten program equal to the original?

Every read of the new program must see the definitions that it saw in the old one. Both programs are run
abstractly, in program order: a cell of memory (a storage) holds the set of definitions that may have
written it last. A definition is (origin op, result position), so clones and renamed values compare equal to
what they stand for. Loops run to a fixed point, branches merge.

Program order is enough: the executor orders any two ops that touch one name when one of them writes it
(read-after-write, write-after-read, write-after-write), so each order that it may choose gives every read
the definition that program order gives it. Copies that it makes in the layout of a kernel have names of their own, and are checked
apart.

Nothing here is shared with the passes but `ir`, and what `analysis` knows of counters, of arrays, and of what no op has written
before it is read.
"""

from __future__ import annotations

from typing import Mapping

from transpiler.ir import Graph
from transpiler.verify.checks import check_behind, check_copies, check_found, check_ops, check_protected, check_reads
from transpiler.verify.claims import claims_of_new, claims_of_old
from transpiler.verify.execution import Run

__all__ = ['verify']


def verify(old: Graph, new: Graph, origins: Mapping[int, int]) -> None:
    """Raises VerificationError unless `new` is proved to compute what `old` does.

    Args:
        old: the program as the user built it.
        new: the rewritten one; its storages, not its names, say who shares memory.
        origins: op of `old` for each op of `new`.
    """
    check_ops(old, new, origins)
    check_copies(old, new, origins)
    check_behind(old, new, origins)
    before = Run(old, {op.id: op.id for op in old.ops}, claims_of_old(old))
    after = Run(new, origins, claims_of_new(old, new, origins, before.seen))
    check_reads(old, before, after)
    check_found(old, before, after)
    check_protected(old, new, before, after)
