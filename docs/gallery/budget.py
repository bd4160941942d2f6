"""A budget: the cheapest plan that fits, or an error that says how low one can get."""
import paddle
from transpiler import MemoryBudgetError, memory_optimize


def network():
    main = paddle.static.Program()
    with paddle.static.program_guard(main,
                                     paddle.static.Program()), paddle.utils.unique_name.guard():
        hidden = paddle.static.data('x', [None, 256])
        for _ in range(6):
            hidden = paddle.static.nn.fc(
                paddle.nn.functional.gelu(paddle.static.nn.fc(hidden, 1024)), 256)
        loss = paddle.mean(hidden)
        paddle.optimizer.SGD(0.1).minimize(loss)
    return main, loss


paddle.enable_static()
for budget in (None, '28MiB', '22MiB', '5MiB'):
    main, loss = network()
    try:
        report = memory_optimize(main,
                                 fetch_list=[loss],
                                 batch_size=256,
                                 budget=budget,
                                 recompute='max' if budget else False)
    except MemoryBudgetError as error:
        print(
            f'budget {budget}: refused; the lowest plan takes {error.best_bytes / 2**20:.1f} MiB above the parameters'
        )
        continue
    needed = (report.resting_bytes + report.sure_bytes) / 2**20
    again = report.recompute
    print(f'budget {budget}: at most {needed:.1f} MiB, parameters included; '
          f'{again.clones if again else 0} operators run again')
