"""A static program: one line before `run`, measured before it is believed."""
import numpy as np
import paddle
from transpiler import memory_optimize

paddle.enable_static()
x = paddle.static.data('x', [None, 512])
hidden = x
for _ in range(6):
    hidden = paddle.static.nn.fc(hidden, 512, activation='relu')
loss = paddle.mean(hidden)
paddle.optimizer.Momentum(0.1).minimize(loss)

batch = {'x': np.random.RandomState(0).rand(64, 512).astype('float32')}
report = memory_optimize(paddle.static.default_main_program(),
                         fetch_list=[loss],
                         batch_size=64,
                         verify_runs=2,
                         verify_feed=batch)  # both programs, each in a process of its own

before, after = report.measured.untouched, report.measured.optimized
print(
    f'predicted {report.peak_bytes_before / 2**20:.1f} -> {report.needed_bytes / 2**20:.1f} MiB above the parameters'
)
print(
    f'measured  {before.first_peak_bytes / 2**20:.1f} -> {after.first_peak_bytes / 2**20:.1f} MiB in the first run'
)
print('results and parameters equal to the last bit:', report.measured.equal)
