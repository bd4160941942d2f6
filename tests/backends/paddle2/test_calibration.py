"""What was measured of the machine is what plans are priced with, in this process and in the next."""
from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from benchmarks.programs import build, small_options
from tests.harness import DEFAULT_MODE, executor_mode
from transpiler import calibrate, memory_optimize
from transpiler.analysis.cost import CostModel
from transpiler.backends import calibration

# No machine's: bytes move as slowly, and ops start as slowly, as no default says.
OTHER = CostModel(bytes_per_second=4e8, flops_per_second=4e9, seconds_per_op=4e-5)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache file, in a folder of the test's own."""
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
    return calibration._cache_file()


def priced() -> float:
    """Seconds of a step, as the report on a program that is recomputed says."""
    case = build('transformer', small_options('transformer'))
    with executor_mode(DEFAULT_MODE):
        report = memory_optimize(case.main, fetch_list=case.fetch, batch_size=64, recompute='max')
    assert report.recompute is not None and report.recompute.step_seconds > 0
    return report.recompute.step_seconds


def test_a_calibration_survives_its_process(cache: Path) -> None:
    script = (
        'import json, dataclasses, paddle, transpiler; '
        'from transpiler.backends import calibration; '
        'calibration._LARGE, calibration._SIDE = (256, 256), 128; '
        'model = transpiler.calibrate(); assert paddle.in_dynamic_mode(); print(json.dumps(dataclasses.asdict(model)))'
    )
    done = subprocess.run([sys.executable, '-W', 'ignore', '-c', script],
                          env=os.environ,
                          check=True,
                          capture_output=True,
                          text=True)
    measured = CostModel(**json.loads(done.stdout.splitlines()[-1]))
    assert cache.exists() and measured.bytes_per_second != CostModel().bytes_per_second
    assert calibration.cached_cost_model() == measured
    assert calibrate() == measured  # and is not measured again


def test_plans_are_priced_by_the_calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    default = priced()
    monkeypatch.setattr(calibration, '_measure', lambda: OTHER)
    assert calibrate() == OTHER
    assert 5 * default < priced() < 15 * default


def test_measuring_again_takes_the_place_of_what_was_measured(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, '_measure', lambda: OTHER)
    calibrate()
    newer = replace(OTHER, seconds_per_op=1.0)
    monkeypatch.setattr(calibration, '_measure', lambda: newer)
    assert calibrate() == OTHER
    assert calibrate(refresh=True) == newer == calibration.cached_cost_model()


def damaged(**changed: object) -> str:
    return json.dumps({**asdict(CostModel()), **changed})


@pytest.mark.parametrize('text', [
    '', '{', '[]', '3', '"x"', '[' * 60_000, '{"bytes_per_second": ' + '9' * 5000 + '}',
    damaged(bytes_per_second=0.0),
    damaged(bytes_per_second=-1.0),
    damaged(bytes_per_second=True),
    damaged(bytes_per_second=None),
    damaged(bytes_per_second='4e9'),
    damaged(bytes_per_second=float('nan')),
    damaged(bytes_per_second=float('inf')),
    damaged(bytes_per_second=10**400),
    damaged(cache_bytes=0.5),
    damaged(seconds_per_op=1e-320),
    damaged(lightness=1.0), '\0' * 70_000
])
def test_a_file_that_is_no_calibration_is_ignored_with_one_clear_warning(cache: Path,
                                                                         text: str) -> None:
    cache.parent.mkdir(parents=True)
    cache.write_text(text)
    with pytest.warns(UserWarning) as said:
        assert calibration.cached_cost_model() is None
    message, = [str(w.message) for w in said]
    assert str(cache) in message and 'refresh=True' in message and '\n' not in message
    assert len(message) < len(str(cache)) + 300


def test_a_folder_in_its_place_is_ignored_with_a_warning(cache: Path) -> None:
    cache.mkdir(parents=True)
    with pytest.warns(UserWarning, match='refresh=True'):
        assert calibration.cached_cost_model() is None


def test_bytes_that_are_no_text_are_ignored_with_a_warning(cache: Path) -> None:
    cache.parent.mkdir(parents=True)
    cache.write_bytes(b'\xff\xfe{}')
    with pytest.warns(UserWarning, match='refresh=True'):
        assert calibration.cached_cost_model() is None


def test_what_can_be_kept_nowhere_is_said_once(cache: Path,
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, '_measure', lambda: OTHER)
    cache.mkdir(parents=True)  # a folder can't be replaced by a file
    (cache / 'x').touch()
    with pytest.warns(UserWarning, match='could not be kept') as said:
        assert calibrate(refresh=True) == OTHER
    assert len(said) == 1
    assert [p for p in cache.parent.iterdir() if p != cache] == []


def test_without_a_calibration_nothing_is_said() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        assert calibration.cached_cost_model() is None
