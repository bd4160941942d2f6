"""The smallest assignment, proved, where time allows.

Small instances go through a branch and bound; larger ones to OR-Tools CP-SAT, first as a decision
at the lower bound and then as a minimisation between the bound and the best assignment known.
"""
from __future__ import annotations

import time
from typing import List, Optional, Tuple

import numpy as np

from transpiler.assignment.ranges import sections, storage_sizes, total_bytes
from transpiler.assignment.sharing import Sharing, conflict_matrix
from transpiler.assignment.sweep import interval_colouring

BRANCHING_NODES = 20_000
MODEL_LITERALS = 200_000
MODEL_TERMS = 3_000_000
MODEL_PAIRS = 2_000_000


class _OutOfNodes(Exception):
    """The branch and bound gave up."""


def owners_first(sizes: np.ndarray, sharing: Optional[Sharing]) -> np.ndarray:
    """int64 (n,): an order of the values, by falling size, in which an owner comes before all that it owns.

    Who owns another owns all that the other does, so counting tells which of two of one size goes first.
    """
    owned = np.zeros(len(sizes), dtype=np.int64)
    if sharing is not None and sharing.fits is not None:
        owned = sharing.fits.owns().sum(axis=1)
    return np.lexsort((-owned, -sizes))


class _Branching:
    """Values by falling size; each joins a storage (free of charge) or opens one (its size).

    Every partition is met exactly once: its storages in the order of their owners, the largest tenants.
    """

    def __init__(self, ranges: np.ndarray, sizes: np.ndarray, sharing: Optional[Sharing],
                 storages: np.ndarray, bound: int) -> None:
        conflicts = conflict_matrix(ranges, sharing)
        self.order = owners_first(sizes, sharing).tolist()
        self.sizes = sizes.tolist()
        self.keeps_out = _masks(conflicts)
        self.owner_keeps_out = _masks(conflicts | _strangers(sharing, len(sizes)))
        self.best, self.best_total = storages.copy(), total_bytes(storages, sizes)
        self.bound = bound
        self.nodes_left = BRANCHING_NODES
        self.kept_out: List[int] = []  # by storage, of all its tenants
        self.current = [0] * len(self.order)

    def run(self, depth: int, total: int) -> None:
        """Extend the partial assignment of `order[:depth]`, which costs `total` bytes."""
        self.nodes_left -= 1
        if self.nodes_left < 0:
            raise _OutOfNodes
        if total >= self.best_total or self.best_total == self.bound:
            return
        if depth == len(self.order):
            self.best, self.best_total = np.array(self.current, dtype=np.int64), total
            return
        value, kept_out = self.order[depth], self.kept_out
        here, keeps_out = 1 << value, self.keeps_out[value]
        for storage, mask in enumerate(kept_out):
            if not mask & here:
                kept_out[storage] = mask | keeps_out
                self.current[value] = storage
                self.run(depth + 1, total)
                kept_out[storage] = mask
        self.current[value] = len(kept_out)
        kept_out.append(self.owner_keeps_out[value])
        self.run(depth + 1, total + self.sizes[value])
        kept_out.pop()


def _strangers(sharing: Optional[Sharing], count: int) -> np.ndarray:
    """bool (n, n): [i, j] if no storage that i owns may have j in it."""
    if sharing is None or sharing.fits is None:
        return np.zeros((count, count), dtype=bool)
    return ~sharing.fits.owns()


def _masks(rows: np.ndarray) -> List[int]:
    return [sum(1 << int(j) for j in np.flatnonzero(row)) for row in rows]


def branch_and_bound(ranges: np.ndarray, sizes: np.ndarray, sharing: Optional[Sharing],
                     storages: np.ndarray, bound: int) -> Tuple[np.ndarray, bool]:
    """The best assignment found, starting from `storages`, and whether it is proved optimal."""
    search = _Branching(ranges, sizes, sharing, storages, bound)
    try:
        search.run(0, 0)
    except (_OutOfNodes, RecursionError):
        return search.best, False
    return search.best, True


def solve(ranges: np.ndarray, sizes: np.ndarray, sharing: Optional[Sharing], storages: np.ndarray,
          bound: int, seconds: float) -> Tuple[np.ndarray, int]:
    """Improve `storages` towards the optimum within about `seconds`.

    Returns:
        (storages, bound): int64 (n,) at most as large as given, and a bound at least as high as
        given; the two meet where optimality is proved.
    """
    deadline = time.monotonic() + seconds
    if len(sizes) <= 64:
        storages, proved = branch_and_bound(ranges, sizes, sharing, storages, bound)
        if proved:
            return storages, total_bytes(storages, sizes)
    if seconds <= 0:
        return storages, bound
    if sharing is None:
        return _solve_by_classes(ranges, sizes, storages, bound, deadline)
    return _solve_by_leaders(ranges, sizes, sharing, storages, bound, deadline)


def _maximal_sections(end: np.ndarray, count: int) -> np.ndarray:
    """Sections in which something ends: the sets alive in the others are subsets of these."""
    return np.intersect1d(np.arange(count), end)


def _run(model, deadline: float):
    """Solve until `deadline`; returns (solver, status name).

    On one thread, because several race each other and different machines would get different
    plans.
    """
    from ortools.sat.python import cp_model
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    solver.parameters.max_time_in_seconds = max(0.01, deadline - time.monotonic())
    return solver, solver.StatusName(solver.Solve(model))


