"""What has been freed goes back to the operating system: measured in fresh processes, with glibc's heap as it is and as we set it."""

import ctypes
import gc
import os
import shutil
import subprocess
import sys
import threading
from statistics import median

import numpy as np
import paddle
import pytest

from benchmarks.apart import apart
from benchmarks.programs import Options, build
from transpiler import memory_optimize, thread_caches
from transpiler.backends.paddle2.guard import keep
from transpiler.errors import InvalidArgumentError
from transpiler.heap import (CACHES, SETTINGS, SMALL_SETTINGS, Kept, Keeper, glibc_malloc,
                             mkl_free_buffers, set_by_the_user)

MB = 2**20
# Programs whose tensors are large beside what the executor keeps of their ops, and steps enough for holes to add up.
_OF_LARGE_TENSORS = 'tanh_chain'
CASES = {
    _OF_LARGE_TENSORS: (Options(), 6),
    'gru_loop': (Options(), 4),
    'resnet18': (Options(batch_size=16, image_size=64, classes=10), 5),
    'transformer': (Options(layers=2, width=512), 4)
}
_PROCESSES = 3


def _status(key):
    with open('/proc/self/status') as file:
        return next(int(line.split()[1]) for line in file if line.startswith(key + ':')) * 1024


def _trained(name, heap):
    """Growth of the process since startup, and the bytes of the losses. `heap` None: untouched."""
    options, steps = CASES[name]
    case = build(name, options)
    if heap is not None:
        hints = {} if case.trip_count is None else {'trip_count': case.trip_count}
        memory_optimize(case.main,
                        fetch_list=list(case.fetch),
                        batch_size=case.batch_size,
                        heap=heap,
                        **hints)
    paddle.seed(1)
    executor = paddle.static.Executor(paddle.CPUPlace())
    executor.run(case.startup)
    started = _status('VmRSS')
    losses = [
        np.asarray(executor.run(case.main, feed=case.feed(step),
                                fetch_list=list(case.fetch))[0]).tobytes() for step in range(steps)
    ]
    return _status('VmHWM') - started, losses


@pytest.mark.parametrize('name', sorted({*CASES} - {_OF_LARGE_TENSORS}))
def test_the_process_grows_less_and_computes_the_same_bytes(name):
    grown = {None: [], False: [], True: []}
    expected = set()
    # Which thread takes up a run changes, and now and then a process grows by more: then the middle one of several counts.
    while not _less(grown) and len(grown[True]) < _PROCESSES:
        for heap, found in grown.items():
            growth, losses = apart(_trained, name, heap)
            found.append(growth)
            expected.add(tuple(losses))
    assert len(expected) == 1 and len(expected.pop()) == CASES[name][1]
    assert _less(grown), grown


def test_a_small_heap_grows_by_little_more_than_the_tensors_in_later_runs_too():
    """Tensors of 4 MiB: what later runs leave between them in a heap is several times as much."""
    (_, expected), (growth,
                    losses) = (apart(_trained, _OF_LARGE_TENSORS, heap) for heap in (None, 'small'))
    assert losses == expected and len(losses) == CASES[_OF_LARGE_TENSORS][1]
    case = build(_OF_LARGE_TENSORS, CASES[_OF_LARGE_TENSORS][0])
    report = memory_optimize(case.main, fetch_list=list(case.fetch), batch_size=case.batch_size)
    assert growth < report.needed_bytes * 1.3 + 50 * MB


def _less(grown):
    return bool(grown[True]) and median(grown[True]) < min(median(grown[False]), median(
        grown[None]))


class _Recorded:
    """In the place of Malloc: what is asked for."""

    def __init__(self):
        self.asked = []

    def set(self, settings):
        self.asked.append(settings['M_MMAP_THRESHOLD'])

    def trim(self):
        self.asked.append('trim')

    def turn_caches(self, on):
        self.caches_on = on


def test_the_heap_is_trimmed_behind_the_first_run_and_when_it_has_grown_by_more_than_a_run_needs():
    malloc = _Recorded()
    keeper = Keeper(malloc, Kept(0))
    keeper.before_run()
    first = malloc.asked[:]
    keeper.before_run()
    assert first[0] < SETTINGS['M_MMAP_THRESHOLD']  # tensors of the first run come from the system
    assert malloc.asked == [*first, SETTINGS['M_MMAP_THRESHOLD'], 'trim']
    for _ in range(100):  # at once: giving back would take more than its share of the time
        keeper.before_run()
    assert malloc.asked[3:] == ['trim']
    keeper._next_look = 0.0
    keeper.before_run()  # the process has not grown
    assert malloc.asked[4:] == [SETTINGS['M_MMAP_THRESHOLD']]
    grown = np.ones(40 * MB, np.uint8)
    keeper._next_look = 0.0
    keeper.before_run()
    assert malloc.asked[5:] == [SETTINGS['M_MMAP_THRESHOLD'], 'trim'] and grown.all()
    again = keeper.fresh()
    again.before_run()
    assert malloc.asked[7:] == first


