"""Search for offsets within a fixed capacity, with pruning and backjumps: the inner loops of `packing_exact`.

Sections, canonical solutions and the race of static orders are those of minimalloc (Moffitt, "MiniMalloc: A Lightweight Memory
Allocator for Hardware-Accelerated Machine Learning", ASPLOS 2023), from the paper's description; the branching on one section
and the backjumps are not. If any solution exists, then one with the least sum of size times offset, and the search keeps to it:

* *Sections.* Time is cut where buffers begin. `low[i]` is the lowest offset that buffer i can still have, the floor of a section
  the least `low` of its unplaced members. A decision asks which member lies on the floor of one section: one of those with `low`
  there, or none. Whatever overlaps the chosen one is raised above it. So a section may be asked only where nothing unplaced
  could lie below the chosen one (*dominance*); at the lowest floor that always holds.
* *Section bound* (HEADS). The members of a section lie on each other: those with `low` of at least t end at t plus their sizes or
  higher (Jackson's bound of one machine, heads only). At t = floor it is minimalloc's inference.
* *Canonical solutions.* Each buffer rests on another or on offset 0. Where none lies on a floor, the members are raised to
  the lowest top that they could rest on (SUPPORT); one placed on no top is refused (REST). Of equal buffers the first is
  the lowest (EQUALS).
* *Sections first* (LOCAL). The section with the fewest choices for how often it was the one that failed is asked next
  (Boussemart et al. 2004), not the one with the lowest floor.
* *Backjumps* (JUMPS). Every `low` keeps the decisions that it follows from; a failure is undone to the last that it depends on
  (Prosser 1993). What happens in another part of time is not searched again, as if time had been cut there.

Switching a rule off changes no verdict, only its price.

Shapes: n buffers, S sections, L levels (decisions), W words of 64 levels. Offsets and sizes are in one unit.
"""
from __future__ import annotations

from typing import List, NamedTuple, Tuple

import numpy as np

from transpiler.assignment.jit import njit
from transpiler.assignment.ranges import sections

SOLVED, INFEASIBLE, OUT_OF_NODES = 1, 0, -1
HEADS, SUPPORT, REST, EQUALS, LOCAL, JUMPS = 1, 2, 4, 8, 16, 32
ALL_RULES = HEADS | SUPPORT | REST | EQUALS | LOCAL | JUMPS
NOBODY = -1
FAR = np.int64(2)**62
TRAIL_ROWS = 256  # for each buffer; what is not used costs address space alone


class Problem(NamedTuple):
    """What does not change: `begin`, `end` (first and last section, inclusive) and `size` are int64 (n,).

    Members of section s are `members[member_at[s]:member_at[s + 1]]`, what overlaps buffer i is
    `overlaps[overlap_at[i]:overlap_at[i + 1]]`; all int64.
    """
    begin: np.ndarray
    end: np.ndarray
    size: np.ndarray
    member_at: np.ndarray
    members: np.ndarray
    overlap_at: np.ndarray
    overlaps: np.ndarray


class State(NamedTuple):
    """What a search changes.

    Of buffers: `low`, `level` (of the decision that placed it, or NOBODY) int64 (n,), `reason` (levels that `low` follows from)
    uint64 (n, W). Of sections, int64 (S,): `floor`, `total` (unplaced bytes), `lowest_top` (that an unplaced member can
    reach), `choices` (members at the floor), all four to be counted anew where `stale` says so; `top` of what was placed last;
    bool (S,): `dirty`, where a `low` rose since the last check.
    Of levels: `asked` (section, its floor, rows of trail, next and end in `queue`, placed buffer, rows of `tops`)
    int64 (L, 7), `blame` (levels that the failures of its choices depend on) uint64 (L, W).
    Stacks: `trail` (buffer, its old low) int64 (rows, 2) with `trail_reason` uint64 (rows, W), `queue` of choices and
    `tops` covered by placing, int64. `conflict`: what the failure at hand depends on, uint64 (1, W); `scratch` int64 (n,).
    `by_low`: the members of each section, sorted when it was checked last.
    `used`: rows of trail, levels, rows of tops, unplaced buffers, int64 (4,).
    """
    low: np.ndarray
    level: np.ndarray
    reason: np.ndarray
    floor: np.ndarray
    total: np.ndarray
    lowest_top: np.ndarray
    choices: np.ndarray
    stale: np.ndarray
    top: np.ndarray
    dirty: np.ndarray
    asked: np.ndarray
    blame: np.ndarray
    trail: np.ndarray
    trail_reason: np.ndarray
    queue: np.ndarray
    tops: np.ndarray
    conflict: np.ndarray
    scratch: np.ndarray
    by_low: np.ndarray
    used: np.ndarray


