"""The configuration of a Free Transformer in an exported folder, as transformers reads it."""

from dataclasses import fields
from typing import Any

from transformers import PretrainedConfig  # transformers 4 has no other name for it

from ftmodel.config import ModelConfig


class FreeTransformerConfig(PretrainedConfig):
    """``ModelConfig`` and a vocabulary size, also under transformers' names for them."""

    model_type = "free_transformer"
    attribute_map = {  # noqa: RUF012, as transformers declares it
        "hidden_size": "d_model",
        "intermediate_size": "ffn_width",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "num_key_value_heads": "n_kv_heads",
        "max_position_embeddings": "context",
        "tie_word_embeddings": "tied",
    }

    def __init__(self, vocab_size: int = 0, **settings: Any) -> None:
        self.vocab_size = vocab_size
        names = {field.name for field in fields(ModelConfig)}
        super().__init__(**{name: value for name, value in settings.items() if name not in names})
        for name in names & settings.keys():  # over the defaults of transformers 4
            setattr(self, name, settings[name])

    def architecture(self) -> ModelConfig:
        """The ``ModelConfig``; raises AttributeError if an entry is missing."""
        return ModelConfig(
            **{field.name: getattr(self, field.name) for field in fields(ModelConfig)}
        )