def test_a_small_heap_stays_as_in_the_first_run():
    malloc = _Recorded()
    keeper = Keeper(malloc, Kept(0, small=True))
    keeper.before_run()
    first = malloc.asked[:]
    keeper.before_run()
    assert malloc.asked[2:] == first
    assert first[0] == SMALL_SETTINGS['M_MMAP_THRESHOLD'] < SETTINGS['M_MMAP_THRESHOLD']


def _chain(rows=4):
    paddle.enable_static()
    main, startup = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, startup), paddle.utils.unique_name.guard():
        x = paddle.static.data('x', [None, 64])
        out = paddle.mean(
            paddle.nn.functional.relu(paddle.static.nn.fc(paddle.static.nn.fc(x, 64), 64)))
        paddle.optimizer.SGD(0.1).minimize(out)
    return main, startup, out, {'x': np.ones([rows, 64], 'float32')}


def test_executors_ask_once_ahead_of_each_run_also_of_clones_and_of_programs_left_alone():
    main, startup, out, feed = _chain()
    report = memory_optimize(main, fetch_list=[out], recompute=False)
    again = memory_optimize(main, fetch_list=[out])
    assert not again.changed and again.heap.between_runs
    malloc = _Recorded()
    keep(main, Keeper(malloc, Kept(0)))
    executor = paddle.static.Executor(paddle.CPUPlace())
    executor.run(startup)
    executor.run(main, feed=feed, fetch_list=[out])
    assert len(malloc.asked) == 2
    executor.run(main, feed=feed, fetch_list=[out])
    assert malloc.asked[2:] == [SETTINGS['M_MMAP_THRESHOLD'], 'trim']
    executor.run(main.clone(), feed=feed, fetch_list=[out.name])
    assert malloc.asked[4:] == malloc.asked[:2]
    assert report.heap.between_runs


def _copies_in_cycles(runs, collects):
    """Programs that are there after so many runs of an optimized one, and that only a collection of cycles frees. Python collects
    none by itself meanwhile, as little as if few objects were made."""
    main, startup, out, feed = _chain()
    memory_optimize(main, fetch_list=[out])
    executor = paddle.static.Executor(paddle.CPUPlace())
    executor.run(startup)
    gc.collect()
    gc.set_threshold(2**30)
    if not collects:
        gc.disable()
    for _ in range(runs):
        executor.run(main, feed=feed, fetch_list=[out])
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    return sum(isinstance(each, paddle.static.Program) for each in gc.garbage)


def test_copies_of_the_program_that_an_executor_makes_are_gone_before_it_first_runs():
    assert apart(_copies_in_cycles, 1, True) == 0 < apart(_copies_in_cycles, 1, False)
    assert apart(_copies_in_cycles, 2, False) == apart(_copies_in_cycles, 1, False)


def _ops_of_programs():
    return [
        sum(len(block.ops)
            for block in each.blocks)
        for each in gc.get_objects()
        if isinstance(each, paddle.static.Program)
    ]


def _fetched_in_turns(optimized):
    """What steps give that fetch now this, now that, in two executors; and how many ops the programs have that are there then and
    were not before: of what executors keep."""
    main, startup, out, feed = _chain()
    weight = main.all_parameters()[0].name
    if optimized:
        memory_optimize(main, fetch_list=[out, weight])
    executors = [paddle.static.Executor(paddle.CPUPlace()) for _ in range(2)]
    paddle.seed(1)
    executors[0].run(startup)
    gc.collect()
    before, ops = _ops_of_programs(), len(main.global_block().ops)
    found = []
    for step, fetched in enumerate([[out], [out], [weight, out], [out], [weight, out]]):
        for executor in executors:
            values = executor.run(main, feed=feed, fetch_list=fetched)
            found.append([np.asarray(value).tobytes() for value in values])
    gc.collect()
    assert len(main.global_block().ops) == ops > 0
    return found, sorted(filter(None,
                                _ops_of_programs()))[:4], len(_ops_of_programs()) - len(before)


