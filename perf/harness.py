"""Requests of lm_eval: our adapter beside the harness's own backend for Hugging Face models.

Both answer the same requests with the same weights:

  ours          pipelines/suite/lm.py, a baseline
  backend       lm_eval's HFLM with a Llama of Hugging Face's, at each of several batch sizes, of
                which the fastest counts
  free, K = …   ours, a Free Transformer of the same size, with so many samples of z

Of four kinds of request: `choices`, four answers to each prompt of 30 to 120 tokens, as of multiple
choice; `letters`, the same with answers of one token; `single`, one answer to each prompt;
`generate`, 32 new tokens after each prompt.
"""

import logging
import os
import random
import sysconfig
from pathlib import Path
from statistics import median
from typing import Any

import torch
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from ftmodel.kernels.install import use_kernels
from ftmodel.model.config import ModelConfig
from ftmodel.model.free_transformer import FreeTransformer
from perf.measure import Figure, Work, figure, in_turns, ratio
from pipelines.artifacts.tokens.byte_tokenizer import ByteTokenizer
from pipelines.config.suite import Scoring
from pipelines.suite.lm import FreeTransformerLM
from pipelines.tokenize.vocabulary import train_bpe
from tests.support.hugging_face import to_hugging_face

END = "<|endoftext|>"
NEW = 32  # tokens of a continuation


def texts() -> list[bytes]:
    """Python files of the standard library."""
    paths = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    return [path.read_bytes() for path in paths]


def make_requests(kind: str, n: int, tokenizer: ByteTokenizer) -> list[Instance]:
    """``n`` requests of a kind, of tokens of running text."""
    rng = random.Random(0)
    ids = tokenizer.encode_batch([b"\n".join(texts()[:40])])[0]

    def piece(tokens: int) -> str:
        start = rng.randrange(len(ids) - tokens)
        return tokenizer.decode(ids[start : start + tokens]).decode(errors="ignore")

    made = []
    while len(made) < n:
        prompt = piece(rng.randint(30, 120)).strip() or "a"
        if kind == "generate":
            settings = {"until": ["\n\n\n"], "max_gen_toks": NEW, "do_sample": False}
            made.append(Instance("generate_until", {}, (prompt, settings), len(made)))
            continue
        answers = [f" {letter}" for letter in "ABCD"]
        if kind != "letters":
            answers = [f" {piece(rng.randint(2, 10)).strip() or 'b'}" for _ in range(4)]
        for answer in answers[: 1 if kind == "single" else 4]:
            made.append(Instance("loglikelihood", {}, (prompt, answer), len(made)))
    return made[:n]


def backend(model: FreeTransformer, tokenizer: ByteTokenizer, batch_size: int) -> HFLM:
    """The harness's own, with attention by PyTorch's fused kernel, its default."""
    llama = to_hugging_face(model)
    llama.set_attn_implementation("sdpa")
    return backend_of(llama, tokenizer.tokenizer, batch_size, model.config.context)


def backend_of(
    llama: Any, tokenizer: Tokenizer, batch_size: int, context: int, kind: type[HFLM] = HFLM
) -> HFLM:
    """lm_eval's backend with a Llama of Hugging Face's; every text begins with END."""
    end = tokenizer.token_to_id(END)
    llama.generation_config.eos_token_id = end
    fast = Tokenizer.from_str(tokenizer.to_str())
    fast.post_processor = TemplateProcessing(single=f"{END} $A", special_tokens=[(END, end)])
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=fast, bos_token=END, eos_token=END, pad_token=END
    )
    return kind(
        llama,
        tokenizer=wrapped,
        batch_size=batch_size,
        device="cpu",
        add_bos_token=True,
        max_length=context,
    )


def measure(turns: int, quick: bool) -> list[Figure]:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    logging.disable(logging.WARNING)
    layers, width, vocabulary, n = (2, 32, 512, 8) if quick else (6, 256, 8192, 96)
    tokenizer = train_bpe(texts()[: 10 if quick else None], vocabulary, END)

    def ours(bits: int, samples: int = 1) -> FreeTransformerLM:
        torch.manual_seed(0)
        shape = dict(n_heads=8, n_kv_heads=8, ffn_width=width * 8 // 3, context=1024)
        config = ModelConfig(layers, width, latent_bits=bits, **shape)
        return FreeTransformerLM(
            use_kernels(FreeTransformer(config, tokenizer.vocab_size)),
            tokenizer,
            torch.device("cpu"),
            scoring=Scoring.marginal,
            samples=samples,
            batch_tokens=16_384,
            seed=0,
        )

    baseline = ours(0)
    backends = {
        f"backend {size}": backend(baseline.model, tokenizer, size)
        for size in ([8] if quick else [8, 16, 32, 64])
    }
    free = {"free, K = 1": ours(4 if quick else 16), "free, K = 8": ours(4 if quick else 16, 8)}
    figures = []
    for kind in ("choices", "letters", "single", "generate"):
        asked = make_requests(kind, n, tokenizer)
        arms = {"ours": baseline, **backends, **free}
        if kind == "generate":  # which draws z once
            del arms["free, K = 8"]
        seconds = in_turns({name: answer(lm, asked) for name, lm in arms.items()}, turns)
        best = min(backends, key=lambda name: median(seconds[name]))
        speed = [n / each for each in seconds["ours"]]
        figures.append(figure(f"{kind}, ours", speed, "requests/s"))
        figures.append(ratio(f"{kind}, ours ÷ {best}: requests/s", seconds[best], seconds["ours"]))
        for name in [name for name in free if name in arms]:
            title = f"{kind}, {name} ÷ ours: requests/s"
            figures.append(ratio(title, seconds["ours"], seconds[name]))
    return figures


def answer(lm: Any, requests: list[Instance]) -> Work:
    ask = getattr(lm, requests[0].request_type)
    return lambda: ask(requests, disable_tqdm=True)
