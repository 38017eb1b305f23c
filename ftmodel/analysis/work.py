"""What an evaluation costs beside the training, counted, so that it is the same on every machine.

The unit is a *pass*: the forward pass of a token through the whole model, the encoder included, in
a sequence that is read at once. A token that is trained on costs three: the backward pass is worth
two. A token that is read alone, by a filter's particle or in a generation, costs TOKEN_BY_TOKEN
passes through the blocks that read it, because its matrices are small and its keys are moved.

H latent bits, K particles, F filters.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from ftmodel.analysis.calibration import MIN_PARTICLES
from ftmodel.config import ModelConfig
from ftmodel.inference.sequence_bound import enumerable

TRAINING = 3.0  # passes of a token
# LOG.md, 2026-11-28: 1.5 to 2.4 without resampling, up to 5 where most tokens are resampled
TOKEN_BY_TOKEN = 4.0


def upper_share(config: ModelConfig) -> float:
    """The share of the decoder's blocks that are run again for each z; all of a prefix's."""
    if not config.latent_bits:
        return 1.0
    return 1 - config.lower_blocks / config.n_layers


def particle_passes(config: ModelConfig) -> float:
    """Passes of a token of one particle; 0 where the NLL needs none."""
    if not config.noise_width or enumerable(config):
        return 0.0
    alone = bool(config.latent_bits) and not config.latent.one_code
    return upper_share(config) * (TOKEN_BY_TOKEN if alone else 1)


@dataclass(frozen=True)
class EvaluationWork:
    """How much of a model's evaluation there is; ``passes`` says what it costs."""

    config: ModelConfig
    scored_tokens: int
    calibration_tokens: int
    filters: int  # F
    iwae_samples: int
    own_text_tokens: int = 0  # that the model writes: both of its bounds take F filters each
    read_tokens: int = 0  # by other measurements, in sequences that are read at once
    generated_tokens: int = 0  # one by one

    def passes(self, particles: int, shares: int) -> float:
        """Passes of scoring with K = ``particles``, and of all else. ``shares`` are the proposals
        that a calibration compares before it doubles the particles up to K; 0: none is made.
        """
        config, upper = self.config, upper_share(self.config)
        each = 1.0  # of a token that is scored
        if config.latent_bits:
            each += 2 * self.iwae_samples * upper
            if enumerable(config):
                each += (1 << config.latent_bits) * upper
        filtered = self.scored_tokens + 2 * self.own_text_tokens
        filters = filtered * self.filters * particles * particle_passes(config)
        rest = self.read_tokens + TOKEN_BY_TOKEN * (self.generated_tokens + self.own_text_tokens)
        return self.scored_tokens * each + filters + rest + self.calibration(particles, shares)

    def calibration(self, particles: int, shares: int) -> float:
        """Passes of a calibration that ends with K = ``particles``."""
        if not shares:
            return 0.0
        tried = shares * MIN_PARTICLES + sum(k for k in doubled(particles) if k > MIN_PARTICLES)
        return self.calibration_tokens * 2 * self.filters * tried * particle_passes(self.config)

    def most_particles(self, allowed_passes: float, shares: int, most: int) -> int:
        """The most particles, at most ``most``, with which all of it costs ``allowed_passes``; 0 if
        even the fewest cost more.
        """
        fitting = takewhile(lambda k: self.passes(k, shares) <= allowed_passes, doubled(most))
        return max(fitting, default=0)

    def affordable(self, allowed_passes: float, shares: int, most: int) -> tuple[int, int]:
        """How many proposals a calibration can compare, and the ``most_particles`` then: only one
        where comparing ``shares`` of them would cost too much.
        """
        if (particles := self.most_particles(allowed_passes, shares, most)) or shares <= 1:
            return shares, particles
        return 1, self.most_particles(allowed_passes, 1, most)


def doubled(most: int) -> Sequence[int]:
    """The numbers of particles that a calibration tries, up to ``most``."""
    fewest = min(MIN_PARTICLES, most)
    return [fewest << i for i in range((most // fewest).bit_length())]