def test_an_executor_keeps_no_more_of_a_program_than_what_is_fed_and_runs_it_to_the_same_bytes():
    (plain, _, made), (ours, kept,
                       ours_made) = (apart(_fetched_in_turns, each) for each in (False, True))
    assert plain == ours and len({values[-1] for values in plain}) == len(plain)
    assert made == ours_made == 4  # for two lists of fetches in two executors
    assert kept == [1] * 4  # one input


def test_a_program_that_feeds_and_fetches_is_whole_whoever_asks_what_executors_ask(tmp_path):
    """As one that was loaded does."""
    main, startup, out, feed = _chain()
    executor = paddle.static.Executor(paddle.CPUPlace())
    executor.run(startup)
    path, x = str(tmp_path / 'net'), main.global_block().var('x')
    paddle.static.save_inference_model(path, [x], [out], executor, program=main)
    loaded, _, fetched = paddle.static.load_inference_model(path, executor)
    before = np.asarray(executor.run(loaded, feed=feed, fetch_list=fetched)[0]).tobytes()
    memory_optimize(loaded, fetch_list=fetched, runtime='executor')
    ops = len(loaded.global_block().ops)
    loaded._pass_opt
    assert len(loaded.global_block().ops) == ops > 2
    for _ in range(2):
        values = executor.run(loaded, feed=feed, fetch_list=[v.name for v in fetched])
        assert np.asarray(values[0]).tobytes() == before
    assert len(loaded.global_block().ops) == ops


def test_gradients_can_be_added_to_a_program_that_was_left_alone():
    paddle.enable_static()
    main, startup = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, startup):
        x = paddle.static.data('x', [4, 8])
        loss = paddle.mean(paddle.static.nn.fc(x, 8))
        report = memory_optimize(main, fetch_list=[v.name for v in main.list_vars()])
        assert not report.changed and report.heap.between_runs
        paddle.optimizer.SGD(0.1).minimize(loss)
    executor = paddle.static.Executor(paddle.CPUPlace())
    executor.run(startup)
    first, second = (float(
        executor.run(main, feed={'x': np.ones([4, 8], 'float32')}, fetch_list=[loss])[0])
                     for _ in range(2))
    assert second < first


def test_the_report_says_what_was_set_or_why_nothing_was():
    main, _, out, _ = _chain()
    kept = memory_optimize(main, fetch_list=[out])
    assert kept.to_dict()['heap'] == {
        'settings': {
            **SETTINGS, CACHES: 0
        },
        'why_not': '',
        'between_runs': True
    }
    for shown in (str(kept), kept.to_html()):
        assert all(name in shown for name in (*SETTINGS, CACHES)) and 'heap=False' in shown
    main, _, out, _ = _chain()
    small = memory_optimize(main, fetch_list=[out], heap='small')
    assert small.heap.settings == {**SMALL_SETTINGS, CACHES: 0} and small.heap.between_runs
    main, _, out, _ = _chain()
    declined = memory_optimize(main, fetch_list=[out], heap=False)
    assert not hasattr(main, '_heap_keeper')
    assert declined.heap.settings == {} and 'left as it is (heap=False)' in ' '.join(
        str(declined).split())
    with pytest.raises(InvalidArgumentError, match="heap is True, False or 'small', not 1"):
        memory_optimize(_chain()[0], heap=1)


class _InUse(ctypes.Structure):
    """mallinfo2 of malloc.h."""
    _fields_ = [(name, ctypes.c_size_t)
                for name in ('arena', 'chunks', 'fast_chunks', 'maps', 'mapped', 'unused', 'fast',
                             'used', 'free', 'top')]


def _held_by_threads():
    """Bytes in use before a thread that has ended asked MKL for a product, behind that, and when MKL's buffers are freed."""
    malloc = ctypes.CDLL(None)
    malloc.mallinfo2.restype = _InUse
    operand = paddle.ones([512, 512])
    paddle.matmul(operand, operand)
    free, figures = mkl_free_buffers(), []
    free()
    for action in (lambda: None, _product_in_a_thread, free):
        action()
        figures.append(malloc.mallinfo2().used + malloc.mallinfo2().mapped)
    return figures


def _product_in_a_thread():
    operand = paddle.ones([512, 512])
    thread = threading.Thread(target=paddle.matmul, args=(operand, operand))
    thread.start()
    thread.join()


def test_what_mkl_keeps_for_each_thread_is_freed():
    before, held, left = apart(_held_by_threads)
    assert held > before + MB // 4  # or there is nothing to free
    assert left < before + MB // 8


@pytest.mark.parametrize('name, value', [('MALLOC_ARENA_MAX', '4'),
                                         ('MALLOC_MMAP_THRESHOLD_', '65536'),
                                         ('GLIBC_TUNABLES', 'glibc.malloc.arena_max=1')])
