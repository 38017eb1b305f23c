"""Generated groups of the target task, scored as the paper's Figure 4 shows them."""

import torch

from ftmodel.inference.generate import generate
from ftmodel.inference.latent_source import FromPrior
from ftmodel.model.free_transformer import FreeTransformer
from ftmodel.synthetic.target_scores import score_groups
from ftmodel.synthetic.target_task import ARROW, LENGTH, LETTERS, decode
from pipelines.common.rng_streams import Purpose, generator
from pipelines.config.schema import EvaluationConfig
from pipelines.evaluate.measurement import Context

Groups = list[list[str]]
GROUPS_SHOWN = 2


def applies(context: Context) -> bool:
    return context.data.source == "target"


def measure(context: Context) -> None:
    fresh, pinned = target_groups(context.model, context.settings, context.device)
    context.evaluation.fresh = score_groups(fresh)
    context.details.groups = {"fresh": fresh[:GROUPS_SHOWN]}
    if pinned:
        context.evaluation.pinned = score_groups(pinned)
        context.details.groups["pinned"] = pinned[:GROUPS_SHOWN]


def target_groups(
    model: FreeTransformer, settings: EvaluationConfig, device: torch.device
) -> tuple[Groups, Groups]:
    """Groups that share a prompt: first with a z, or random prefix, for each sequence, then with
    one for a group; a model without either has no second groups.
    """
    rng = generator(settings.seed, Purpose.GROUPS)
    size = settings.group_size
    letters = torch.randint(len(LETTERS), (settings.groups, 1), generator=rng)
    letters = letters.repeat_interleave(size, dim=0)
    prompt = torch.cat((letters, torch.full_like(letters, ARROW)), dim=1).to(device)

    def sample(share_z: int) -> Groups:
        sequences = generate(model, prompt, LENGTH, generator=rng, z=FromPrior(share_z)).cpu()
        return [[decode(sequence) for sequence in group] for group in sequences.split(size)]

    fresh = sample(share_z=1)
    return fresh, sample(share_z=size) if model.config.noise_width else []
