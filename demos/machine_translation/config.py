"""The sizes that a translation program is built for."""
from __future__ import annotations

import dataclasses
import json
from typing import Optional, Tuple


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """Everything that shapes the training and the translation program.

    Sentences are padded to `source_length` and `target_length` tokens; the decoder's loop runs only
    as many trips as the longest target of the batch needs. The batch size is the feeder's choice.
    """
    source_vocabulary: int = 2000
    target_vocabulary: int = 2000
    source_length: int = 32
    target_length: int = 32
    embedding: int = 128
    hidden: int = 128
    attention: int = 128
    dropout: float = 0.0
    learning_rate: float = 8e-3
    seed: int = 2018


@dataclasses.dataclass(frozen=True)
class DemoConfig:
    """One run of the demo: the model, where its text comes from, and how it is fed."""
    model: ModelConfig = ModelConfig()
    batch_size: int = 64
    packages: Tuple[str, ...] = ("Django", "jupyterlab-language-pack-fr-FR")
    language: str = "fr"
    archive: Optional[str] = None

    def to_json(self) -> str:
        """For handing the run to a fresh process."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "DemoConfig":
        """The inverse of `to_json`."""
        fields = json.loads(text)
        model = ModelConfig(**fields.pop("model"))
        return cls(model=model, packages=tuple(fields.pop("packages")), **fields)