def test_settings_of_the_user_are_left(name, value, monkeypatch):
    assert set_by_the_user({name: value}) == [name]
    monkeypatch.setenv(name, value)
    main, _, out, _ = _chain()
    report = memory_optimize(main, fetch_list=[out])
    assert report.heap.settings == {} and name in report.heap.why_not and report.changed
    assert set_by_the_user({'GLIBC_TUNABLES': 'glibc.cpu.x86_shstk=off'}) == []


_NO_CACHES = 'glibc.malloc.tcache_count=0'


def test_tunables_of_the_threads_caches_leave_the_heap_to_us(monkeypatch):
    assert set_by_the_user({'GLIBC_TUNABLES': f'glibc.cpu.x86_shstk=off:{_NO_CACHES}'}) == []
    assert set_by_the_user({'GLIBC_TUNABLES': f'{_NO_CACHES}:glibc.malloc.trim_threshold=1'
                           }) == ['GLIBC_TUNABLES']
    monkeypatch.setenv('GLIBC_TUNABLES', _NO_CACHES)
    main, _, out, _ = _chain()
    assert memory_optimize(main, fetch_list=[out]).heap.settings == dict(SETTINGS)


_ALIGNED = '''
import ctypes
from transpiler.heap import SETTINGS, glibc_malloc

class InUse(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in (
        'arena', 'chunks', 'fast_chunks', 'maps', 'mapped', 'unused', 'fast', 'used', 'free', 'top')]

heap = glibc_malloc()
if TURNED_OFF:
    assert heap.find_caches()
    heap.turn_caches(False)
heap.set(SETTINGS)
malloc = ctypes.CDLL(None)
malloc.mallinfo2.restype = InUse
before = malloc.mallinfo2().chunks
for turn in range(4):  # 40 tensors at once, freed before those of the next turn
    held = [ctypes.c_void_p() for _ in range(40)]
    for each in held:
        assert malloc.posix_memalign(ctypes.byref(each), 4096, SIZE) == 0
    for each in held:
        malloc.free(each)
print(malloc.mallinfo2().chunks - before)
'''


def _said(program, tunables):
    """By a process of its own."""
    done = subprocess.run([sys.executable, '-c', program],
                          env={
                              **os.environ, 'GLIBC_TUNABLES': tunables
                          },
                          check=True,
                          capture_output=True,
                          text=True)
    return done.stdout


def _free_chunks(tunables, turned_off=False):
    """Into how many pieces what is free falls once every aligned tensor of a megabyte has been freed."""
    program = _ALIGNED.replace('SIZE', str(2**20 + 48)).replace('TURNED_OFF', str(turned_off))
    return int(_said(program, tunables))


def test_slivers_in_the_caches_of_threads_are_what_keeps_holes_apart():
    kept = _free_chunks('glibc.malloc.tcache_count=7')
    assert kept > _free_chunks(_NO_CACHES) + 5
    assert kept > _free_chunks('', turned_off=True) + 5


_OF_A_THREAD = '''
import ctypes, threading
from transpiler.heap import Kept, keeper_for

class InUse(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in (
        'arena', 'chunks', 'fast_chunks', 'maps', 'mapped', 'unused', 'fast', 'used', 'free', 'top')]

malloc = ctypes.CDLL(None)
malloc.mallinfo2.restype = InUse
malloc.malloc.restype = ctypes.c_void_p
kept = []

def used(size):
    """What counts as in use of five chunks that this thread has freed; `size` is that of no other in its cache."""
    before = malloc.mallinfo2().used
    made = [malloc.malloc(size) for _ in range(5)]
    for each in made:
        malloc.free(ctypes.c_void_p(each))
    kept.append(malloc.mallinfo2().used - before)

def both():
    """Before the heap is set, in a thread that stays, and behind that."""
    used(1000)
    print(keeper_for(Kept(1), lambda: True).settings.get('tcache_count'))
    used(900)
    found = keeper_for(Kept(1), lambda: False)  # of a program that runs without a collector
    print(found.settings.get('tcache_count'))
    used(800)
    collects = [True, False, True]
    changing = keeper_for(Kept(1), lambda: collects[0])
    for size in (700, 600, 500):
        changing.before_run()
        used(size)
        collects.pop(0)
        found.before_run()
        used(size - 50)

thread = threading.Thread(target=both)
thread.start()
thread.join()
print(*(int(made >= 5 * size) for made, size in zip(kept, (1000, 900, 800, 700, 650, 600, 550, 500, 450))))
'''


