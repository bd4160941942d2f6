"""Programs of one block."""
from __future__ import annotations

import numpy as np
import paddle
import paddle.nn.functional as F

from tests.harness import Case, new_programs
from tests.scenarios.common import (append, data, fc, floats, integers, named, random_feed,
                                    square_loss, train)


def fetched_intermediate() -> Case:
    with new_programs() as (main, startup):
        hidden = fc(data("x", -1, 8), 8, "relu")
        later = fc(fc(hidden, 8, "tanh"), 8, "sigmoid")
        loss = square_loss(fc(later, 4))
        train(loss)
    return Case(main, startup, random_feed(x=floats(6, 8)),
                [loss.name, hidden.name, hidden.name + "@GRAD"])


def chain_without_extra_fetches() -> Case:
    """The intermediates of equal size are there to be merged: only the loss is fetched."""
    with new_programs() as (main, startup):
        hidden = data("x", -1, 8)
        for _ in range(4):
            hidden = fc(hidden, 8, "tanh")
        loss = square_loss(hidden)
        train(loss)
    return Case(main, startup, random_feed(x=floats(6, 8)), [loss.name])


def inference_chain() -> Case:
    """Values of two sizes in turn, each dead after one reader: most of the names are there to be merged."""
    with new_programs() as (main, startup):
        hidden = data("x", -1, 8)
        for _ in range(4):
            hidden = fc(fc(hidden, 12, "tanh"), 8, "sigmoid")
        total = paddle.mean(hidden)
    return Case(main, startup, random_feed(x=floats(6, 8)), [total.name])


def several_losses() -> Case:
    with new_programs() as (main, startup):
        hidden = fc(data("x", -1, 8), 8, "tanh")
        first, second = square_loss(fc(hidden, 8)), paddle.mean(paddle.abs(fc(hidden, 3)))
        third = paddle.mean(paddle.exp(first + second))
        train(first + second + third)
    return Case(main, startup, random_feed(x=floats(5, 8)), [first.name, second.name, third.name])


def same_tensor_fed_again() -> Case:
    """One tensor object is fed at every step, so whoever writes into it changes the next step."""
    with new_programs() as (main, startup):
        inputs = data("x", -1, 8)
        hidden = paddle.tanh(paddle.exp(paddle.scale(inputs, 0.5)))
        loss = square_loss(fc(hidden, 8))
        train(loss)
    tensor = paddle.base.core.LoDTensor()
    tensor.set(np.random.RandomState(3).rand(6, 8).astype("float32"), paddle.CPUPlace())
    return Case(main, startup, lambda step: {"x": tensor}, [loss.name])


def name_written_twice() -> Case:
    with new_programs() as (main, startup):
        inputs = data("x", -1, 8)
        twice = named("twice", inputs)
        append("scale", {"X": [inputs]}, {"Out": [twice]}, scale=2.0)
        first = paddle.exp(twice)
        append("scale", {"X": [inputs]}, {"Out": [twice]}, scale=3.0)
        second = paddle.tanh(twice) + paddle.sqrt(first)
        total = paddle.mean(second)
    return Case(main, startup, random_feed(x=floats(6, 8)), [total.name])


def name_redefined_while_training() -> Case:
    """`assign` into an existing name, then a gradient through both definitions."""
    with new_programs() as (main, startup):
        hidden = fc(data("x", -1, 8), 8)
        kept = paddle.tanh(hidden)
        paddle.assign(kept * 2.0, output=hidden)
        loss = square_loss(fc(hidden, 8) + kept)
        train(loss)
    return Case(main, startup, random_feed(x=floats(6, 8)), [loss.name])


def rewritten_after_last_read() -> Case:
    """The second write of `dead` is never read; it must not land on a value that is still alive."""
    with new_programs() as (main, startup):
        inputs = data("x", -1, 8)
        dead = named("dead", inputs)
        append("exp", {"X": [inputs]}, {"Out": [dead]})
        alive = paddle.tanh(dead)
        other = paddle.scale(alive, 2.0)
        append("scale", {"X": [inputs]}, {"Out": [dead]}, scale=7.0)
        total = paddle.mean(alive + paddle.exp(other))
    return Case(main, startup, random_feed(x=floats(6, 8)), [total.name])