SECTION, FLOOR, TRAIL, NEXT, END, PLACED, TOPS = range(7)  # columns of `asked`
TRAIL_USED, LEVELS_USED, TOPS_USED, UNPLACED = range(4)  # of `used`


def problem_of(ranges: np.ndarray, sizes: np.ndarray) -> Problem:
    """The sections, members and overlaps of ranges int64 (n, 2), inclusive, and sizes int64 (n,)."""
    begin, end, count = sections(ranges)
    inside = [np.flatnonzero((begin <= s) & (s <= end)) for s in range(count)]
    beside = [
        np.flatnonzero((begin <= end[i]) & (begin[i] <= end) & (np.arange(len(sizes)) != i))
        for i in range(len(sizes))
    ]
    return Problem(begin, end, sizes, *_joined(inside), *_joined(beside))


def _joined(lists: List[np.ndarray]) -> Tuple[np.ndarray, np.ndarray]:
    """(starts, everything) of int64 lists."""
    starts = np.cumsum([0] + [len(each) for each in lists]).astype(np.int64)
    return starts, np.concatenate(lists + [np.zeros(0, np.int64)]).astype(np.int64)


def new_state(problem: Problem) -> State:
    """Nothing placed."""
    count, parts = len(problem.size), len(problem.member_at) - 1
    levels, widest = 3 * count + 64, int(np.diff(problem.member_at).max())
    words, rows = (levels + 63) // 64, TRAIL_ROWS * count
    ints, spans = np.int64, int((problem.end - problem.begin + 1).sum())
    return State(np.zeros(count, ints), np.full(count, NOBODY, ints),
                 np.zeros((count, words), np.uint64), np.zeros(parts, ints), np.zeros(parts, ints),
                 np.zeros(parts, ints), np.zeros(parts, ints), np.ones(parts, np.bool_),
                 np.zeros(parts, ints), np.ones(parts, np.bool_), np.zeros((levels, 7), ints),
                 np.zeros((levels, words), np.uint64), np.empty((rows, 2), ints),
                 np.empty((rows, words), np.uint64), np.empty(levels * (widest + 1), ints),
                 np.empty(spans, ints), np.zeros((1, words), np.uint64), np.empty(count, ints),
                 problem.members.copy(), np.array([0, 0, 0, count], ints))


@njit
def clear(sets, row):
    """No level is in the set that is `row` of `sets`, uint64 (rows, W)."""
    for word in range(sets.shape[1]):
        sets[row, word] = np.uint64(0)


@njit
def copy(sets, row, others, other):
    """The set `row` of `sets` becomes what `other` of `others` is."""
    for word in range(sets.shape[1]):
        sets[row, word] = others[other, word]


@njit
def add(sets, row, others, other):
    """Put all of the set `other` of `others` into `row` of `sets`."""
    for word in range(sets.shape[1]):
        sets[row, word] |= others[other, word]


