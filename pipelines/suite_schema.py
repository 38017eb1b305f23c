"""How a trained model is asked the questions of benchmarks."""

from enum import StrEnum


class Scoring(StrEnum):
    """Of log P(answer | prompt) of a Free Transformer; a baseline's needs no choice."""

    marginal = "marginal"  # averaged, in probability, over samples of z
    posterior_prompt = "posterior_prompt"  # with one sample of z
