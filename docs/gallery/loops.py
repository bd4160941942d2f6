"""A trained `while` loop: copies that grow with the square of its length, and what is kept for each trip."""
import numpy as np
import paddle
from transpiler import memory_optimize


def train(recompute):
    """The report for a recurrent net that reads 32 steps, and what three steps of training give."""
    main, startup = paddle.static.Program(), paddle.static.Program()
    main.random_seed = startup.random_seed = 1
    with paddle.static.program_guard(main, startup), paddle.utils.unique_name.guard():
        words = paddle.static.data('words', [32, 16, 64])
        gates, weights = (paddle.create_parameter([64, 64], 'float32') for _ in range(2))
        count, end = paddle.zeros([1], 'int64'), paddle.full([1], 32, 'int64')

        def body(at, state):
            word = paddle.gather(words, at).squeeze(0)
            gate = paddle.nn.functional.sigmoid(paddle.matmul(state, gates) + word)
            return at + 1, gate * state + (
                1 - gate) * paddle.tanh(paddle.matmul(state, weights) + word)

        start = paddle.zeros([16, 64])
        start.stop_gradient = False  # or Paddle makes no gradient of the loop
        _, state = paddle.static.nn.while_loop(lambda at, state: at < end, body, [count, start])
        loss = paddle.mean(state * state)
        paddle.optimizer.SGD(0.1).minimize(loss)
    report = None
    if recompute is not None:
        report = memory_optimize(main, fetch_list=[loss], trip_count=32, recompute=recompute)
    feed = {'words': np.random.RandomState(0).rand(32, 16, 64).astype('float32')}
    executor = paddle.static.Executor(paddle.CPUPlace())
    with paddle.static.scope_guard(paddle.static.Scope()):
        executor.run(startup)
        losses = [executor.run(main, feed=feed, fetch_list=[loss])[0].tobytes() for _ in range(3)]
    return report, losses


paddle.enable_static()
_, expected = train(None)
for recompute in (False, 'auto', 'max'):
    report, losses = train(recompute)
    print(
        f'recompute={recompute!r}: {report.peak_bytes_before / 2**20:.2f} -> {report.peak_bytes_after / 2**20:.2f} MiB, '
        f'losses of three steps equal to the last bit: {losses == expected}')
    for loop in report.loops:
        print(
            f'  {loop.block} keeps {loop.bytes_per_trip_before} -> {loop.bytes_per_trip_after} bytes a trip'
        )
