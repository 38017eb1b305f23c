"""Exported folders with code of their own, loaded as transformers loads them."""

import sys
from contextlib import contextmanager
from types import SimpleNamespace

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import AutoModelForCausalLM, dynamic_module_utils

from ftmodel.inference.passes import with_codes
from pipelines.export import free_transformer


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
    free_transformer.write(folder, model, shards or numbers(vocab_size), "# a model\n")
    return folder


def load(folder, **arguments):
    return AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True, **arguments)


def sequence_probabilities(model, prompt, n_new):
    """P(y | prompt) of all V^N continuations y, (V^N, N) and (V^N,): z of the prompt from the
    encoder, which has read the prompt alone, z of new tokens from the prior, by enumeration.
    """
    vocab_size, bits = model.embedding.num_embeddings, model.config.latent_bits
    p = len(prompt)
    with torch.no_grad():
        y = torch.cartesian_prod(*[torch.arange(vocab_size)] * n_new).view(-1, n_new)
        z = torch.cartesian_prod(*[torch.arange(1 << bits)] * (p + n_new - 1))
        z = z.view(-1, p + n_new - 1)
        o = model(prompt[None], noise=torch.zeros(1, p, bits)).bit_logits[0].double()
        ones = (z[:, :p, None] >> torch.arange(bits) & 1).bool()  # (Z, P, H)
        q = torch.where(ones, o.sigmoid(), 1 - o.sigmoid()).prod(-1).prod(-1)
        weights = q / (1 << bits) ** (n_new - 1)
        tokens = torch.cat((prompt.expand(len(y), -1), y), 1)
        rows = tokens[:, :-1].repeat_interleave(len(z), 0)
        logits = model.logits(with_codes(model, rows, z.repeat(len(y), 1)).hidden[:, p - 1 :])
        targets = y.repeat_interleave(len(z), 0)[..., None]
        log_p = logits.double().log_softmax(-1).gather(2, targets)[..., 0].sum(1)
        return y, (log_p.exp().view(len(y), len(z)) * weights).sum(1)
