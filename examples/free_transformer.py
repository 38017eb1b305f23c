"""The Free Transformer (François Fleuret 2025, arXiv 2510.17558) in one file, on PyTorch alone.

Read it from top to bottom with the paper at hand. `python examples/free_transformer.py` trains a
small model on the paper's synthetic task (§ 4.1) and prints samples as in Figure 4: groups in
which every sequence has its own latent codes (fresh), and groups that share them (pinned).

Shapes: B sequences, T tokens, D model width, N heads, M key-value heads, E head width, L blocks,
V vocabulary, H latent bits per token.
"""

import argparse
import sys
import time
from dataclasses import dataclass
from math import cos, inf, log, nan, pi, sqrt
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass
class Config:
    """The defaults are the small model that is trained below."""

    vocab_size: int = 29  # V
    n_layers: int = 4  # L, even
    d_model: int = 64  # D
    n_heads: int = 4  # N
    n_kv_heads: int = 2  # M
    head_width: int = 16  # E
    ffn_width: int = 168
    latent_bits: int = 8  # H; 16 in the paper
    tied: bool = True  # one matrix for embedding and readout
    rope_theta: float = 100.0  # for 65 positions; 10000 suits thousands
    norm_eps: float = 1e-5
    embedding_std: float = 1.0  # initial std of the token embeddings
    latent_std: float = 0.125  # initial std of the encoder and the post-sampler: 1 / √D