def reshape_in_place_under_two_names() -> Case:
    """`flat` and `cube` may be one buffer; `cube` is read long after the last read of `flat`."""
    with new_programs() as (main, startup):
        flat = fc(data("x", -1, 8), 8)
        cube = paddle.reshape(flat, [-1, 2, 4])
        back = named("back", flat)
        shape = named("back_xshape", flat)
        append("reshape2", {"X": [cube]}, {"Out": [back], "XShape": [shape]}, shape=[-1, 8])
        far = paddle.exp(paddle.tanh(paddle.scale(paddle.exp(back), 0.1)))
        total = paddle.mean(far) + paddle.mean(cube)
    return Case(main, startup, random_feed(x=floats(6, 8)), [total.name])


def reshape_onto_its_own_input() -> Case:
    with new_programs() as (main, startup):
        hidden = paddle.exp(data("x", -1, 8))
        shape = named("hidden_xshape", hidden)
        first = paddle.tanh(hidden)
        append("reshape2", {"X": [hidden]}, {"Out": [hidden], "XShape": [shape]}, shape=[-1, 2, 4])
        second = paddle.tanh(paddle.scale(hidden, 0.5))
        total = paddle.mean(second) + paddle.mean(paddle.exp(first))
    return Case(main, startup, random_feed(x=floats(6, 8)), [total.name])


def shared_data_under_two_names() -> Case:
    """`share_data` makes an alias that no operator fact but its name tells."""
    with new_programs() as (main, startup):
        source = paddle.exp(data("x", -1, 8))
        alias = named("alias", source)
        append("share_data", {"X": [source]}, {"Out": [alias]})
        other = paddle.tanh(paddle.scale(paddle.exp(paddle.scale(source, 0.3)), 0.2))
        third = paddle.exp(paddle.tanh(other))
        total = paddle.mean(third + other) + paddle.mean(alias)
    return Case(main, startup, random_feed(x=floats(6, 8)), [total.name])


def reader_before_in_place_writer() -> Case:
    """`copy` must see x as it was before the in-place relu, `after` as it is behind it."""
    with new_programs() as (main, startup):
        hidden = paddle.scale(data("x", -1, 8), 3.0)
        copy = paddle.tanh(hidden)
        append("relu", {"X": [hidden]}, {"Out": [hidden]})
        after = paddle.exp(paddle.scale(hidden, 0.1))
        append("scale", {"X": [hidden]}, {"Out": [hidden]}, scale=0.5)
        total = paddle.mean(copy + after + hidden)
    return Case(main, startup, random_feed(x=floats(6, 8)), [total.name])


def in_place_chain_while_training() -> Case:
    """relu's gradient reads its output only, so it may overwrite its input in training too."""
    with new_programs() as (main, startup):
        hidden = data("x", -1, 8)
        for _ in range(3):
            hidden = fc(hidden, 8)
            append("relu", {"X": [hidden]}, {"Out": [hidden]})
        loss = square_loss(hidden)
        train(loss, paddle.optimizer.Momentum(0.1, 0.9))
    return Case(main, startup, random_feed(x=floats(6, 8)), [loss.name])


def shape_only_readers() -> Case:
    """Broadcast additions and *_like operators need a shape when the data may be gone already."""
    with new_programs() as (main, startup):
        inputs = data("x", -1, 8)
        hidden = fc(inputs, 8, "tanh")
        scaled = paddle.exp(hidden)
        noise = paddle.ones_like(scaled) * 0.5
        rows = paddle.cast(paddle.shape(scaled)[0:1], "float32")
        loss = square_loss(fc(hidden, 8) + noise + paddle.mean(scaled, axis=0)) / rows
        train(paddle.mean(loss))
    return Case(main, startup, random_feed(x=floats(6, 8)), [loss.name])


