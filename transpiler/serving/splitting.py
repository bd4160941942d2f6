"""Which operators to run in parts: chosen by the timeline, step by step at the peak, and kept where the bytes stay."""

from __future__ import annotations

from dataclasses import replace
from typing import Callable, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from transpiler.analysis.timeline import Timeline
from transpiler.analysis.windows import Window
from transpiler.errors import InvalidProgramError
from transpiler.ir import Size
from transpiler.serving.chains import Chain, Split
from transpiler.serving.row_view import RowView, key_of
from transpiler.serving.row_wise import Operator

_PARTS = (2, 4, 8)
# A split has to lower the peak to this share of it, and twice the parts to that share of what half of them reach.
_WORTH = 0.98
_WORTH_MORE_PARTS = 0.8
_MOST_CHAINS = 16
_MOST_PROBES = 10
_INSIDE = 'what needs most, as that is in a loop or a branch'

# The program with these chains in parts: what it has, and when it needs how much.
Measure = Callable[[Sequence[Chain]], Tuple[RowView, Timeline]]
# What of the program differs if these chains run in parts, if anything does.
Differs = Callable[[Sequence[Chain]], Optional[str]]
# By what an op writes: the same for ops that run the same kernel on tensors of the same shapes.
Signatures = Mapping[Tuple[str, ...], str]
_Found = Tuple[Window, int, Size]  # with the number of parts, and of rows


def split(operators: Sequence[Operator],
          signatures: Signatures,
          measure: Measure,
          differs: Differs,
          evenly: bool = False) -> Split:
    """Chains of a program that lower its predicted peak and give the same bytes in parts.

    Args:
        operators: those of its main block, in order.
        signatures: of those that may run in parts.
        measure: what becomes of it with chains in parts; without any, the program itself.
        differs: runs the chains on this machine.
        evenly: whether all parts have to have as many rows.
    """
    search = _Search(operators, signatures, measure, evenly)
    for _ in range(_MOST_PROBES):
        chains = search.run()
        try:
            different = differs(chains) if chains else None
        except InvalidProgramError as error:
            return Split((), (f'it cannot be tried: {error}',))
        if different is None:
            left = [search.stopped_at] if search.stopped_at else []
            return Split(tuple(chains), (*search.reasons, *left))
        if not search.refuse(different, chains):
            return Split((), tuple(search.reasons))
    return Split((), (*search.reasons, 'too many operators differ'))


class _Search:
    """The greedy choice, again after each refusal."""

    def __init__(self, operators: Sequence[Operator], signatures: Signatures, measure: Measure,
                 evenly: bool) -> None:
        self._operators, self._signatures = operators, signatures
        self._measure, self._evenly = measure, evenly
        self._given = measure(())
        self._differing: Set[Tuple[str,
                                   int]] = set()  # signatures of operators, and numbers of parts
        self.reasons: List[str] = []
        self.stopped_at = ''

    def run(self) -> List[Chain]:
        """Splits at the peak as long as that gets lower; several peaks of one height need several steps."""
        chains: List[Chain] = []
        kept_view, kept_timeline = view, timeline = self._given
        kept = 0
        while len(chains) < _MOST_CHAINS:
            found = self._best(view, timeline)
            if found is None:
                break
            chains.append(found)
            view, timeline = self._measure(chains)
            if timeline.peak_bytes <= _WORTH * kept_timeline.peak_bytes:
                kept_view, kept_timeline, kept = view, timeline, len(chains)
        self.stopped_at = kept_view.why_whole(kept_timeline.peak.op) or ('' if kept else _INSIDE)
        return chains[:kept]

    def refuse(self, name: str, chains: Sequence[Chain]) -> bool:
        """Notes who made `name`: in a chain, or behind it, where the layout of what it reads is another one.

        False if no chain can be the reason.
        """
        ops = self._operators
        order = {key_of(op): i for i, op in enumerate(ops)}
        at = next(i for i, op in enumerate(ops) if name in key_of(op))
        before = [c for c in chains if order[c.ops[0]] <= at]
        if not before:
            self.reasons.append(f'{ops[at].kind} that makes {name}, as each run gives other bytes')
            return False
        chain = max(before, key=lambda c: order[c.ops[0]])
        culprit = ops[min(at, order[chain.ops[-1]])]
        self._differing.add((self._signatures[key_of(culprit)], chain.parts))
        self.reasons.append(
            f'{culprit.kind} that makes {key_of(culprit)[0]}, as {chain.parts} parts of '
            f'it give other bytes' + (f' in {name}' if at > order[key_of(culprit)] else ''))
        return True

    def _best(self, view: RowView, timeline: Timeline) -> Optional[Chain]:
        """The split that brings most at the peak, in few parts."""
        enough = _WORTH * timeline.peak_bytes
        found = [f for f in self._all(view, timeline) if f[0].inside <= enough]
        if all(window.peak > enough for window, _, _ in found):
            # Another peak is as high: its turn is next.
            found = [(replace(w, peak=w.inside), p, rows) for w, p, rows in found]
        chosen: Optional[_Found] = None
        for parts in sorted({p for _, p, _ in found}):
            best = min((f for f in found if f[1] == parts),
                       key=lambda f: (f[0].peak, f[0].last - f[0].first))
            if chosen is None or (best[0].peak <= _WORTH_MORE_PARTS * chosen[0].peak and
                                  view.is_quick(best[0], parts, timeline)):
                chosen = best
        return view.chain(*chosen) if chosen else None

    def _all(self, view: RowView, timeline: Timeline) -> Iterator[_Found]:
        """Windows around the peak."""
        for rows in view.sources:
            ops, count = view.row_wise(rows), timeline.evaluate(rows)
            for parts in (p for p in _PARTS if p <= count and not (self._evenly and count % p)):
                allowed = {at: op for at, op in ops.items() if self._allows(op.operator, parts)}
                windows = view.windows(timeline, parts, allowed)
                yield from ((window, parts, rows) for window in windows.around_peak())

    def _allows(self, operator: Operator, parts: int) -> bool:
        """Whether parts of as many rows, or more, did not differ."""
        signature = self._signatures[key_of(operator)]
        return not any(s == signature and parts >= fewest for s, fewest in self._differing)
