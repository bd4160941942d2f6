"""Features of training scripts: layers, losses and metrics."""
from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Dict

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import nn, static

from benchmarks.wild.script import BATCH, Builder, Script, fetching, trained, writing

WIDTH, LENGTH, SIDE, VOCABULARY = 128, 24, 32, 2000


def builders() -> Dict[str, Builder]:
    """By name."""
    return {
        'dropouts': dropouts,
        'normalisations': normalisations,
        'weight and spectral norm': spectral,
        'unet': unet,
        'conv3d': conv3d,
        'spatial transformer': spatial_transformer,
        'lstm': lstm,
        'gru, both ways': gru,
        'simple rnn': simple_rnn,
        'attention': attention,
        'label smoothing': label_smoothing,
        'ctc': ctc,
        'several losses': several_losses,
        'sampled softmax': sampled_softmax,
        'sparse embedding': sparse_embedding,
        'sparse embedding, global norm': sparse_embedding_clipped,
        'sparse embedding, global norm, words twice': partial(sparse_embedding_clipped, True),
        'metrics': metrics,
        'activations': activations,
        'beam search': beam_search,
    }


def _image(draft: Any, channels: int = 3) -> Any:
    return draft.floats('image', [BATCH, channels, SIDE, SIDE])


def dropouts() -> Script:
    """Of channels, of values, with and without scaling in training."""
    with writing() as draft:
        hidden = F.dropout2d(nn.Conv2D(3, 16, 3, padding=1)(_image(draft)), 0.2)
        hidden = F.dropout(F.relu(nn.Conv2D(16, 16, 3, padding=1)(hidden)), 0.1)
        return trained(draft, paddle.mean(F.dropout(hidden, 0.5, mode='downscale_in_infer')**2))


def normalisations() -> Script:
    """Of batch, group, instance, layer, and local response."""
    with writing() as draft:
        hidden = nn.BatchNorm2D(16)(nn.Conv2D(3, 16, 3, padding=1)(_image(draft)))
        hidden = nn.GroupNorm(4, 16)(nn.Conv2D(16, 16, 3, padding=1)(hidden))
        hidden = nn.InstanceNorm2D(16)(nn.Conv2D(16, 16, 3, padding=1)(hidden))
        hidden = nn.LocalResponseNorm(5)(F.relu(hidden))
        hidden = nn.LayerNorm([16, SIDE, SIDE])(hidden)
        frozen = nn.BatchNorm2D(16, use_global_stats=True)(hidden)
        return trained(draft, paddle.mean(frozen * hidden))


def spectral() -> Script:
    """Weights that are computed from parameters."""
    with writing() as draft:
        weight = paddle.create_parameter([16, 3, 3, 3], 'float32')
        hidden = F.relu(F.conv2d(_image(draft), static.nn.spectral_norm(weight), padding=1))
        layer = nn.utils.weight_norm(nn.Conv2D(16, 16, 3, padding=1))
        return trained(draft, paddle.mean(layer(hidden)**2))


def unet() -> Script:
    """Down and up again, with what was before beside it."""
    with writing() as draft:
        down = F.relu(nn.Conv2D(3, 16, 3, padding=1)(_image(draft)))
        deep = F.relu(nn.Conv2D(16, 32, 3, padding=1)(F.max_pool2d(down, 2)))
        up = nn.Conv2DTranspose(32, 16, 2, stride=2)(deep)
        logits = nn.Conv2D(32, 2, 1)(paddle.concat([up, down], axis=1))
        label = draft.integers('mask', [BATCH, SIDE, SIDE], below=2)
        return trained(draft, F.cross_entropy(logits.transpose([0, 2, 3, 1]), label.unsqueeze(-1)))


def conv3d() -> Script:
    """Volumes."""
    with writing(4) as draft:
        volume = draft.floats('volume', [4, 2, 12, 12, 12])
        hidden = F.relu(nn.Conv3D(2, 8, 3, padding=1)(volume))
        hidden = F.max_pool3d(nn.Conv3D(8, 8, 3, padding=1)(hidden), 2)
        return trained(draft, paddle.mean(hidden**2))


