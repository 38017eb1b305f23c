"""Measure decoding: tokens per second of cached generation, in float32 unless it is said.

    python -m perf.decoding --device cuda

Arms, with prompts of 16 tokens:

  ours             ftmodel/inference/generate.py, a baseline
  free             the same, a Free Transformer, H = 16; z of new tokens from the prior
  bf16             ours with the large matrices rounded to bfloat16, where the CPU multiplies it
  dynamic, static  Hugging Face's Llama with the baseline's weights, SDPA and `generate`, by either
                   kind of cache, not compiled; the one that is faster by its median counts

At temperature 0 (greedy) and at 1, drawn from the whole vocabulary; prefill counts. Both sides have
the same shapes. Half of a step is overhead in the smallest, and nearly all of it is matrix products
in the largest.
"""

from dataclasses import dataclass, replace
from functools import partial
from statistics import median

import torch
from torch import Tensor
from transformers import LlamaForCausalLM
from transformers.utils import logging

from ftmodel.config import ModelConfig
from ftmodel.inference.decoder import RoundedWeights, bf16_products
from ftmodel.inference.generate import generate
from ftmodel.layers import use_kernels
from ftmodel.model.free_transformer import FreeTransformer
from perf.measure import DEVICE, QUICK, TURNS, Measurement, Work, in_turns, print_table, ratio
from perf.training import hugging_face_llama
from pipelines.host.command_line import command, run_command

PROMPT_TOKENS = 16


@dataclass(frozen=True)
class Shape:
    config: ModelConfig  # of the baseline
    vocabulary: int
    new_tokens: int
    batches: tuple[int, ...] = (1, 16)


SHAPES = {
    "small": Shape(ModelConfig(4, 128, 4, 4, 384, context=1024, latent_bits=0), 8192, 128),
    "middle": Shape(ModelConfig(8, 256, 8, 8, 704, context=1024, latent_bits=0), 8192, 128),
    "large": Shape(ModelConfig(8, 512, 8, 8, 1408, context=1024, latent_bits=0), 32768, 32),
}
TOY_SHAPE = Shape(ModelConfig(2, 32, 2, 2, 64, context=64, latent_bits=0), 64, 4, (1, 2))


def make_model(shape: Shape, latent_bits: int, device: str) -> FreeTransformer:
    torch.manual_seed(0)
    config = replace(shape.config, latent_bits=latent_bits)
    return use_kernels(FreeTransformer(config, shape.vocabulary)).eval().to(device)


def our_generation(
    model: FreeTransformer,
    prompt: Tensor,
    new_tokens: int,
    temperature: float,
    rounded: RoundedWeights | None = None,
) -> Tensor:
    rng = torch.Generator().manual_seed(0)
    return generate(
        model, prompt, new_tokens, generator=rng, temperature=temperature, rounded=rounded
    )


def their_generation(
    model: LlamaForCausalLM, prompt: Tensor, new_tokens: int, temperature: float, cache: str
) -> Tensor:
    """Generate without an end-of-text token, so that all rows go on to the last token."""
    model.generation_config.eos_token_id = None
    sampling = {"temperature": temperature, "top_k": 0} if temperature else {}
    made = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=new_tokens,
        pad_token_id=0,
        use_cache=True,
        cache_implementation=cache,
        disable_compile=True,
        do_sample=bool(temperature),
        **sampling,
    )
    assert made.shape[1] == prompt.shape[1] + new_tokens
    return made


def beside_generate(name: str, shape: Shape, turns: int, device: str) -> list[Measurement]:
    baseline, free = (make_model(shape, bits, device) for bits in (0, 16))
    llama = hugging_face_llama(baseline).to(device)
    rounded = RoundedWeights(baseline) if device == "cpu" and bf16_products() else None
    new_tokens, found = shape.new_tokens, []
    for rows in shape.batches:
        rng = torch.Generator().manual_seed(0)
        prompt = torch.randint(shape.vocabulary, (rows, PROMPT_TOKENS), generator=rng).to(device)
        for how, temperature in (("greedy", 0.0), ("sampled", 1.0)):
            arms: dict[str, Work] = {
                "ours": partial(our_generation, baseline, prompt, new_tokens, temperature),
                "free": partial(our_generation, free, prompt, new_tokens, temperature),
            }
            for cache in ("dynamic", "static"):
                arms[cache] = partial(
                    their_generation, llama, prompt, new_tokens, temperature, cache
                )
            if rounded and rounded.packed:
                arms["bf16"] = partial(
                    our_generation, baseline, prompt, new_tokens, temperature, rounded
                )
            seconds = in_turns(arms, turns)
            at = f"{name}, batch {rows}, {how}"
            for arm in arms:
                speeds = [rows * new_tokens / spent for spent in seconds[arm]]
                found.append(Measurement(f"{at}, {arm}", speeds, "tokens/s"))
            # ratios of speeds: seconds of the other arm ÷ seconds of this one
            theirs = min(seconds["dynamic"], seconds["static"], key=median)
            ours, of_free = seconds["ours"], seconds["free"]
            found.append(ratio(f"{at}, free ÷ ours: tokens/s", ours, of_free, at_least=0.97))
            beside = f"{at}, ours ÷ Hugging Face: tokens/s"
            found.append(ratio(beside, theirs, ours, at_least=2.0))
            if "bf16" in arms:
                found.append(ratio(f"{at}, bf16 ÷ ours: tokens/s", ours, seconds["bf16"]))
    return found


@command(__doc__)
@TURNS
@QUICK
@DEVICE
def main(turns: int, quick: bool, device: str) -> None:
    logging.set_verbosity_error()
    found = []
    for name, shape in ({"tiny": TOY_SHAPE} if quick else SHAPES).items():
        found += beside_generate(name, shape, turns, device)
    print_table(found, quick)


if __name__ == "__main__":
    run_command(main, "python -m perf.decoding")
