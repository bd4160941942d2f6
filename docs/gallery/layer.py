"""A layer in dynamic mode: `paddle.jit.to_static`, and one line."""
import paddle
from transpiler import memory_optimize


class Network(paddle.nn.Layer):

    def __init__(self):
        super().__init__()
        self.blocks = paddle.nn.LayerList([
            paddle.nn.Sequential(paddle.nn.LayerNorm(128), paddle.nn.Linear(128, 512),
                                 paddle.nn.GELU(), paddle.nn.Linear(512, 128)) for _ in range(4)
        ])

    def forward(self, x):
        for block in self.blocks:
            x = x + block(x)
        return x.mean()


network = paddle.jit.to_static(Network())
report = memory_optimize(network)  # plans each program that Paddle makes of it, when it makes it
optimizer = paddle.optimizer.SGD(0.1, parameters=network.parameters())
for step in range(2):
    loss = network(paddle.ones([256, 128]))
    loss.backward()
    optimizer.step()
    optimizer.clear_grad()

made, = report.programs
print(f'kept for backward: {made.kept_before / 2**20:.1f} -> {made.kept_after / 2**20:.1f} MiB')
print(
    f'peak: {made.report.peak_bytes_before / 2**20:.1f} -> {made.report.peak_bytes_after / 2**20:.1f} MiB'
)
for name, (kept, left) in sorted(made.kept_by_layer.items(), key=lambda row: -row[1][0])[:2]:
    print(f'  {name or "the network itself"}: {kept / 2**20:.2f} -> {left / 2**20:.2f} MiB')