def several_unknown_dims() -> Case:
    with new_programs() as (main, startup):
        inputs = data("x", -1, -1, 4)
        hidden = paddle.tanh(paddle.static.nn.fc(inputs, 4, num_flatten_dims=2))
        hidden = paddle.exp(paddle.static.nn.fc(hidden, 4, num_flatten_dims=2))
        mixed = paddle.matmul(hidden, hidden, transpose_y=True)
        loss = square_loss(F.softmax(mixed))
        train(loss)

    def feed(step: int) -> dict:
        shape = (3 + step, 5 - step % 3, 4)
        return random_feed(x=floats(*shape))(step)

    return Case(main, startup, feed, [loss.name])


def inner_unknown_dim() -> Case:
    """The batch is fixed, another dim is not: -1 is not the batch."""
    with new_programs() as (main, startup):
        inputs = data("x", 3, -1, 4)
        hidden = paddle.exp(paddle.tanh(paddle.scale(inputs, 0.5)))
        other = paddle.exp(paddle.tanh(paddle.scale(data("y", -1, 3, 4), 0.5)))
        total = paddle.mean(hidden) + paddle.mean(other)
    feed = lambda step: random_feed(x=floats(3, 7 - step, 4), y=floats(2 + step, 3, 4))(step)
    return Case(main, startup, feed, [total.name])


def batch_size_changes() -> Case:
    """[batch, 8] and [4, 8] are the same size at one batch size only."""
    with new_programs() as (main, startup):
        inputs = data("x", -1, 8)
        fixed = paddle.tanh(paddle.full([4, 8], 0.3))
        hidden = paddle.tanh(paddle.exp(inputs))
        again = paddle.exp(paddle.scale(fixed, 2.0))
        total = paddle.mean(fc(hidden, 8)) + paddle.mean(again)
        train(total)
    feed = lambda step: random_feed(x=floats((4, 9, 1, 4, 2)[step % 5], 8))(step)
    return Case(main, startup, feed, [total.name])


def concat_with_shared_embedding() -> Case:
    with new_programs() as (main, startup):
        shared = paddle.ParamAttr(name="shared_embedding")
        words = [
            paddle.static.nn.embedding(data(name, -1, 1, dtype="int64"), [20, 4], param_attr=shared)
            for name in ("first", "second", "third", "fourth")
        ]
        joined = paddle.concat([paddle.flatten(word, 1) for word in words], axis=1)
        hidden = fc(fc(joined, 16, "sigmoid"), 20)
        label = data("label", -1, 1, dtype="int64")
        loss = paddle.mean(F.softmax_with_cross_entropy(hidden, label))
        train(loss)
    inputs = {name: integers(20, 6, 1) for name in ("first", "second", "third", "fourth", "label")}
    return Case(main, startup, random_feed(**inputs), [loss.name])


def sparse_gradients() -> Case:
    """The gradient of the table is a SelectedRows, twice, and summed."""
    with new_programs() as (main, startup):
        shared = paddle.ParamAttr(name="table")
        left = paddle.static.nn.embedding(data("a", -1, dtype="int64"), [20, 4],
                                          is_sparse=True,
                                          param_attr=shared)
        right = paddle.static.nn.embedding(data("b", -1, dtype="int64"), [20, 4],
                                           is_sparse=True,
                                           param_attr=shared)
        loss = square_loss(fc(paddle.tanh(left) * right, 4))
        train(loss, paddle.optimizer.Adam(0.05, lazy_mode=True))
    return Case(main, startup, random_feed(a=integers(20, 6), b=integers(20, 6)), [loss.name])


def gradients_accumulated() -> Case:
    """One weight used three times: its gradients are written under new names and summed."""
    with new_programs() as (main, startup):
        shared = paddle.ParamAttr(name="shared_weight")
        hidden = data("x", -1, 8)
        for _ in range(3):
            hidden = paddle.static.nn.fc(hidden,
                                         8,
                                         weight_attr=shared,
                                         bias_attr=False,
                                         activation="tanh")
        side = hidden * 2.0 + paddle.exp(hidden) + hidden
        loss = square_loss(side)
        train(loss)
    return Case(main, startup, random_feed(x=floats(6, 8)), [loss.name])