@pytest.mark.parametrize('tunables, said',
                         [('', '0 None 1 0 1 0 1 1 1 0 1'),
                          ('glibc.malloc.tcache_count=6', 'None None' + 9 * ' 1'),
                          ('glibc.malloc.tcache_max=1024', 'None None' + 9 * ' 1')])
def test_caches_of_threads_are_off_while_a_collector_works_unless_the_user_has_set_them(
        tunables, said):
    assert _said(_OF_A_THREAD, tunables).split() == said.split()


def _chunks_in_caches(collects):
    """Whether what a thread frees goes to its cache, as malloc has it behind a run of each of two programs, one optimized with a collector."""
    found = []
    for flag in (0.0, 0.0 if collects else -1.0):
        paddle.set_flags({'FLAGS_eager_delete_tensor_gb': flag})
        main, startup, out, feed = _chain()
        report = memory_optimize(main, fetch_list=[out])
        executor = paddle.static.Executor(paddle.CPUPlace())
        executor.run(startup)
        executor.run(main, feed=feed, fetch_list=[out])
        malloc = glibc_malloc()
        assert malloc.find_caches()
        classes = ctypes.c_size_t.from_address(malloc._caches).value
        found.append((classes, report.heap.settings.get(CACHES)))
    return found


def test_without_a_collector_threads_keep_their_caches():
    """Or another thread takes what Paddle reads once more of a result that grows: 'No allocator found for the place' in 1 of 46 runs."""
    assert apart(_chunks_in_caches, True) == [(0, 0), (0, 0)]
    assert apart(_chunks_in_caches, False) == [(0, 0), (64, None)]


_MARKED = '''
import ctypes
from transpiler.heap import glibc_malloc

malloc = ctypes.CDLL(None)
malloc.malloc.restype = ctypes.c_void_p
freed = [malloc.malloc(1000) for _ in range(4)]
for each in freed:
    malloc.free(ctypes.c_void_p(each))
mark = ctypes.c_size_t.from_address(freed[-1] + 8).value  # of what lies in a cache
heap = glibc_malloc()
assert heap.find_caches()
for on in (False, True, False):
    heap.turn_caches(on)
    for _ in range(20):
        made = malloc.malloc(1000)
        ctypes.c_size_t.from_address(made + 8).value = mark
        malloc.free(ctypes.c_void_p(made))
print('through', mark != 0)
'''


def test_what_was_cached_before_the_caches_were_turned_off_ends_no_process():
    """What is in memory when it is allocated may be anything, a mark of the caches, too."""
    assert _said(_MARKED, '').split() == ['through', 'True']


def test_what_is_not_known_of_malloc_is_left_as_it_is():
    """Its parameters are taken for what they are only with all that stands around them."""
    words = [*range(100, 110), 0x3a5c6d1, 5, 0x1b4e2f0, 8, 1, *range(8), 64, 1032, 7, 0, *range(30)]
    assert _found(words) == [words.index(64)]
    for wrong in (10, 12, 14, words.index(64), words.index(1032), words.index(1032) + 1,
                  words.index(1032) + 2):
        assert not _found([*words[:wrong], 77, *words[wrong + 1:]])
    assert not _found([*words[:15], *range(30), *words[15:]])  # too far away


def _found(words):
    """Which of the words is taken for the number of classes of the caches."""
    area = (ctypes.c_size_t * len(words))(*words)
    start, size = ctypes.addressof(area), ctypes.sizeof(ctypes.c_size_t)
    return [(at - start) // size for at in thread_caches._classes(start, len(words))]


_OTHER = '''
#include <stddef.h>
extern void *__libc_malloc(size_t);
void *malloc(size_t size) { return __libc_malloc(size); }
'''


@pytest.mark.skipif(shutil.which('cc') is None, reason='another malloc has to be compiled')
def test_another_malloc_is_left_alone(tmp_path):
    (tmp_path / 'other.c').write_text(_OTHER)
    library = tmp_path / 'other.so'
    subprocess.run(
        ['cc', '-shared', '-fPIC', '-o',
         str(library), str(tmp_path / 'other.c')], check=True)
    asked = 'from transpiler.heap import Kept, keeper_for; print(keeper_for(Kept(1), lambda: True))'
    for preloaded, found in ((str(library), 'malloc is not that of glibc'), ('', 'Keeper')):
        done = subprocess.run([sys.executable, '-c', asked],
                              env={
                                  **os.environ, 'LD_PRELOAD': preloaded
                              },
                              check=True,
                              capture_output=True,
                              text=True)
        assert found in done.stdout