def spatial_transformer() -> Script:
    """A sampling grid that is learnt."""
    with writing(static_batch=True) as draft:
        # Paddle's kernel crashes where what is sampled needs no gradient.
        hidden = nn.Conv2D(3, 16, 3, padding=1)(_image(draft))
        theta = static.nn.fc(F.adaptive_avg_pool2d(hidden, 4), 6).reshape([-1, 2, 3])
        hidden = F.grid_sample(hidden, F.affine_grid(theta, [BATCH, 16, SIDE, SIDE]))
        return trained(draft,
                       paddle.mean(F.interpolate(hidden, scale_factor=2, mode='bilinear')**2))


def _sequence(draft: Any) -> Any:
    return draft.floats('sequence', [BATCH, LENGTH, WIDTH])


def lstm() -> Script:
    """Two layers, with lengths."""
    with writing() as draft:
        lengths = draft.computed('lengths', (np.arange(BATCH) % LENGTH + 1).astype('int64'))
        output, _ = nn.LSTM(WIDTH, WIDTH, num_layers=2)(_sequence(draft), sequence_length=lengths)
        return trained(draft, paddle.mean(output**2))


def gru() -> Script:
    """In both directions."""
    with writing() as draft:
        output, _ = nn.GRU(WIDTH, WIDTH, direction='bidirect')(_sequence(draft))
        return trained(draft, paddle.mean(output**2))


def simple_rnn() -> Script:
    """With dropout between its layers."""
    with writing() as draft:
        output, last = nn.SimpleRNN(WIDTH, WIDTH, num_layers=2, dropout=0.1)(_sequence(draft))
        return trained(draft, paddle.mean(output**2) + paddle.mean(last))