def equal_bytes_of_other_dtypes() -> Case:
    """int64 and float64, float32 and int32, bool and uint8: equal sizes, different meanings."""
    with new_programs() as (main, startup):
        inputs = data("x", -1, 8)
        doubles = paddle.exp(paddle.cast(inputs, "float64"))
        indices = paddle.argsort(inputs, axis=1)
        ranks = paddle.cast(indices, "float64") + doubles
        mask = paddle.cast(inputs > 0, "float32")
        counts = paddle.cast(paddle.cast(inputs * 10, "int32") // 3, "float32")
        total = paddle.mean(paddle.cast(ranks, "float32") * mask + paddle.tanh(counts))
    return Case(main, startup, random_feed(x=floats(6, 8)), [total.name])


def unused_and_multiple_outputs() -> Case:
    with new_programs() as (main, startup):
        hidden = fc(data("x", -1, 12), 12, "tanh")
        parts = paddle.split(hidden, 3, axis=1)
        values, _ = paddle.topk(parts[1], k=2)
        paddle.exp(parts[0])
        rows = paddle.unstack(paddle.reshape(hidden, [-1, 3, 4]), axis=1)
        loss = square_loss(paddle.concat([parts[2], values, rows[0]], axis=1))
        train(loss)
    return Case(main, startup, random_feed(x=floats(6, 12)), [loss.name])


def dropout_and_batch_norm() -> Case:
    with new_programs() as (main, startup):
        hidden = fc(data("x", -1, 8), 8)
        for _ in range(2):
            hidden = paddle.static.nn.batch_norm(fc(hidden, 8), act="relu")
            hidden = F.dropout(hidden, 0.4)
        loss = square_loss(hidden)
        train(loss, paddle.optimizer.Momentum(0.1, 0.9))
    return Case(main, startup, random_feed(x=floats(6, 8)), [loss.name])


def residual_convolutions() -> Case:
    with new_programs() as (main, startup):
        image = data("image", -1, 3, 8, 8)
        hidden = paddle.static.nn.conv2d(image, 6, 3, padding=1)
        for _ in range(2):
            branch = paddle.static.nn.conv2d(hidden, 6, 3, padding=1, bias_attr=False)
            hidden = F.relu(paddle.static.nn.batch_norm(branch) + hidden)
        pooled = F.max_pool2d(hidden, 2)
        loss = square_loss(fc(pooled, 4))
        train(loss, paddle.optimizer.Momentum(0.001, 0.9))
    return Case(main, startup, random_feed(image=floats(4, 3, 8, 8)), [loss.name])


def stale_lod() -> Case:
    """Dense values after LoD ones of the same size: the LoD must not come along with the buffer."""
    with new_programs() as (main, startup):
        words = paddle.static.data("words", [-1, 8], "float32", lod_level=1)
        hidden = paddle.exp(paddle.tanh(words))
        pooled = paddle.static.nn.sequence_pool(hidden, "sum")
        dense = paddle.exp(paddle.scale(data("x", -1, 8), 0.5))
        again = paddle.tanh(paddle.scale(dense, 0.3))
        last = paddle.exp(again)
        total = paddle.mean(pooled) + paddle.mean(last)

    def feed(step: int) -> dict:
        rows = np.random.RandomState(step).rand(9, 8).astype("float32")
        lod = paddle.base.create_lod_tensor(rows, [[4, 2, 3]], paddle.CPUPlace())
        return dict(random_feed(x=floats(9, 8))(step), words=lod)

    return Case(main, startup, feed, [total.name, last.name])


def sequence_convolution() -> Case:
    """Trained: what its gradient reads hangs on an attribute, without which Paddle can't be asked."""
    with new_programs() as (main, startup):
        words = paddle.static.data("words", [-1, 8], "float32", lod_level=1)
        hidden = paddle.tanh(paddle.static.nn.sequence_conv(words, 8, 3))
        pooled = paddle.static.nn.sequence_pool(hidden, "max")
        loss = square_loss(fc(pooled, 4))
        train(loss)

    def feed(step: int) -> dict:
        rows = np.random.RandomState(step).rand(9, 8).astype("float32")
        return {"words": paddle.base.create_lod_tensor(rows, [[4, 5]], paddle.CPUPlace())}

    return Case(main, startup, feed, [loss.name])


def double_gradient() -> Case:
    """A penalty on the gradient: gradients of gradients."""
    with new_programs() as (main, startup):
        inputs = data("x", -1, 8)
        inputs.stop_gradient = False
        score = fc(fc(inputs, 8, "tanh"), 1)
        slope, = paddle.static.gradients([score], [inputs])
        loss = square_loss(score) + paddle.mean(paddle.square(slope))
        train(loss)
    return Case(main, startup, random_feed(x=floats(6, 8)), [loss.name])


def random_operators() -> Case:
    with new_programs() as (main, startup):
        inputs = data("x", -1, 8)
        noise = paddle.uniform([6, 8], min=-1.0, max=1.0)
        bumps = paddle.normal(0.0, 1.0, [6, 8])
        hidden = fc(inputs + noise, 8, "tanh") + paddle.tanh(bumps)
        loss = square_loss(hidden)
        train(loss)
    return Case(main, startup, random_feed(x=floats(6, 8)), [loss.name])


def python_function() -> Case:
    """py_func shows its inputs to code that the program knows nothing of."""
    with new_programs() as (main, startup):
        hidden = paddle.exp(fc(data("x", -1, 8), 8))
        doubled = named("doubled", hidden)
        paddle.static.py_func(lambda array: np.array(array) * 2, hidden, doubled)
        total = paddle.mean(paddle.tanh(doubled) + paddle.scale(hidden, 0.2))
    return Case(main, startup, random_feed(x=floats(6, 8)), [total.name])


def independent_towers() -> Case:
    """Towers that a parallel executor runs at once: reuse across them must keep the order true."""
    with new_programs() as (main, startup):
        inputs = data("x", -1, 16)
        towers = []
        for _ in range(4):
            hidden = inputs
            for _ in range(3):
                hidden = fc(hidden, 16, "tanh")
            towers.append(hidden)
        loss = square_loss(paddle.add_n(towers))
        train(loss, paddle.optimizer.Adam(0.01))
    return Case(main, startup, random_feed(x=floats(8, 16)), [loss.name])


def layouts_of_their_own() -> Case:
    """Kernels of oneDNN and plain ones in turn: the executor copies what they hand each other, once for each name."""
    with new_programs() as (main, startup):
        value, sums = data("x", -1, 64), []
        for kind in (paddle.tanh, F.sigmoid, paddle.tanh):
            value = kind(value)
            main.global_block().ops[-1]._set_attr("use_mkldnn", True)
            sums.append(paddle.sum(paddle.cumsum(value, axis=1)))
        total = paddle.add_n(sums)
    return Case(main, startup, random_feed(x=floats(6, 64)), [total.name])


def real_beside_complex() -> Case:
    """The executor makes complex numbers of an operand beside a complex one: it copies it, once for each name."""
    with new_programs() as (main, startup):
        value, sums = data("x", -1, 64), []
        turned = paddle.complex(value, paddle.ones_like(value))
        block = main.global_block()
        for index in range(3):
            value = paddle.tanh(paddle.scale(value, 0.9, 0.1 * index))
            product = block.create_var(name=f"product_{index}", shape=[-1, 64], dtype="complex64")
            block.append_op(type="elementwise_mul",
                            inputs={
                                "X": [turned],
                                "Y": [value]
                            },
                            outputs={"Out": [product]},
                            attrs={"axis": -1})
            sums.append(paddle.sum(paddle.real(product)))
        total = paddle.add_n(sums)
    return Case(main, startup, random_feed(x=floats(6, 64)), [total.name])
