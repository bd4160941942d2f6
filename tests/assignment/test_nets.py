from __future__ import annotations

import copy
import json

import pytest
from click.testing import CliRunner

from benchmarks.assignment import main
from benchmarks.memonger_net import PlanError, check_plan, load, load_all
from tests.assignment.generate import net_folder
from transpiler.assignment import live_max_bytes, live_ranges, sharing_bound


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return net_folder(tmp_path_factory.mktemp("nets"))


@pytest.fixture(scope="module")
def planned(folder, tmp_path_factory):
    """The benchmark's own rows and plans for every net."""
    plans = tmp_path_factory.mktemp("plans")
    arguments = ["--nets", str(folder), "--parallel", "--plans", str(plans), "--json"]
    outcome = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert outcome.exit_code == 0
    return json.loads(outcome.output), {
        path.stem: json.loads(path.read_text()) for path in plans.glob("*.json")
    }


def test_the_importer_finds_the_bounds_that_the_files_state(folder):
    for source in load_all(folder):
        blobs, ranges = live_ranges(source.net)
        bounds = source.document["lower_bounds"]
        assert live_max_bytes(ranges, source.net.sizes[blobs]) == bounds["live_max_bytes"]
        assert sharing_bound(ranges, source.net.sizes[blobs]) == bounds["buffer_sharing_bytes"]


def test_every_plan_on_disk_computes_the_same_in_the_bytes_it_claims(folder, planned):
    report, plans = planned
    for row in report["nets"]:
        document = load(folder / (row["net"] + ".json")).document
        assert check_plan(document, plans[row["net"]]) == row["assigned_bytes"]
        assert plans[row["net"]]["arena_bytes"] == row["arena_bytes"]


def test_every_net_is_at_its_bounds_and_never_above_memonger(planned):
    for row in planned[0]["nets"]:
        assert row["assigned_bytes"] <= row["buffer_sharing_bytes"] * 1.02 or row["proved"]
        assert row["arena_bytes"] <= row["live_max_bytes"] * 1.001
        assert not row["memonger_bytes"] or row["assigned_bytes"] <= row["memonger_bytes"]


def test_parallel_safe_sharing_keeps_every_critical_path(planned):
    for row in planned[0]["parallel"]:
        assert row["critical_path_after"] == row["critical_path_before"]
        assert row["memonger_bytes"] is None or row["parallel_safe_bytes"] <= row["memonger_bytes"]


def small_document():
    """a feeds b and c; then c is made anew from b."""
    ops = [([], ["a"]), (["a"], ["b"]), (["a", "b"], ["c"]), (["b", "c"], ["d"])]
    return {
        "name": "small",
        "ops": [{
            "i": i,
            "type": "Op",
            "inputs": r,
            "outputs": w
        } for i, (r, w) in enumerate(ops)],
        "blobs": {
            name: {
                "bytes": 4,
                "kind": "intermediate"
            } for name in "abcd"
        },
        "external_inputs": [],
        "external_outputs": [],
        "memonger": {}
    }


SOUND = {
    "order": [0, 1, 2, 3],
    "storage": {
        "a": 0,
        "b": 1,
        "c": 2,
        "d": 0
    },
    "offset": {
        "a": 0,
        "b": 4,
        "c": 8,
        "d": 0
    },
    "arena_bytes": 12
}


@pytest.mark.parametrize("part, value", [
    ("order", [1, 0, 2, 3]),
    ("order", [0, 1, 2]),
    ("storage", {
        "a": 0,
        "b": 1,
        "c": 1,
        "d": 0
    }),
    ("storage", {
        "a": 0,
        "b": 1,
        "c": 0,
        "d": 2
    }),
    ("storage", {
        "a": 0,
        "b": 1,
        "c": 2
    }),
    ("offset", {
        "a": 0,
        "b": 3,
        "c": 8,
        "d": 0
    }),
    ("offset", {
        "a": 0,
        "b": 4,
        "c": 9,
        "d": 0
    }),
    ("arena_bytes", 11),
])
def test_the_plan_checker_catches_what_is_broken(part, value):
    assert check_plan(small_document(), SOUND) == 12
    broken = copy.deepcopy(SOUND)
    broken[part] = value
    with pytest.raises(PlanError):
        check_plan(small_document(), broken)


def test_a_file_that_is_no_net_is_refused(tmp_path):
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(ValueError, match="not a net file"):
        load(tmp_path / "x.json")
    outcome = CliRunner().invoke(main, ["--nets", str(tmp_path)])
    assert outcome.exit_code == 1 and "not a net file" in outcome.output


def test_nothing_to_measure_is_an_error():
    assert CliRunner().invoke(main, []).exit_code == 2
