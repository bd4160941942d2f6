"""What the optimizer itself takes of the process that it runs in: imports, and planning."""

import gc
import json
import subprocess
import sys
from pathlib import Path

from benchmarks.apart import apart
from benchmarks.measure import process_bytes
from benchmarks.programs import Options, build
from transpiler import memory_optimize
from transpiler.backends.paddle2.live_program import message_of
from transpiler.heap import give_back

MB = 2**20
_TRIES = 5
# Libraries that take tens of megabytes each, or half a second: loaded where they are needed, not before.
HEAVY = {'matplotlib', 'networkx', 'numba', 'ortools', 'pandas', 'plotly', 'rich', 'scipy'}

IMPORTING = '''
import json, sys, time

def resident():
    with open('/proc/self/statm') as file:
        return int(file.read().split()[1]) * 4096

started = time.process_time()
import paddle
had, before, loaded = set(sys.modules), resident(), time.process_time()
sys.pycache_prefix, sys.dont_write_bytecode = sys.argv[1], False
import transpiler
transpiler.memory_optimize
print(json.dumps({
    'modules': sorted({name.partition('.')[0] for name in set(sys.modules) - had}),
    'bytes': resident() - before,
    'paddle_seconds': loaded - started,
    'seconds': time.process_time() - loaded}))
'''


def _imported(compiled):
    done = subprocess.run(
        [sys.executable, '-c', IMPORTING, str(compiled)],
        check=True,
        capture_output=True,
        text=True,
        timeout=200)
    return json.loads(done.stdout.splitlines()[-1])


def test_importing_costs_little_beside_paddle_and_loads_no_heavy_library(tmp_path):
    _imported(tmp_path)  # compiles, as installing does
    times = []
    while not _little(times) and len(times) < _TRIES:
        took = _imported(tmp_path)
        assert 'transpiler' in took['modules']  # it was not there before
        assert not HEAVY.intersection(took['modules'])
        assert took['bytes'] < 25 * MB
        times.append((took['seconds'], took['paddle_seconds']))
    assert _little(times), times


def _little(times):
    """0.3 s where Paddle takes 1.2, of CPU time: both grow with the load of the machine, so of each the least of some counts."""
    return bool(times) and min(
        ours for ours, _ in times) < 0.3 / 1.2 * min(paddle for _, paddle in times)


def _planned():
    """DenseNet-121, 1,283 ops: what reading it has left, what planning left, and the most of both, in bytes of the process without
    the pages of files. Of those, which are code, the kernel maps 15 or 27 MB, as they lie in its cache."""
    case = build('densenet121', Options())
    gc.collect()
    give_back()
    Path('/proc/self/clear_refs').write_text('5')  # the highest is the present one
    before, anonymous = process_bytes('VmRSS'), process_bytes('RssAnon')
    files = process_bytes('RssFile')
    ops = len(message_of(case.main).blocks[0].ops)
    give_back()
    read = process_bytes('RssAnon') - anonymous
    report = memory_optimize(case.main, fetch_list=list(case.fetch), batch_size=case.batch_size)
    assert report.changed and ops == 1283
    mapped = process_bytes('RssFile') - files
    return read, process_bytes('RssAnon') - anonymous, process_bytes('VmHWM') - before - mapped


def test_planning_takes_little_and_gives_most_of_it_back():
    read, left, highest = apart(_planned)
    # Paddle keeps what it writes of a program in bytes, twice as large as the program: 27 MB, if it is let.
    assert read < 5 * MB
    # 116 MB each before, of which 25 were the pages of OR-Tools' code.
    assert left < 40 * MB
    assert highest < 65 * MB
