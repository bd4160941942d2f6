"""Values that are placed as if they were one: a smaller problem, whose solutions are solutions of the larger.

Of two that live through the same sections one may lie on the other; of two of one size where one begins as the other ends both
may have one offset. Where such pairs are not there by chance (a tensor and the gradient that follows it, a buffer that was cut in
two), some solution has them together, and it is found sooner. No solution is no proof: they may have to be apart.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Tuple

import numpy as np

LEAST_SHARE = 0.7
TRUST = (1.0, 0.0, 0.1, 0.3)


@dataclass
class _Piece:
    """Sections begin..end and bytes of some values that are placed as one: (value, its offset in the piece)."""
    begin: int
    end: int
    size: int
    parts: List[Tuple[int, int]]

    def take(self, other: '_Piece', shift: int) -> None:
        self.parts += [(value, shift + at) for value, at in other.parts]


@dataclass(frozen=True)
class Glued:
    """`ranges` int64 (m, 2) and `sizes` int64 (m,) of pieces; value i lies `shift[i]` above piece `owner[i]`, both int64 (n,)."""
    ranges: np.ndarray
    sizes: np.ndarray
    owner: np.ndarray
    shift: np.ndarray

    def offsets(self, of_pieces: np.ndarray) -> np.ndarray:
        """Offsets int64 (n,) of the values, by those of the pieces, int64 (m,)."""
        return of_pieces[self.owner] + self.shift


def glued(begin: np.ndarray, end: np.ndarray, size: np.ndarray, capacity: int,
          generator: np.random.RandomState) -> Glued:
    """Put together what can be, by chance and in turns: equal sizes that follow each other, then equal lives.

    Args:
        begin, end: int64 (n,), first and last section of each value; size: int64 (n,).
        capacity: that no piece may exceed.
    """
    share, trust = generator.uniform(LEAST_SHARE, 1.0), generator.choice(TRUST)
    pieces = [
        _Piece(*of, [(value, 0)])
        for value, of in enumerate(zip(begin.tolist(), end.tolist(), size.tolist()))
    ]
    before = len(pieces) + 1
    while len(pieces) < before:
        before = len(pieces)
        pieces = [pieces[i] for i in generator.permutation(len(pieces))]
        pieces = _in_a_row(pieces, share, generator)
        if len(pieces) == before:
            pieces = _on_each_other(pieces, trust, capacity, generator)
            trust *= trust
    owner, shift = np.empty((2, len(size)), dtype=np.int64)
    for number, piece in enumerate(pieces):
        for value, at in piece.parts:
            owner[value], shift[value] = number, at
    return Glued(np.array([(piece.begin, piece.end) for piece in pieces], dtype=np.int64),
                 np.array([piece.size for piece in pieces], dtype=np.int64), owner, shift)


def _in_a_row(pieces: List[_Piece], share: float, generator: np.random.RandomState) -> List[_Piece]:
    """Each with one of its size that ended right before it, or left alone."""
    left: List[_Piece] = []
    ended: Dict[Tuple[int, int], _Piece] = {}
    for piece in sorted(pieces, key=lambda piece: piece.begin):
        other = ended.get((piece.begin, piece.size))
        if other is not None and generator.rand() < share:
            del ended[piece.begin, piece.size]
            other.take(piece, 0)
            other.end = piece.end
            ended[other.end + 1, other.size] = other
        else:
            left.append(piece)
            ended[piece.end + 1, piece.size] = piece
    return left


def _on_each_other(pieces: List[_Piece], trust: float, capacity: int,
                   generator: np.random.RandomState) -> List[_Piece]:
    """Each on one that lives through the same sections, or left alone.

    Where the two are as large as one that ends before them or begins after them, they are hardly alike by chance; of others
    only the part `trust` is put together.
    """
    ended = {(piece.end + 1, piece.size) for piece in pieces}
    begun = {(piece.begin, piece.size) for piece in pieces}
    left: List[_Piece] = []
    alike: Dict[Tuple[int, int], List[_Piece]] = {}
    for piece in pieces:
        group = alike.setdefault((piece.begin, piece.end), [])
        for other in group:
            size = other.size + piece.size
            witness = (piece.begin, size) in ended or (piece.end + 1, size) in begun
            if size <= capacity and (witness or generator.rand() < trust):
                other.take(piece, other.size)
                other.size = size
                break
        else:
            left.append(piece)
            group.append(piece)
    return left