def _solve_by_classes(ranges: np.ndarray, sizes: np.ndarray, storages: np.ndarray, bound: int,
                      deadline: float) -> Tuple[np.ndarray, int]:
    """For intervals alone: only how many storages of each capacity, and who lives in which class.

    The members of a class fit into m storages exactly if at most m of them are ever alive
    together (interval graphs are perfect), so single storages need not be told apart: n times
    (distinct sizes) literals, and no symmetry among storages.
    """
    from ortools.sat.python import cp_model
    classes = np.unique(sizes)[::-1]
    best = total_bytes(storages, sizes)
    begin, end, count = sections(ranges)
    crowded = _maximal_sections(end, count)
    alive_in = [np.flatnonzero((begin <= s) & (end >= s)).tolist() for s in crowded.tolist()]
    terms = sum(map(len, alive_in)) * len(classes)
    if (len(classes) * len(sizes) > MODEL_LITERALS or terms > MODEL_TERMS or
            time.monotonic() >= deadline):
        return storages, bound
    current = storage_sizes(storages, sizes)
    model = cp_model.CpModel()
    members = [[
        model.NewBoolVar("") if size <= capacity else None for capacity in classes.tolist()
    ] for size in sizes.tolist()]
    counts = [model.NewIntVar(0, len(sizes), "") for _ in classes]
    for i, row in enumerate(members):
        model.AddExactlyOne([x for x in row if x is not None])
        for capacity, x in zip(classes.tolist(), row):
            if x is not None:
                model.AddHint(x, int(current[storages[i]] == capacity))
    for g, capacity in enumerate(classes.tolist()):
        model.AddHint(counts[g], int((current == capacity).sum()))
    for alive in alive_in:
        for g in range(len(classes)):
            present = [members[i][g] for i in alive if members[i][g] is not None]
            model.Add(sum(present) <= counts[g])
    cost = sum(int(capacity) * m for capacity, m in zip(classes.tolist(), counts))
    proved, solver = _bounded_search(model, cost, bound, best, deadline)
    bound = max(bound, proved)
    if solver is not None:
        storages = _coloured(
            [[int(solver.Value(x)) if x is not None else 0 for x in row] for row in members],
            ranges)
    return storages, min(bound, total_bytes(storages, sizes))


def _bounded_search(model, cost, bound: int, best: int, deadline: float):
    """Decide at `bound`, then minimise below `best`; (proved bound, solver with a solution)."""
    decision = model.Clone()
    decision.Add(cost <= bound)
    half = time.monotonic() + 0.5 * (deadline - time.monotonic())
    solver, status = _run(decision, half)
    if status in ("OPTIMAL", "FEASIBLE"):
        return bound, solver
    proved = bound + 1 if status == "INFEASIBLE" else bound
    if time.monotonic() >= deadline:
        return proved, None
    model.Add(cost >= proved)
    model.Add(cost <= best)
    model.Minimize(cost)
    solver, status = _run(model, deadline)
    proved = max(proved, int(np.ceil(solver.BestObjectiveBound() - 1e-6)))
    return proved, solver if status in ("OPTIMAL", "FEASIBLE") else None


def _coloured(rows: List[List[int]], ranges: np.ndarray) -> np.ndarray:
    """Storages from class membership: each class coloured as an interval graph."""
    member_of = np.array(rows).argmax(axis=1)
    storages, opened = np.empty(len(rows), dtype=np.int64), 0
    for g in np.unique(member_of).tolist():
        inside = np.flatnonzero(member_of == g)
        colours = interval_colouring(ranges[inside], np.zeros(len(inside), np.int64), None)
        storages[inside] = colours + opened
        opened += int(colours.max()) + 1
    return storages


def _solve_by_leaders(ranges: np.ndarray, sizes: np.ndarray, sharing: Sharing, storages: np.ndarray,
                      bound: int, deadline: float) -> Tuple[np.ndarray, int]:
    """For any conflict relation: each value is led by the owner, the largest tenant, of its storage."""
    from ortools.sat.python import cp_model
    count = len(sizes)
    if count**2 > MODEL_LITERALS or time.monotonic() >= deadline:
        return storages, bound
    order = owners_first(sizes, sharing)
    place = np.empty(count, dtype=np.int64)
    place[order] = np.arange(count)
    conflicts = conflict_matrix(ranges, sharing)[np.ix_(order, order)]
    apart = conflicts | _strangers(sharing, count)[np.ix_(order, order)].T
    if conflicts.sum() * count / 6 > MODEL_PAIRS:
        return storages, bound
    model = cp_model.CpModel()
    led = [{j: model.NewBoolVar("") for j in range(i + 1) if not apart[i, j]} for i in range(count)]
    for i in range(count):
        model.AddExactlyOne(led[i].values())
        for j, x in led[i].items():
            if j < i:
                model.AddImplication(x, led[j][j])
            for k in np.flatnonzero(conflicts[i, j:i]) + j:
                if j in led[k] and k > j:
                    model.AddBoolOr([x.Not(), led[k][j].Not()])
    leader = np.full(int(storages.max()) + 1, count)
    np.minimum.at(leader, storages, place)
    for i in range(count):
        for j, x in led[i].items():
            model.AddHint(x, int(leader[storages[order[i]]] == j))
    cost = sum(int(sizes[order[i]]) * led[i][i] for i in range(count))
    proved, solver = _bounded_search(model, cost, bound, total_bytes(storages, sizes), deadline)
    if solver is not None:
        storages = np.empty(count, dtype=np.int64)
        for i in range(count):
            storages[order[i]] = next(j for j, x in led[i].items() if solver.Value(x))
    return storages, min(max(bound, proved), total_bytes(storages, sizes))