# --- A Llama-style block, whose queries may come from one input, and keys and values from another
class RMSNorm(nn.Module):
    """Zhang & Sennrich 2019, arXiv 1910.07467."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight


def rope(x: Tensor, theta: float) -> Tensor:
    """Apply rotary positions (Su et al. 2021, arXiv 2104.09864) to x (B, N, T, E): at position t,
    rotate the channel pair (2j, 2j + 1) by the angle t θ^(−2j / E).
    """
    length, width = x.shape[-2:]
    rates = theta ** (-torch.arange(0, width, 2, dtype=x.dtype) / width)
    angles = torch.outer(torch.arange(length, dtype=x.dtype), rates)  # (T, E / 2)
    a, b = x.unflatten(-1, (-1, 2)).unbind(-1)  # (B, N, T, E / 2)
    c, s = angles.cos(), angles.sin()
    return torch.stack((a * c - b * s, a * s + b * c), dim=-1).flatten(-2)


class Attention(nn.Module):
    """Grouped-query attention (Ainslie et al. 2023, arXiv 2305.13245): N / M heads share a key and
    a value.
    """

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.group, self.width, self.theta = c.n_heads // c.n_kv_heads, c.head_width, c.rope_theta
        self.query = nn.Linear(c.d_model, c.n_heads * c.head_width, bias=False)
        self.key_value = nn.Linear(c.d_model, 2 * c.n_kv_heads * c.head_width, bias=False)
        self.output = nn.Linear(c.n_heads * c.head_width, c.d_model, bias=False)

    def heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.width)).transpose(1, 2)  # (B, N or M, T, E)

    def forward(self, q: Tensor, kv: Tensor, causal: bool) -> Tensor:
        """Attend from q to kv, both (B, T, D); returns (B, T, D)."""
        queries = rope(self.heads(self.query(q)), self.theta)  # (B, N, T, E)
        keys, values = (self.heads(x) for x in self.key_value(kv).chunk(2, dim=-1))
        keys = rope(keys, self.theta)  # (B, M, T, E)
        keys, values = (x.repeat_interleave(self.group, dim=1) for x in (keys, values))
        scores = (queries / sqrt(self.width)) @ keys.mT  # (B, N, T, T)
        if causal:
            later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
            scores = scores.masked_fill(later, -inf)
        y = scores.softmax(-1) @ values  # (B, N, T, E)
        return self.output(y.transpose(1, 2).flatten(2))


class SwiGLU(nn.Module):
    """Shazeer 2020, arXiv 2002.05202."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.gate_up = nn.Linear(c.d_model, 2 * c.ffn_width, bias=False)
        self.down = nn.Linear(c.ffn_width, c.d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class Block(nn.Module):
    """A pre-norm block. The norm before attention is applied to q and to kv. The residual stream
    is q; kv enters only through attention.
    """

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.attention_norm, self.attention = RMSNorm(c.d_model, c.norm_eps), Attention(c)
        self.ffn_norm, self.ffn = RMSNorm(c.d_model, c.norm_eps), SwiGLU(c)

    def forward(self, q: Tensor, kv: Tensor, causal: bool = True) -> Tensor:
        x = q + self.attention(self.attention_norm(q), self.attention_norm(kv), causal)
        return x + self.ffn(self.ffn_norm(x))


# --- The latent (§ 3.3 and § 3.4)
def bits_of_codes(bits: int) -> Tensor:
    """U (2^bits, bits) of the paper: U[d, h] is bit h of code d."""
    return torch.arange(1 << bits)[:, None] >> torch.arange(bits) & 1


def code_probabilities(p: Tensor) -> Tensor:
    """G_d = Π_h p_h^{U_h(d)} (1 − p_h)^{1 − U_h(d)} (equation 8): p (…, H) to (…, 2^H)."""
    p = p[..., None, :]
    return torch.where(bits_of_codes(p.shape[-1]) == 1, p, 1 - p).prod(-1)


class BinaryMapper(torch.autograd.Function):
    """The binary mapper (§ 3.4, equations 6 to 8), fused with the post-sampler's look-up in W.

    The paper writes the code z as a one-hot vector Y of length 2^H. Y + G − detach(G) has the
    value of Y and the gradient of G, the probabilities of all codes. Its product with W is r,
    row z of W.
    """

    @staticmethod
    def forward(ctx: Any, o: Tensor, noise: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        """Map bit logits o (…, H) and W (2^H, D) to r (…, D) and z (…), sampled with noise (…, H),
        uniform on [0, 1).
        """
        p = o.sigmoid()  # P(B_h = 1), equation 6
        bits = noise < p  # B_h
        z = (bits << torch.arange(bits.shape[-1])).sum(-1)  # z = Σ_h B_h 2^h, equation 7
        ctx.save_for_backward(p, z, w)
        ctx.mark_non_differentiable(z)
        return w[z], z  # = Y W

    @staticmethod
    def backward(ctx: Any, rho: Tensor, _: Tensor) -> tuple[Tensor, None, Tensor]:
        """With ρ = ∂loss/∂r (…, D), and g = W ρ, which is the gradient of the one-hot vector,

            ∂loss/∂W = Y ρᵀ, summed over tokens,    ∂loss/∂o_h = Σ_d g_d G_d (U_h(d) − p_h).

        G is the outer product of the probabilities of a code's lower bits and of its upper bits. So
        the sum over all 2^H codes d becomes two small products, and G is never stored. (With H = 16
        compute g for a few tokens at a time.)
        """
        p, z, w = ctx.saved_tensors
        low = p.shape[-1] // 2
        g_low, g_high = code_probabilities(p[..., :low]), code_probabilities(p[..., low:])
        g = (rho @ w.T).unflatten(-1, (g_high.shape[-1], g_low.shape[-1]))  # (…, high, low)
        # Σ g G over the upper bits (…, low), and over the lower bits (…, high)
        over_high = g_low * (g_high[..., None, :] @ g).squeeze(-2)
        over_low = g_high * (g @ g_low[..., None]).squeeze(-1)
        u_low, u_high = bits_of_codes(low).type_as(p), bits_of_codes(p.shape[-1] - low).type_as(p)
        grad_o = torch.cat((over_high @ u_low, over_low @ u_high), dim=-1)
        grad_o = grad_o - p * over_low.sum(-1, keepdim=True)
        grad_w = torch.zeros_like(w).index_add(0, z.flatten(), rho.flatten(0, -2))
        return grad_o, None, grad_w


class Latent(nn.Module):
    """The encoder (§ 3.3), a non-causal block queried by a learned ζ, and the post-sampler W."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.zeta = nn.Parameter(torch.empty(1, 1, c.d_model))
        self.encoder_block = Block(c)
        self.norm = RMSNorm(c.d_model, c.norm_eps)
        self.readout = nn.Linear(c.d_model, c.latent_bits, bias=False)
        self.post_sampler = nn.Parameter(torch.empty(1 << c.latent_bits, c.d_model))  # W

    def encode(self, x: Tensor) -> Tensor:
        """Map activations x (B, T, D) to bit logits o (B, T, H). Every position reads all of x. All
        positions share the query ζ, so only RoPE makes their logits differ.
        """
        y = self.encoder_block(self.zeta.expand_as(x), x, causal=False)  # q = ζ, kv = x
        return self.readout(self.norm(y))


# --- The model (Algorithm 2) and its loss
class FreeTransformer(nn.Module):
    """Parameter names match ftmodel's: weights of its default design can be loaded."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.c, self.middle = c, c.n_layers // 2
        self.embedding = nn.Embedding(c.vocab_size, c.d_model)
        self.blocks = nn.ModuleList(Block(c) for _ in range(c.n_layers))
        self.latent = Latent(c)
        self.norm = RMSNorm(c.d_model, c.norm_eps)
        self.readout = nn.Linear(c.d_model, c.vocab_size, bias=False)
        if c.tied:
            self.readout.weight = self.embedding.weight
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weights as GPT-2 does, but for embeddings and latent; gains of RMSNorm are 1."""
        for name, matrix in self.named_parameters():
            if name.startswith("embedding"):
                std = self.c.embedding_std
            elif name.startswith("latent") and name != "latent.zeta":
                std = self.c.latent_std
            else:  # less into the residual stream
                added = name.endswith(("output.weight", "down.weight"))
                std = 0.02 / sqrt(2 * self.c.n_layers if added else 1)
            if matrix.dim() > 1:
                nn.init.normal_(matrix, std=std)

    def forward(
        self, tokens: Tensor, noise: Tensor | None = None, z: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Algorithm 2, line by line: tokens (B, T) to logits (B, T, V), z (B, T) and o (B, T, H).

        In training and for a prompt, z is sampled from the encoder with noise (B, T, H), uniform on
        [0, 1). In generation the caller draws z uniformly, and o is None.
        """
        x = self.embedding(tokens)  # x = embeddings(tokens): (B, T, D)
        for block in self.blocks[: self.middle]:  # for n in 1 … L/2:
            x = block(x, x)  # x = blocks[n](x)
        o = None
        if z is None:  # if train or prefill:
            o = self.latent.encode(x)  # y = encoder_block(q = ζ, kv = x), o = readout(y)
            # z = binary_mapper(o), r = post_sampler(z): (B, T, D)
            r, z = BinaryMapper.apply(o, noise, self.latent.post_sampler)
        else:  # z = uniform over 0 … 2^H − 1, by the caller
            r = self.latent.post_sampler[z]  # r = post_sampler(z)
        x = self.blocks[self.middle](x, x + r)  # x = blocks[L/2 + 1](q = x, kv = x + r)
        for block in self.blocks[
            self.middle + 1 :
        ]:  # for n in L/2 + 2 … L: (the paper prints L/2 + 1)
            x = block(x, x)  # x = blocks[n](x)
        return self.readout(self.norm(x)), z, o  # logits = readout(RMSNorm(x))


def training_loss(
    model: FreeTransformer, tokens: Tensor, noise: Tensor, kappa: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the loss, cross-entropy and KL, in nats per token, of tokens (B, T + 1), with noise
    (B, T, H) and κ in bits per token.

    The cross-entropy is not a language-model loss: z comes from an encoder that has read later
    tokens.
    """
    logits, _, o = model(tokens[:, :-1], noise)
    cross_entropy = F.cross_entropy(logits.transpose(1, 2), tokens[:, 1:])
    # KL to the uniform prior (equation 4). As bits are independent, it is Σ_h (log 2 − entropy).
    p = o.sigmoid()
    kl = (log(2) + p * F.logsigmoid(o) + (1 - p) * F.logsigmoid(-o)).sum(-1)  # (B, T)
    # free bits (equation 5): what a token's KL exceeds κ by, before the mean
    hinge = (kl - kappa * log(2)).clamp(min=0).mean()
    return cross_entropy + hinge, cross_entropy, kl.mean()


# --- The synthetic task of § 4.1
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
ALPHABET = LETTERS + "_!>"
LENGTH, TARGET, BATCH = 64, 8, 64


def sample_task(n: int) -> Tensor:
    """Draw n sequences (n, 66): a letter, ">" and 64 characters. These are "_", except for a run
    of 8 copies of the letter from a uniformly drawn start. Then each of the 64 is replaced by
    "!" with probability 1/16.
    """
    letter = torch.randint(len(LETTERS), (n, 1))
    offset = torch.arange(LENGTH) - torch.randint(LENGTH - TARGET + 1, (n, 1))
    body = torch.where((offset >= 0) & (offset < TARGET), letter, ALPHABET.index("_"))
    body = body.masked_fill(torch.rand(n, LENGTH) < 1 / 16, ALPHABET.index("!"))
    return torch.cat((letter, torch.full_like(letter, ALPHABET.index(">")), body), dim=1)


def train(steps: int, kappa: float) -> FreeTransformer:
    """Train with AdamW, a warm-up and a cosine schedule. Unlike in the paper, κ rises from 0 over
    the first five sixths of the steps. The decoder then learns the task before z is informative,
    and its samples stay valid with z from the prior.
    """
    model = FreeTransformer(Config())
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=0.1)
    start, shown = time.monotonic(), -inf
    for step in range(steps):
        rate = 2e-3 * min(1, (step + 1) / 100) * (1 + cos(pi * step / steps)) / 2
        optimizer.param_groups[0]["lr"] = rate
        noise = torch.rand(BATCH, 1 + LENGTH, model.c.latent_bits)
        threshold = kappa * min(1, step / steps * 6 / 5)
        loss, _, kl = training_loss(model, sample_task(BATCH), noise, threshold)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        now, done = time.monotonic(), step + 1
        if now - shown > (0.5 if COLOURED else 15) or done == steps:
            shown, left = now, (now - start) / done * (steps - done)
            line = f"step {done}/{steps}  loss {loss:.3f} nats  KL {kl / log(2):.3f} bits per token"
            end = "\r" if COLOURED and done < steps else "\n"
            print(f"{line}  {left:.0f} s left ", end=end, flush=True)
    return model


# --- Generation
@torch.no_grad()
def generate(
    model: FreeTransformer, prompt: Tensor, noise: Tensor, z: Tensor, draws: Tensor
) -> Tensor:
    """Continue prompts (B, P) by n tokens; return (B, P + n). Nothing is cached.

    The encoder samples z of the prompt with noise (B, P, H). The argument z (B, n) holds the codes
    of new tokens. The draws (B, n), uniform on [0, 1), select the new tokens through the inverse
    of their cumulative distribution.
    """
    z = torch.cat((model(prompt, noise)[1], z), dim=1)
    tokens = prompt
    for draw in draws.split(1, dim=1):
        logits = model(tokens, z=z[:, : tokens.shape[1]])[0][:, -1]  # (B, V)
        cumulative = logits.softmax(-1).cumsum(-1)
        token = torch.searchsorted(cumulative, draw * cumulative[:, -1:])  # (B, 1)
        tokens = torch.cat((tokens, token), dim=1)
    return tokens


def sample_groups(model: FreeTransformer, n: int, size: int, pinned: bool) -> list[list[str]]:
    """Generate n groups of texts, one prompt per group. If pinned, a group also shares its z."""
    own, bits = n if pinned else n * size, model.c.latent_bits
    noise, z = torch.rand(own, 2, bits), torch.randint(1 << bits, (own, LENGTH))  # z is uniform
    noise, z = (x.repeat_interleave(n * size // own, dim=0) for x in (noise, z))
    prompt = sample_task(n)[:, :2].repeat_interleave(size, dim=0)
    tokens = generate(model, prompt, noise, z, torch.rand(n * size, LENGTH))
    texts = ["".join(ALPHABET[i] for i in row) for row in tokens.tolist()]
    return [texts[i : i + size] for i in range(0, n * size, size)]


def spread(group: list[str]) -> float:
    """Standard deviation over a group of the target's mean position, characters."""
    places = [[i for i, c in enumerate(text[2:]) if c == text[0]] for text in group]
    means = torch.tensor([sum(p) / len(p) for p in places if p])
    return means.std(correction=0).item() if len(means) > 1 else nan


COLOURED = sys.stdout.isatty()
GROUPS, SIZE = 32, 8  # groups generated, and texts in each; a few are shown


def painted(text: str, pinned: bool) -> str:
    """Colour the target blue (green if z is pinned) and "!" red, if stdout is a terminal."""
    colours = {text[0]: 32 if pinned else 34, "!": 31} if COLOURED else {}
    return "".join(f"\033[{colours[c]}m{c}\033[0m" if c in colours else c for c in text)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kappa", type=float, default=1.0, help="free bits per token")
    parser.add_argument("--steps", type=int, default=1500, help="training steps of 64 sequences")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if not (0 <= given.kappa < inf and given.steps > 0 and 0 <= given.seed < 1 << 63):
        sys.exit("error: --kappa must be a number from 0 on, --steps at least 1, --seed from 0 on")
    torch.manual_seed(given.seed)
    torch.set_num_threads(1)  # the matrices are so small that a second thread would mostly wait
    model = train(given.steps, given.kappa)
    spreads = {}
    for pinned in (False, True):
        kind = "pinned z, one for each group" if pinned else "fresh z, one for each sequence"
        groups = sample_groups(model, GROUPS, SIZE, pinned)
        spreads[kind] = torch.tensor([spread(group) for group in groups]).nanmean()
        print(f"\n{kind}:\n")
        for group in groups[:3]:
            print(*(painted(text, pinned) for text in group[:5]), "", sep="\n")
    print("spread of the target's position within a group, characters:")
    for kind, characters in spreads.items():
        print(f"{characters:5.1f}  {kind}")


if __name__ == "__main__":
    main()
