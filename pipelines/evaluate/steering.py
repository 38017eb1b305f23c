"""Whether pinned z steer generation: continues the same prompts with several z."""

import torch
from torch import Generator, Tensor

from ftmodel.analysis.permutation import permutation_test
from ftmodel.analysis.steering import distances, mean_distance, steering_test
from ftmodel.inference.generate import generate
from ftmodel.inference.latent_source import FromPrior, LatentSource, Noise
from ftmodel.model.free_transformer import FreeTransformer
from ftmodel.model.mapper import pack_bits, pinned_noise
from pipelines.artifacts.estimate import Estimate
from pipelines.artifacts.latent_results import Steering
from pipelines.common.rng_streams import Purpose, generator
from pipelines.config.data import TextData
from pipelines.config.schema import EvaluationConfig
from pipelines.evaluate.generations import TEXT, beginnings
from pipelines.evaluate.measurement import Context


def applies(context: Context) -> bool:
    """Whether the data is text. A baseline counts, too: it shows how far token draws alone lead."""
    return bool(context.settings.steering_prompts) and isinstance(context.data, TextData)


def measure(context: Context) -> None:
    model, settings = context.model, context.settings
    prompts = beginnings(context.shards, model.config.context, settings.steering_prompts)
    rng = generator(settings.seed, Purpose.STEERING)
    codes = different_codes(model.config.noise_width, settings.steering_z, rng)
    labels = torch.arange(settings.steering_z).repeat_interleave(settings.steering_draws)
    z = codes[labels % len(codes)]
    apart = torch.stack(
        [distances(continuations(model, p.to(context.device), z, settings, rng)) for p in prompts]
    )
    context.evaluation.steering = steering_figures(apart, z, rng)


def different_codes(bits: int, count: int, rng: Generator) -> Tensor:
    """``count`` different codes of H = ``bits``, or all if there are fewer. Above 16 bits two are
    equal with a probability below count² / 2^17.
    """
    if bits > 16:
        return pack_bits(torch.rand(count, bits, generator=rng) < 0.5)
    return torch.randperm(1 << bits, generator=rng)[:count]


def continuations(
    model: FreeTransformer, prompt: Tensor, z: Tensor, settings: EvaluationConfig, rng: Generator
) -> Tensor:
    """Continue the prompt (P,) with a pinned code z (R,) in each row; returns the tokens (R, N)
    that it can change. The first new token is not among them: it is predicted where the prompt
    ends, whose z is the encoder's, the same in all rows. Where several tokens read one z it is left
    out, too, though the prompt is then read with the pinned z, or after the pinned random prefix.
    """
    new = min(1 + settings.steering_length, model.config.context - len(prompt) + 1)
    source: LatentSource = FromPrior()
    if bits := model.config.noise_width:
        of_prompt = torch.rand(len(prompt), bits, generator=rng).expand(len(z), -1, -1)
        noise = pinned_noise(z, bits)[:, None].repeat(1, len(prompt) + new, 1)
        if model.latent is not None and not model.config.latent.shared_codes:
            noise[:, : len(prompt)] = of_prompt
        source = Noise(noise)
    sequences = generate(
        model, prompt.expand(len(z), -1), new, generator=rng, z=source, temperature=TEXT.temperature
    )
    return sequences[:, len(prompt) + 1 :].cpu()


def steering_figures(apart: Tensor, z: Tensor, rng: Generator) -> Steering:
    """Figures from distances (P, R, R) between continuations with z (R,), equal for a baseline."""
    if len(z.unique()) == 1:
        return Steering(Estimate.over_documents(mean_distance(apart, z[:, None] == z)))
    result = steering_test(apart, z, rng)
    same = Estimate.over_documents(result.within)
    different = Estimate.over_documents(result.between)
    if not same.mean:  # no ratio: the same z gives the same text
        return Steering(same, different)
    chance = permutation_test(torch.cat((torch.tensor([result.ratio]), result.null)))
    return Steering(
        same=same,
        different=different,
        ratio=Estimate.over_documents(result.between, result.within),
        null_mean=chance.null_mean,
        null_95=chance.null_95,
        p_value=chance.p_value,
    )
