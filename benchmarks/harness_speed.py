"""The adapter beside the harness's own backend.    python -m benchmarks.harness_speed

Both answer the same requests with the same weights, on the same machine in the same run, in turns:

  ours          pipelines/harness.py, a baseline
  backend       lm_eval's HFLM with a Llama of Hugging Face's, at each of several batch sizes, of
                which the fastest counts
  free, K = …   ours, a Free Transformer of the same size, with so many samples of z

Of four kinds of request: `choices`, four answers to each prompt of 30 to 120 tokens, as of multiple
choice; `letters`, the same with answers of one token; `single`, one answer to each prompt;
`generate`, 32 new tokens after each prompt.

Prints requests per second of each, medians over turns, and the ratio of each pair of turns.
"""

import argparse
import logging
import os
import random
import sysconfig
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import torch
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from ftmodel.config import ModelConfig
from ftmodel.transformer import FreeTransformer
from pipelines.harness import FreeTransformerLM
from pipelines.suite_schema import Scoring
from pipelines.tokenizer import ByteTokenizer, train_bpe
from tests.hugging_face import to_hugging_face

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
    llama.generation_config.eos_token_id = tokenizer.end_of_text
    fast = Tokenizer.from_str(tokenizer.tokenizer.to_str())
    fast.post_processor = TemplateProcessing(
        single=f"{END} $A", special_tokens=[(END, tokenizer.end_of_text)]
    )
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=fast, bos_token=END, eos_token=END, pad_token=END
    )
    return HFLM(
        llama,
        tokenizer=wrapped,
        batch_size=batch_size,
        device="cpu",
        add_bos_token=True,
        max_length=model.config.context,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--requests", type=int, default=128)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--batch-tokens", type=int, default=16384)
    parser.add_argument("--batch-sizes", type=int, nargs="*", default=[8, 16, 32, 64])
    parser.add_argument("--kinds", nargs="*", default=["choices", "letters", "single", "generate"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--cpu-time", action="store_true", help="of this process, for machines that others use too"
    )
    options = parser.parse_args()
    clock = process_time if options.cpu_time else perf_counter
    torch.set_num_threads(options.threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    logging.disable(logging.WARNING)
    tokenizer = train_bpe(texts(), options.vocabulary, END)

    def model(bits: int) -> FreeTransformer:
        torch.manual_seed(0)
        shape = dict(n_heads=8, n_kv_heads=8, ffn_width=options.width * 8 // 3, context=1024)
        config = ModelConfig(options.layers, options.width, latent_bits=bits, **shape)
        return FreeTransformer(config, tokenizer.vocab_size).eval()

    def ours(bits: int, samples: int = 1) -> FreeTransformerLM:
        return FreeTransformerLM(
            model(bits),
            tokenizer,
            torch.device("cpu"),
            scoring=Scoring.marginal,
            samples=samples,
            batch_tokens=options.batch_tokens,
            seed=0,
        )

    baseline = ours(0)
    arms: dict[str, Any] = {"ours": baseline}
    arms |= {f"backend {n}": backend(baseline.model, tokenizer, n) for n in options.batch_sizes}
    arms |= {"free, K = 1": ours(16), "free, K = 8": ours(16, 8)}
    size = sum(p.numel() for p in baseline.model.parameters()) / 1e6
    print(
        f"{size:.1f} M parameters, {tokenizer.vocab_size} tokens; {options.threads} threads, load "
        f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )
    for kind in options.kinds:
        requests = make_requests(kind, options.requests, tokenizer)
        speeds: dict[str, list[float]] = {name: [] for name in arms}
        for turn in range(options.turns + 1):  # the first warms up
            for name in arms if turn % 2 else reversed(arms):
                if kind == "generate" and name == "free, K = 8":
                    continue
                lm = arms[name]
                ask: Callable[..., Any] = getattr(lm, requests[0].request_type)
                start = clock()
                ask(requests, disable_tqdm=True)
                if turn:
                    speeds[name].append(len(requests) / (clock() - start))
        show(kind, speeds)


def show(kind: str, speeds: dict[str, list[float]]) -> None:
    backends = {name: v for name, v in speeds.items() if name.startswith("backend")}
    best = max(backends, key=lambda name: median(backends[name]))
    for name, values in speeds.items():
        if not values:
            continue
        beside = "ours" if name.startswith("free") else best
        ratios = [a / b for a, b in zip(values, speeds[beside], strict=True)]
        print(
            f"{kind:9} {name:12} {median(values):8.1f} requests/s; {median(ratios):.2f} of "
            f"{beside}, from {min(ratios):.2f} to {max(ratios):.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
