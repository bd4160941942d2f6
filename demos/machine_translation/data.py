"""Parallel text, from gettext catalogues or a WMT14 archive, as tokens and padded batches."""
from __future__ import annotations

import dataclasses
import importlib.metadata
import io
import random
import re
from typing import Callable, Dict, Iterable, Iterator, List, NamedTuple, Sequence, Tuple

import numpy as np

from demos.machine_translation.config import DemoConfig, ModelConfig

# WMT14 fixes these ids; the subword models are trained to agree. Padding needs no token of its own:
# padded positions are masked by the sentence lengths.
START, END, UNKNOWN = 0, 1, 2
HELD_OUT = 64

Decoder = Callable[[Sequence[int]], str]
Tokens = Tuple[int, ...]
Feeds = Dict[str, np.ndarray]


class Pair(NamedTuple):
    """One sentence and its translation as token ids, without START and END."""
    source: Tokens
    target: Tokens


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Token pairs for training and testing, and the way back from ids to text."""
    train: Tuple[Pair, ...]
    held_out: Tuple[Pair, ...]
    decode_source: Decoder
    decode_target: Decoder

    def steps_per_epoch(self, batch_size: int) -> int:
        """How many full batches the training pairs make."""
        if not 0 < batch_size <= len(self.train):
            raise ValueError(f"no batch of {batch_size} from {len(self.train)} training pairs")
        return len(self.train) // batch_size

    def batch(self, step: int, batch_size: int) -> List[Pair]:
        """The pairs of a training step; every epoch goes through all full batches in a new order.

        A batch holds targets of similar length, so that the decoder spends few trips on padding.
        """
        batches = self.steps_per_epoch(batch_size)
        epoch, position = divmod(step, batches)
        order = np.random.RandomState(epoch).permutation(len(self.train))
        by_length = sorted(order, key=lambda index: len(self.train[index].target))
        start = np.random.RandomState(epoch).permutation(batches)[position] * batch_size
        return [self.train[index] for index in by_length[start:start + batch_size]]

    def longest(self, batch_size: int) -> List[Pair]:
        """The training pairs with the longest targets: the batch that needs the most memory."""
        by_length = sorted(self.train, key=lambda pair: (len(pair.target), len(pair.source)))
        return by_length[-batch_size:]


def catalogue_pairs(distribution: str, language: str) -> Iterator[Tuple[str, str]]:
    """Yields (English, translation) from all compiled catalogues of an installed package."""
    import polib
    folder = re.compile(rf"/{re.escape(language)}(_\w+)?/LC_MESSAGES/[^/]+\.mo$")
    for path in importlib.metadata.files(distribution) or ():
        if not folder.search(path.as_posix()):
            continue
        for entry in polib.mofile(str(path.locate())):
            yield _clean(entry.msgid), _clean(entry.msgstr or entry.msgstr_plural.get(0, ""))


def gettext_sentences(distributions: Iterable[str], language: str) -> List[Tuple[str, str]]:
    """The sentence pairs of several packages in a fixed order, one translation for each source."""
    translations: Dict[str, str] = {}
    for distribution in distributions:
        for source, target in catalogue_pairs(distribution, language):
            if target and source != target and re.search("[A-Za-z]", source):
                translations.setdefault(source, target)
    if not translations:
        raise ValueError(f"no '{language}' catalogue in {', '.join(distributions)}")
    return sorted(translations.items())


def load_corpus(config: DemoConfig) -> Corpus:
    """The corpus that a run of the demo asks for."""
    if config.archive:
        return wmt14_corpus(config.model, config.archive)
    return gettext_corpus(config.model, config.packages, config.language)


def gettext_corpus(config: ModelConfig, distributions: Sequence[str], language: str) -> Corpus:
    """Reads catalogues and trains one subword model for each language on them."""
    sentences = gettext_sentences(distributions, language)
    source = _subword_model((source for source, _ in sentences), config.source_vocabulary)
    target = _subword_model((target for _, target in sentences), config.target_vocabulary)
    pairs = [Pair(tuple(source.encode(s)), tuple(target.encode(t))) for s, t in sentences]
    return _split(pairs, config, lambda ids: source.decode([int(i) for i in ids]),
                  lambda ids: target.decode([int(i) for i in ids]))


def wmt14_corpus(config: ModelConfig, archive: str) -> Corpus:
    """Reads a WMT14 archive that is on disk; it comes tokenised, with its dictionaries."""
    from paddle.text import WMT14
    size = min(config.source_vocabulary, config.target_vocabulary)
    dataset = WMT14(data_file=archive, mode="train", dict_size=size, download=False)
    source, target = dataset.get_dict(reverse=True)
    # The dataset wraps a source in START and END and puts START before a target.
    pairs = [
        Pair(tuple(dataset[index][0][1:-1].tolist()), tuple(dataset[index][1][1:].tolist()))
        for index in range(len(dataset))
    ]
    return _split(pairs, config, lambda ids: " ".join(source[int(i)] for i in ids),
                  lambda ids: " ".join(target[int(i)] for i in ids))


def feeds(pairs: Sequence[Pair], config: ModelConfig) -> Feeds:
    """Pads a batch to the shapes that the programs take."""
    source = np.full([len(pairs), config.source_length], END, "int64")
    target_in = np.full([len(pairs), config.target_length], END, "int64")
    target_out = np.full([len(pairs), config.target_length], END, "int64")
    for row, pair in enumerate(pairs):
        source[row, :len(pair.source)] = pair.source
        target_in[row, :len(pair.target) + 1] = (START,) + pair.target
        target_out[row, :len(pair.target)] = pair.target
    return {
        "source": source,
        "source_length": np.array([len(pair.source) for pair in pairs], "int64"),
        "target_in": target_in,
        "target_out": target_out,
        "target_length": np.array([len(pair.target) + 1 for pair in pairs], "int64"),
    }


def synthetic_feeds(config: ModelConfig, batch_size: int, step: int = 0) -> Feeds:
    """A random batch whose longest sentences fill the padded length, for tests and benchmarks."""
    generator = np.random.RandomState(step)

    def sentence(length: int, vocabulary: int) -> Tokens:
        return tuple(int(token) for token in generator.randint(UNKNOWN + 1, vocabulary, length))

    def lengths(longest: int) -> List[int]:
        rest = generator.randint(1, longest + 1, batch_size - 1)
        return [longest] + [int(length) for length in rest]

    pairs = [
        Pair(sentence(source, config.source_vocabulary), sentence(target, config.target_vocabulary))
        for source, target in zip(lengths(config.source_length), lengths(config.target_length - 1))
    ]
    return feeds(pairs, config)


def _clean(text: str) -> str:
    return " ".join(text.split())


def _subword_model(sentences: Iterable[str], vocabulary: int):
    import sentencepiece
    model = io.BytesIO()
    # One thread and sorted input: the vocabulary is the same in every process.
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(sentences),
                                             model_writer=model,
                                             model_type="bpe",
                                             vocab_size=vocabulary,
                                             bos_id=START,
                                             eos_id=END,
                                             unk_id=UNKNOWN,
                                             pad_id=-1,
                                             num_threads=1,
                                             minloglevel=2)
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def _split(pairs: Sequence[Pair], config: ModelConfig, decode_source: Decoder,
           decode_target: Decoder) -> Corpus:
    # Texts that differ only in characters that the tokeniser does not tell apart must not end up on
    # both sides of the split; WMT14 repeats sentences, too.
    by_source: Dict[Tokens, Pair] = {}
    for pair in pairs:
        by_source.setdefault(pair.source, pair)
    fitting = [
        pair for pair in by_source.values() if 0 < len(pair.source) <= config.source_length and
        0 < len(pair.target) < config.target_length
    ]
    random.Random(config.seed).shuffle(fitting)
    return Corpus(tuple(fitting[HELD_OUT:]), tuple(fitting[:HELD_OUT]), decode_source,
                  decode_target)
