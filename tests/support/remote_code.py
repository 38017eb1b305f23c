"""Exported folders with code of their own, loaded as transformers loads them."""

import re
import sys
from contextlib import contextmanager
from types import SimpleNamespace

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import AutoModelForCausalLM, dynamic_module_utils

from pipelines.export import hugging_face
from tests import ROOT


@contextmanager
def modules_in(folder):
    """transformers copies and imports the code of folders here, and forgets it at the end."""
    before, path = dynamic_module_utils.HF_MODULES_CACHE, list(sys.path)
    dynamic_module_utils.HF_MODULES_CACHE = str(folder)
    try:
        yield
    finally:
        dynamic_module_utils.HF_MODULES_CACHE, sys.path[:] = before, path
        for name in [name for name in sys.modules if name.startswith("transformers_modules")]:
            del sys.modules[name]


def numbers(vocab_size, end_of_text=None):
    """Shards whose tokens are the words 0, 1, 2, …"""
    model = WordLevel({str(i): i for i in range(vocab_size)}, unk_token="0")
    return SimpleNamespace(
        metadata=SimpleNamespace(vocab_size=vocab_size, end_of_text=end_of_text),
        tokenizer=lambda: Tokenizer(model),
    )


def export(model, folder, shards=None):
    """A model as a folder, by default with words for tokens and none that ends a text."""
    folder.mkdir()
    vocab_size = model.embedding.num_embeddings
    hugging_face.write_free_transformer(folder, model, shards or numbers(vocab_size), "# a model\n")
    return folder


def documented_example(folder):
    """docs/export.md's example, and a folder below ``folder`` for the model that it names."""
    section = (ROOT / "docs/export.md").read_text().partition("\n## A Free Transformer\n")[2]
    code = re.search(r"```python\n(.*?)```", section, re.DOTALL)[1]
    target = folder / re.search('folder = "(.*)"', code)[1]
    target.parent.mkdir(parents=True)
    return code, target


def load(folder, **arguments):
    return AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True, **arguments)
