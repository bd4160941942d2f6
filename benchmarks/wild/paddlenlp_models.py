"""Pre-training of PaddleNLP's own BERT, ERNIE and GPT, small."""
from __future__ import annotations

from typing import Any, Dict

import paddle
from paddlenlp import transformers

from benchmarks.wild import language
from benchmarks.wild.script import Builder, Script, trained, writing

SIZES = {
    'vocab_size': language.VOCABULARY,
    'hidden_size': language.WIDTH,
    'num_hidden_layers': language.LAYERS,
    'num_attention_heads': language.HEADS,
    'intermediate_size': 4 * language.WIDTH,
    'max_position_embeddings': language.LENGTH
}


def builders() -> Dict[str, Builder]:
    """By name."""
    return {'paddlenlp bert': bert, 'paddlenlp ernie': ernie, 'paddlenlp gpt': gpt}


def bert() -> Script:
    """BertForPretraining."""
    return _two_heads('Bert')


def ernie() -> Script:
    """ErnieForPretraining."""
    return _two_heads('Ernie')


def _two_heads(family: str) -> Script:
    shape = [language.BATCH, language.LENGTH]
    with writing(language.BATCH) as draft:
        words = draft.integers('words', shape, below=language.VOCABULARY)
        segments = draft.integers('segments', shape, below=2)
        said = draft.integers('said', shape, below=language.VOCABULARY)
        follows = draft.integers('follows', [language.BATCH, 1], below=2)
        config = getattr(transformers, f'{family}Config')(**SIZES)
        model: Any = getattr(transformers, f'{family}ForPretraining')(config)
        scores, relation = model(words, segments)[:2]
        loss = paddle.nn.functional.cross_entropy(scores, said.unsqueeze(-1))
        loss += paddle.nn.functional.cross_entropy(relation, follows)
        return trained(draft, loss, language.adamw())


def gpt() -> Script:
    """GPTForCausalLM."""
    shape = [language.BATCH, language.LENGTH]
    with writing(language.BATCH) as draft:
        words = draft.integers('words', shape, below=language.VOCABULARY)
        following = draft.integers('following', shape, below=language.VOCABULARY)
        scores = transformers.GPTForCausalLM(transformers.GPTConfig(**SIZES))(words)
        loss = paddle.nn.functional.cross_entropy(scores, following.unsqueeze(-1))
        return trained(draft, loss, language.adamw())
