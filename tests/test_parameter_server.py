"""Trainers that fleet's parameter servers serve, planned and proved: what servers give is asked for once, and what they know by its name
keeps it."""
from __future__ import annotations

import pytest
from paddle.base.framework import OpProtoHolder
from paddle.base.proto import framework_pb2

from benchmarks.apart import apart
from tests.parameter_server import MODES, planned
from transpiler.backends.paddle2.registry import OpRegistry

# Has an attribute for it, and reads a variable of its own process all the same.
LOCAL = {'lookup_table', 'lookup_table_grad'}


@pytest.mark.parametrize('mode', MODES)
def test_a_trainer_asks_and_tells_its_servers_what_it_did_and_needs_less(mode: str) -> None:
    found = apart(planned, mode)
    assert found.changed and found.clones and found.peaks[1] < found.peaks[0]
    assert found.after == found.before and 'send' in {kind for kind, *_ in found.before}


def test_what_talks_to_servers_keeps_its_turn_and_does_not_run_again() -> None:
    """By the registry: whatever names a table, or where servers are."""
    protos = OpProtoHolder.instance().op_proto_map
    says = {'table_id', 'TableId', 'endpoints', 'pserver_id', 'send_varnames'}
    kinds = {kind for kind, proto in protos.items() if says & {a.name for a in proto.attrs}} - LOCAL
    assert len(kinds) >= 8
    kinds |= {kind for kind in protos if kind.startswith(('pull_', 'push_'))}
    for kind in kinds:
        facts = OpRegistry().facts(_with_result(kind))
        assert facts.ordered and (facts.by_names or facts.collective), kind


def _with_result(kind: str) -> framework_pb2.OpDesc:
    """So that it does something besides."""
    desc = framework_pb2.OpDesc(type=kind)
    desc.outputs.add(parameter='Out', arguments=['a'])
    return desc