def attention() -> Script:
    """Causal, and across two sequences."""
    with writing() as draft:
        hidden = _sequence(draft)
        causal = paddle.triu(paddle.full([LENGTH, LENGTH], -1e4), 1)
        hidden = nn.MultiHeadAttention(WIDTH, 4, dropout=0.1)(hidden, attn_mask=causal)
        other = draft.floats('memory', [BATCH, LENGTH // 2, WIDTH])
        hidden = nn.MultiHeadAttention(WIDTH, 4)(hidden, other, other)
        return trained(draft, paddle.mean(paddle.einsum('btw,bsw->bts', hidden, hidden)))


def label_smoothing() -> Script:
    """Soft labels."""
    with writing() as draft:
        hidden = static.nn.fc(draft.floats('x', [BATCH, 4 * WIDTH]), VOCABULARY)
        label = F.one_hot(draft.integers('label', [BATCH], below=VOCABULARY), VOCABULARY)
        return trained(draft, F.cross_entropy(hidden, F.label_smooth(label), soft_label=True))


def ctc() -> Script:
    """Connectionist temporal classification on top of an LSTM."""
    with writing() as draft:
        output, _ = nn.LSTM(WIDTH, WIDTH)(_sequence(draft))
        logits = nn.Linear(WIDTH, 40)(output).transpose([1, 0, 2])
        labels = paddle.cast(draft.integers('labels', [BATCH, 6], below=39) + 1, 'int32')
        lengths = draft.computed('frames', np.full([BATCH], LENGTH, 'int64'))
        said = draft.computed('words', np.full([BATCH], 6, 'int64'))
        return trained(draft, F.ctc_loss(logits, labels, lengths, said))


def several_losses() -> Script:
    """Added up, and fetched one by one."""
    with writing() as draft:
        left, right = draft.floats('left', [BATCH, WIDTH]), draft.floats('right', [BATCH, WIDTH])
        shared = nn.Linear(WIDTH, 4 * WIDTH)
        a, b = shared(left), shared(right)
        losses = [
            F.mse_loss(a, b),
            F.smooth_l1_loss(a, b),
            F.kl_div(F.log_softmax(a), F.softmax(b)),
            F.cosine_embedding_loss(a, b, paddle.ones([BATCH])),
            F.margin_ranking_loss(a, b, paddle.sign(a))
        ]
        return trained(draft, paddle.add_n(losses), None, *losses)


def sampled_softmax() -> Script:
    """A tree of classes, and noise that is told apart."""
    with writing() as draft:
        hidden = static.nn.fc(draft.floats('x', [BATCH, WIDTH]), WIDTH, activation='tanh')
        label = draft.integers('label', [BATCH, 1], below=VOCABULARY)
        tree = nn.HSigmoidLoss(WIDTH, VOCABULARY)(hidden, label)
        noise = static.nn.nce(hidden, label, VOCABULARY, num_neg_samples=5, seed=1)
        return trained(draft, paddle.mean(tree) + paddle.mean(noise))


def _bag(draft: Any, repeated: bool = True) -> Any:
    words = draft.integers('words', [BATCH, LENGTH], below=VOCABULARY, repeated=repeated)
    hidden = static.nn.embedding(words, [VOCABULARY, WIDTH], is_sparse=True)
    return paddle.mean(static.nn.fc(paddle.sum(hidden, axis=1), WIDTH)**2)


def sparse_embedding() -> Script:
    """Gradients of the rows that were looked up."""
    with writing() as draft:
        return trained(draft, _bag(draft), paddle.optimizer.Adam(0.001, lazy_mode=True))


def sparse_embedding_clipped(repeated: bool = False) -> Script:
    """The same, clipped: gradients of rows that were looked up more than once are added first, so that values decide how many there are."""
    clip = nn.ClipGradByGlobalNorm(1.0)
    with writing() as draft:
        script = trained(draft, _bag(draft, repeated), paddle.optimizer.SGD(0.01, grad_clip=clip))
        return replace(script, foreseeable=not repeated)


def metrics() -> Script:
    """Accuracy and area under the curve, which keeps states."""
    with writing(256) as draft:
        hidden = static.nn.fc(draft.floats('x', [256, WIDTH]), WIDTH, activation='relu')
        scores = F.softmax(static.nn.fc(hidden, 2))
        label = draft.integers('label', [256, 1], below=2)
        accuracy, area = static.accuracy(scores, label), static.auc(scores, label)[0]
        return trained(draft, F.cross_entropy(scores, label, use_softmax=False), None, accuracy,
                       area)


def activations() -> Script:
    """One of each."""
    with writing() as draft:
        hidden = draft.floats('x', [BATCH, 1024])
        hidden = static.nn.fc(hidden, 1024)
        for function in (F.gelu, F.silu, F.mish, F.hardswish, F.elu, F.softplus, F.tanhshrink,
                         F.leaky_relu, F.relu6, F.softsign, F.log_sigmoid):
            hidden = function(hidden)
        hidden = static.nn.prelu(hidden, 'all')
        return trained(draft, paddle.mean(F.maxout(hidden.reshape([BATCH, 16, 8, 8]), 2)))


def beam_search() -> Script:
    """Decoding step by step, unrolled; the beams are read back at the end."""
    beams = 4
    with writing() as draft:
        state = static.nn.fc(draft.floats('x', [BATCH, WIDTH]), WIDTH)
        state = paddle.tile(state.unsqueeze(1), [1, beams, 1])
        cell, head = nn.Linear(2 * WIDTH, WIDTH), nn.Linear(WIDTH, VOCABULARY)
        table = nn.Embedding(VOCABULARY, WIDTH)
        words = paddle.zeros([BATCH, beams], 'int64')
        scores, chosen, parents = paddle.zeros([BATCH, beams]), [], []
        for _ in range(6):
            state = paddle.tanh(cell(paddle.concat([state, table(words)], axis=-1)))
            found = scores.unsqueeze(-1) + F.log_softmax(head(state))
            scores, flat = paddle.topk(found.reshape([BATCH, -1]), beams)
            words, parent = flat % VOCABULARY, flat // VOCABULARY
            state = paddle.take_along_axis(state, parent.unsqueeze(-1), axis=1)
            chosen.append(words)
            parents.append(parent)
        best = F.gather_tree(paddle.stack(chosen), paddle.stack(parents))
        return fetching(draft, best, scores, training=False)
