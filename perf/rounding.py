"""What float32 does to the log-likelihood of an answer, against the same Llama in float64.

transformers computes norms and rotations in float32 whatever the weights are; `in_float64` puts
them in float64, too.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean

import torch
from torch import Tensor, nn
from transformers import LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from pipelines.suite.batching import Encoded

ROUNDING_HEAD = (
    "| benchmark | answers | their nats | nats off | largest | mean | mean, signed "
    "| largest, of the answer's nats |\n|---|---|---|---|---|---|---|---|"
)


class Rotation(nn.Module):
    """Cosines and sines of RoPE in float64, (B, T, E), for channel pairs E / 2 apart."""

    def __init__(self, theta: float, width: int) -> None:
        super().__init__()
        self.rates = theta ** -(torch.arange(0, width, 2, dtype=torch.float64) / width)

    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        angles = (position_ids[..., None] * self.rates).repeat(1, 1, 2)
        return angles.cos(), angles.sin()


def in_float64(llama: LlamaForCausalLM) -> LlamaForCausalLM:
    """Change a model with plain RoPE to float64, in place, and return it."""
    rope = llama.config.rope_parameters
    assert rope["rope_type"] == "default", "a RoPE that is slowed down"
    llama.double().set_attn_implementation("sdpa")  # "eager" has its softmax in float32
    for parent in list(llama.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, LlamaRMSNorm):
                norm = nn.RMSNorm(child.weight.shape, child.variance_epsilon, dtype=torch.float64)
                norm.weight = child.weight
                setattr(parent, name, norm)
    width = llama.config.hidden_size // llama.config.num_attention_heads
    llama.model.rotary_emb = Rotation(rope["rope_theta"], width)
    return llama.eval()


@torch.inference_mode()
def log_likelihoods(llama: LlamaForCausalLM, requests: Sequence[Encoded]) -> list[float]:
    """log P(answer | prompt), nats, each request read alone."""
    results = []
    for _, prompt, answer in requests:
        ids = torch.tensor([[*prompt, *answer]])
        logits = llama(ids[:, :-1], use_cache=False).logits[0, len(prompt) - 1 :]
        log_p = logits.log_softmax(-1).gather(1, torch.tensor(answer)[:, None])
        results.append(log_p.sum().item())
    return results


def arm_rows(name: str, values: Mapping[str, Sequence[float]], exact: Sequence[float]) -> list[str]:
    """Table rows, one for each of ``values``, log-likelihoods of the same answers."""
    rows = []
    for who, each in values.items():
        off = [value - true for value, true in zip(each, exact, strict=True)]
        largest, mean = max(map(abs, off)), fmean(map(abs, off))
        share = max(abs(error / true) for error, true in zip(off, exact, strict=True))
        cells = f"{largest:.1e} | {mean:.1e} | {fmean(off):+.1e} | {share:.1e}"
        rows.append(f"| {name} | {len(exact)} | {fmean(map(abs, exact)):.0f} | {who} | {cells} |")
    return rows