@njit
def add_level(sets, row, level):
    """Put `level` into the set."""
    sets[row, level // 64] |= np.uint64(1) << np.uint64(level % 64)


@njit
def last_level(sets, row):
    """The highest level of the set, or NOBODY."""
    for word in range(sets.shape[1] - 1, -1, -1):
        bits = sets[row, word]
        if bits != np.uint64(0):
            bit = 0
            while bits > np.uint64(1):
                bits >>= np.uint64(1)
                bit += 1
            return 64 * word + bit
    return -1


@njit
def mark(flags, buffer, begin, end):
    """Set the flags of all sections of `buffer`."""
    for s in range(begin[buffer], end[buffer] + 1):
        flags[s] = True


@njit
def keep_on_trail(buffer, low, reason, trail, trail_reason, used):
    """Write down what `low` of `buffer` is, as it is about to rise."""
    row = used[TRAIL_USED]
    trail[row, 0] = buffer
    trail[row, 1] = low[buffer]
    copy(trail_reason, row, reason, buffer)
    used[TRAIL_USED] += 1


@njit
def count_sections(problem, state):
    """Write what `State` says of the sections that are stale."""
    member_at, members, size = problem.member_at, problem.members, problem.size
    level, low, stale = state.level, state.low, state.stale
    for s in range(len(stale)):
        if not stale[s]:
            continue
        stale[s] = False
        floor, total, lowest_top, choices = FAR, np.int64(0), FAR, 0
        for k in range(member_at[s], member_at[s + 1]):
            i = members[k]
            if level[i] >= 0:
                continue
            total += size[i]
            lowest_top = min(lowest_top, low[i] + size[i])
            if low[i] < floor:
                floor, choices = low[i], 1
            elif low[i] == floor:
                choices += 1
        state.floor[s], state.total[s] = floor, total
        state.lowest_top[s], state.choices[s] = lowest_top, choices


@njit
def sort_by_low(by_low, first, end, low):
    """Sort `by_low[first:end]`, the highest first: by insertion, as little has changed since the last time."""
    for k in range(first + 1, end):
        i, at = by_low[k], k
        while at > first and low[by_low[at - 1]] < low[i]:
            by_low[at] = by_low[at - 1]
            at -= 1
        by_low[at] = i


@njit
def overfull(first, end, bound_by_heads, capacity, by_low, level, low, size):
    """Where in `by_low[first:end]`, the members of a section, those end that do not fit into it; 0 if they may fit."""
    height, last = np.int64(0), 0
    for k in range(first, end):
        i = by_low[k]
        if level[i] < 0:
            height += size[i]
            last = k + 1 if low[i] + height > capacity else 0
            if last and bound_by_heads:
                return last
    return last


@njit
def fits(capacity, rules, weight, problem, state):
    """Whether no dirty section is overfull; else its weight grows, and `conflict` says why."""
    member_at, size, bound_by_heads = problem.member_at, problem.size, (rules & HEADS) > 0
    by_low, level, low, dirty = state.by_low, state.level, state.low, state.dirty
    possible = True
    for s in range(len(dirty)):
        if not dirty[s]:
            continue
        dirty[s] = False
        if not possible:
            continue
        first, end = member_at[s], member_at[s + 1]
        sort_by_low(by_low, first, end, low)
        last = overfull(first, end, bound_by_heads, capacity, by_low, level, low, size)
        if last:
            possible = False
            weight[s] += 1
            clear(state.conflict, 0)
            for k in range(first, last):
                if level[by_low[k]] < 0:
                    add(state.conflict, 0, state.reason, by_low[k])
    return possible


@njit
def undo(at, problem, state):
    """Take back the choice that was made at level `at`, the last one."""
    begin, end, stale = problem.begin, problem.end, state.stale
    low, reason, trail, trail_reason = state.low, state.reason, state.trail, state.trail_reason
    for row in range(state.used[TRAIL_USED] - 1, state.asked[at, TRAIL] - 1, -1):
        buffer = trail[row, 0]
        low[buffer] = trail[row, 1]
        copy(reason, buffer, trail_reason, row)
        mark(stale, buffer, begin, end)
    state.used[TRAIL_USED] = state.asked[at, TRAIL]
    placed = state.asked[at, PLACED]
    if placed >= 0:
        state.level[placed] = NOBODY
        for s in range(begin[placed], end[placed] + 1):
            state.top[s] = state.tops[state.asked[at, TOPS] + s - begin[placed]]
        mark(stale, placed, begin, end)
        state.used[TOPS_USED] = state.asked[at, TOPS]
        state.used[UNPLACED] += 1
        state.asked[at, PLACED] = NOBODY


@njit
def may_be_asked(floor, first, last, members, begin, end, level, low, lowest_top):
    """Whether nothing unplaced could lie below those of `members[first:last]`, a section's, whose `low` is its floor."""
    left, right = begin[members[first]], end[members[first]]
    for k in range(first, last):
        i = members[k]
        if level[i] < 0 and low[i] == floor:
            left, right = min(left, begin[i]), max(right, end[i])
    for s in range(left, right + 1):
        if lowest_top[s] <= floor:
            return False
    return True


@njit
def section_to_ask(capacity, rules, weight, problem, state):
    """The section whose floor is decided next."""
    count_sections(problem, state)
    member_at, members, begin, end = problem.member_at, problem.members, problem.begin, problem.end
    level, low, lowest_top = state.level, state.low, state.lowest_top
    floor, total, count = state.floor, state.total, state.choices
    best, best_price, best_floor = -1, np.inf, FAR
    for s in range(len(floor)):
        if total[s] == 0:
            continue
        choices = count[s] + (floor[s] + total[s] < capacity)
        price = choices / weight[s] if choices > 1 else 0.0
        if not rules & LOCAL:
            price = float(floor[s])
        if price < best_price or (price == best_price and floor[s] < best_floor):
            if may_be_asked(floor[s], member_at[s], member_at[s + 1], members, begin, end, level,
                            low, lowest_top):
                best, best_price, best_floor = s, price, floor[s]
    return best


@njit
def alignment(left, right, floor, top, capacity, tops):
    """How well a buffer of sections left..right fits on `floor`: tops that become level, sides that meet a step of `tops`."""
    found = 2 if top == capacity else 0
    if left == 0 or tops[left - 1] != floor:
        found += 1
    if right + 1 == len(tops) or tops[right + 1] != floor:
        found += 1
    if left > 0 and tops[left - 1] == top:
        found += 2
    if right + 1 < len(tops) and tops[right + 1] == top:
        found += 2
    return found


@njit
def is_equal_to_earlier(buffer, first, members, begin, end, size, level):
    """Whether an unplaced one of the same sections and size comes before `buffer` in `members[first:]`."""
    k = first
    while members[k] != buffer:
        i = members[k]
        if (level[i] < 0 and size[i] == size[buffer] and begin[i] == begin[buffer] and
                end[i] == end[buffer]):
            return True
        k += 1
    return False


@njit
def sorted_choices(s, first, capacity, rules, rank, problem, state):
    """Write the members that may lie on the floor of section `s` into `queue`, the best first; where they end."""
    member_at, members, size = problem.member_at, problem.members, problem.size
    begin, end, level, low = problem.begin, problem.end, state.level, state.low
    queue, score, floor, found = state.queue, state.scratch, state.floor[s], first
    for k in range(member_at[s], member_at[s + 1]):
        i = members[k]
        if level[i] >= 0 or low[i] != floor or rules & EQUALS and is_equal_to_earlier(
                i, member_at[s], members, begin, end, size, level):
            continue
        score[i] = alignment(begin[i], end[i], floor, floor + size[i], capacity, state.top)
        at = found
        while at > first:
            other = queue[at - 1]
            if score[other] > score[i] or score[other] == score[i] and rank[other] < rank[i]:
                break
            queue[at] = other
            at -= 1
        queue[at] = i
        found += 1
    return found


@njit
def ask(s, capacity, rules, rank, problem, state):
    """Open a level on section `s`: its choices, and after them none where there is room."""
    at, asked = state.used[LEVELS_USED], state.asked
    first = asked[at - 1, END] if at else np.int64(0)
    end = sorted_choices(s, first, capacity, rules, rank, problem, state)
    if state.floor[s] + state.total[s] < capacity:
        state.queue[end] = NOBODY
        end += 1
    clear(state.blame, at)
    for k in range(problem.member_at[s], problem.member_at[s + 1]):
        if state.level[problem.members[k]] < 0:
            add(state.blame, at, state.reason, problem.members[k])
    asked[at, SECTION], asked[at, FLOOR], asked[at,
                                                TRAIL] = s, state.floor[s], state.used[TRAIL_USED]
    asked[at, NEXT], asked[at, END] = first, end
    asked[at, PLACED], asked[at, TOPS] = NOBODY, state.used[TOPS_USED]
    state.used[LEVELS_USED] += 1


@njit
def rests(buffer, floor, begin, end, tops):
    """Whether `buffer` has a placed one right below it at `floor`, or 0."""
    for s in range(begin[buffer], end[buffer] + 1):
        if tops[s] == floor:
            return True
    return floor == 0


@njit
def blame_neighbours(buffer, sets, row, problem, state):
    """Put into the set `row` of `sets` where placed ones that overlap `buffer` are, and why the others are no lower."""
    overlaps, level, reason = problem.overlaps, state.level, state.reason
    for k in range(problem.overlap_at[buffer], problem.overlap_at[buffer + 1]):
        i = overlaps[k]
        if level[i] >= 0:
            add_level(sets, row, level[i])
        else:
            add(sets, row, reason, i)


@njit
def cover(buffer, at, top, problem, state):
    """Mark `buffer` as placed at level `at`, its top at `top`."""
    state.asked[at, PLACED] = buffer
    state.level[buffer] = at
    state.used[UNPLACED] -= 1
    for s in range(problem.begin[buffer], problem.end[buffer] + 1):
        state.tops[state.used[TOPS_USED]] = state.top[s]
        state.used[TOPS_USED] += 1
        state.top[s] = top
    mark(state.stale, buffer, problem.begin, problem.end)


@njit
def place(buffer, at, capacity, rules, weight, problem, state):
    """Put `buffer` on the floor of the section that level `at` asks; whether that may be part of a solution."""
    floor = state.asked[at, FLOOR]
    if rules & REST and not rests(buffer, floor, problem.begin, problem.end, state.top):
        clear(state.conflict, 0)
        blame_neighbours(buffer, state.conflict, 0, problem, state)
        add_level(state.conflict, 0, at)
        return False
    top = floor + problem.size[buffer]
    cover(buffer, at, top, problem, state)
    overlaps, begin, end, size = problem.overlaps, problem.begin, problem.end, problem.size
    level, low, reason, stale, dirty = state.level, state.low, state.reason, state.stale, state.dirty
    for k in range(problem.overlap_at[buffer], problem.overlap_at[buffer + 1]):
        i = overlaps[k]
        if level[i] >= 0 or low[i] >= top:
            continue
        keep_on_trail(i, low, reason, state.trail, state.trail_reason, state.used)
        # It lies above as it cannot lie below: for its size alone, or because of its `low`.
        if size[i] > floor:
            clear(reason, i)
        add_level(reason, i, at)
        low[i] = top
        mark(stale, i, begin, end)
        mark(dirty, i, begin, end)
    return fits(capacity, rules, weight, problem, state)


@njit
def lowest_other_top(buffer, problem, state):
    """The lowest top that an unplaced one which overlaps `buffer` can have; FAR if there is none."""
    overlaps, level, low, size = problem.overlaps, state.level, state.low, problem.size
    lowest = FAR
    for k in range(problem.overlap_at[buffer], problem.overlap_at[buffer + 1]):
        i = overlaps[k]
        if level[i] < 0:
            lowest = min(lowest, low[i] + size[i])
    return lowest


@njit
def raise_to(buffer, offset, at, problem, state):
    """Raise `low` of `buffer` to `offset`, for what level `at` decided and for what its `low` followed from."""
    keep_on_trail(buffer, state.low, state.reason, state.trail, state.trail_reason, state.used)
    add_level(state.reason, buffer, at)
    state.low[buffer] = offset
    mark(state.stale, buffer, problem.begin, problem.end)
    mark(state.dirty, buffer, problem.begin, problem.end)


@njit
def leave_empty(at, capacity, rules, weight, problem, state):
    """None lies on the floor that level `at` asks for; whether that may be part of a solution."""
    s, floor = state.asked[at, SECTION], state.asked[at, FLOOR]
    for k in range(problem.member_at[s], problem.member_at[s + 1]):
        i = problem.members[k]
        if state.level[i] < 0 and state.low[i] == floor:
            raise_to(i, floor + 1, at, problem, state)
    if not fits(capacity, rules, weight, problem, state):
        return False
    if not rules & SUPPORT:
        return True
    for row in range(state.asked[at, TRAIL], state.used[TRAIL_USED]):
        i = state.trail[row, 0]
        lowest = lowest_other_top(i, problem, state)
        if lowest > floor + 1:
            raise_to(i, min(lowest, capacity + 1), at, problem, state)
            blame_neighbours(i, state.reason, i, problem, state)
    return fits(capacity, rules, weight, problem, state)


@njit
def jump_back(rules, problem, state):
    """Undo to the last decision that the conflict depends on and that has a choice left; False if there is none."""
    while True:
        last = state.used[LEVELS_USED] - 1
        guilty = last_level(state.conflict, 0)
        if guilty < 0 or last < 0:
            return False
        if not rules & JUMPS:
            guilty = last
        for level in range(last, guilty - 1, -1):
            undo(level, problem, state)
        state.used[LEVELS_USED] = guilty + 1
        add(state.blame, guilty, state.conflict, 0)
        state.blame[guilty, guilty // 64] &= ~(np.uint64(1) << np.uint64(guilty % 64))
        if state.asked[guilty, NEXT] < state.asked[guilty, END]:
            return True
        copy(state.conflict, 0, state.blame, guilty)
        state.used[LEVELS_USED] = guilty


@njit
def search(capacity, rank, weight, nodes, rules, problem, state):
    """Look for offsets with every top at most `capacity`.

    Args:
        capacity: in the unit of the sizes.
        rank: float64 (n,), lower first among choices that fit equally well.
        weight: float64 (S,), how often a section was the one that failed, plus one; grows.
        nodes: choices to try at most.
        rules: which rules of pruning to use.
        problem, state: a `Problem`, and its `new_state`.

    Returns:
        SOLVED with the offsets in `state.low`, INFEASIBLE (proved), or OUT_OF_NODES.
    """
    if not fits(capacity, rules, weight, problem, state):
        return INFEASIBLE
    count, failed = len(problem.size), False
    for _ in range(nodes):
        if failed:
            if not jump_back(rules, problem, state):
                return INFEASIBLE
        else:
            if state.used[UNPLACED] == 0:
                return SOLVED
            s = section_to_ask(capacity, rules, weight, problem, state)
            if (state.used[LEVELS_USED] == len(state.asked) or
                    state.used[TRAIL_USED] + 2 * count > len(state.trail)):
                return OUT_OF_NODES
            ask(s, capacity, rules, rank, problem, state)
        level = state.used[LEVELS_USED] - 1
        choice = state.queue[state.asked[level, NEXT]]
        state.asked[level, NEXT] += 1
        if choice >= 0:
            failed = not place(choice, level, capacity, rules, weight, problem, state)
        else:
            failed = not leave_empty(level, capacity, rules, weight, problem, state)
    return SOLVED if state.used[UNPLACED] == 0 and not failed else OUT_OF_NODES
