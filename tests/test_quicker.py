"""What tests leave out of Paddle's work changes nothing of what runs."""
from __future__ import annotations

import contextlib
import copy
import traceback
from dataclasses import replace
from typing import Any, List, Tuple

import paddle
import pytest
from paddle.base import executor
from paddle.base.proto import framework_pb2

from tests import stacks
from tests.harness import (ALL_MODES, BASIC_MODES, Build, Case, Mode, assert_same_bytes,
                           executor_mode, fingerprint, run_case)
from tests.quicker import Prepared, prepare
from tests.scenarios import loops, optimizers, straight
from tests.test_scenarios import SCENARIOS
from transpiler.backends.scopes import fresh_scope

Pair = Tuple[bytes, bytes]


def prepared(case: Case, monkeypatch: pytest.MonkeyPatch) -> List[Pair]:
    """What Paddle makes of the startup and of the main program for an executor, and what we do."""
    made: List[Pair] = []
    usual = executor._ExecutorCache._get_program_and_executor

    def noted(cache, asked):
        ours, (program, runner) = prepare(asked)[1], usual(cache, asked)
        made.append((without_stacks(program.desc), without_stacks(ours)))
        return program, runner

    with monkeypatch.context() as patched, fresh_scope():
        patched.setattr(executor._ExecutorCache, '_get_program_and_executor', noted)
        runs = paddle.static.Executor(paddle.CPUPlace())
        runs.run(case.startup)
        runs.run(case.main, feed=case.feed(0), fetch_list=list(case.fetch), return_numpy=False)
    return made


def without_stacks(described: Any) -> bytes:
    """Feeds and fetches are made by other callers; all other ops are copied."""
    message = framework_pb2.ProgramDesc.FromString(described.serialize_to_string())
    for op in message.blocks[0].ops:
        if op.type in ('feed', 'fetch_v2'):
            for attribute in op.attrs:
                if attribute.name == 'op_callstack':
                    del attribute.strings[:]
    return message.SerializeToString()


@pytest.mark.parametrize('build', SCENARIOS)
def test_what_is_prepared_for_an_executor_is_what_paddle_prepares(
        build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = prepared(build(), monkeypatch)
    assert len(pairs) == 2 and all(theirs == ours for theirs, ours in pairs)
    assert pairs[0] != pairs[1]


@pytest.mark.parametrize('build', [optimizers.adam, loops.nested])
def test_what_is_prepared_for_an_executor_is_the_same_in_every_mode(
        build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    case, seen = build(), []
    for mode in case.modes():
        with executor_mode(mode):
            seen.append(prepared(case, monkeypatch))
    assert len(seen) >= len(ALL_MODES) // 2 and seen.count(seen[0]) == len(seen)


@pytest.mark.parametrize('mode', BASIC_MODES, ids=str)
@pytest.mark.parametrize('build', [optimizers.adam, loops.nested, straight.dropout_and_batch_norm])
def test_what_was_prepared_for_another_executor_runs_as_what_is_made_anew(
        build: Build, mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    case = build()
    first, again = run_case(case, mode=mode), run_case(case, mode=mode)
    monkeypatch.setattr(Prepared, 'used', lambda _: contextlib.nullcontext())
    anew = run_case(case, mode=mode)
    assert_same_bytes(anew, first)
    assert_same_bytes(anew, again)


def test_programs_of_the_same_bytes_keep_each_its_own_schedule() -> None:
    case = optimizers.learning_rate_scheduler()
    faster = replace(case, main=case.main.clone())
    faster.main.lr_scheduler = copy.deepcopy(case.main.lr_scheduler)
    faster.main.lr_scheduler.gamma /= 2
    assert fingerprint(faster.main) == fingerprint(case.main)
    first, other, again = run_case(case), run_case(faster), run_case(case)
    assert first.state != other.state
    assert_same_bytes(first, again)


def test_a_call_stack_is_the_end_of_the_whole_one() -> None:
    short, whole = traceback.extract_stack(), stacks._usual()
    found = len(short)
    assert 0 < found < len(whole) and list(map(tuple, short)) == list(map(tuple, whole[-found:]))
    assert short[0].name.startswith('test_a_call_stack') and short[0].line
    last, = traceback.extract_stack(limit=1)  # who asks for something else gets it
    assert (last.filename, last.name) == (whole[-1].filename, whole[-1].name)


def test_call_stacks_begin_where_a_script_would() -> None:
    """At the test; they end in Paddle, where the op is made."""
    ops = straight.inference_chain().main.global_block().ops
    assert ops
    for op in ops:
        places = op.attr('op_callstack')[::2]
        assert 'in test_call_stacks_begin' in places[0] and __file__ in places[0]
        assert 'in inference_chain' in places[1] and 'in __init__' in places[-1]
