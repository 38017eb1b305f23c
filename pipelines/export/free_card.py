"""The README.md of an exported Free Transformer, from the records of its run."""

from ftmodel.designs.design import LatentDesign, Prior
from pipelines.artifacts.checkpoint import Manifest
from pipelines.artifacts.run_results import fraction
from pipelines.config.schema import Experiment
from pipelines.export.model_card import facts, measured

CARD = """\
---
library_name: transformers
pipeline_tag: text-generation
tags: [free-transformer-lab, custom_code]{base_model}
---
# {run} of experiment {experiment}

A Free Transformer (Fleuret 2025, arXiv 2510.17558): a decoder language model one of whose blocks
reads a random latent code z of {bits} bits per token. transformers loads it with the code in this
folder:

    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)

| | |
|---|---|
| arm | Free Transformer, κ = {kappa} bits per token, H = {bits} |
{facts}{bounds}
## How z is drawn

- `generate` reads a prompt once with the encoder and samples z of its tokens from it. z of new
  tokens comes from the prior, {prior}. Each sequence has z of its own.
- `latent_noise`, uniform on [0, 1), replaces the random numbers behind z: of shape (S, {bits}),
  shared by all sequences and counted from the first token of each, or (B, S, {bits}) for B
  sequences of S positions, padding included.
- `forward` draws all z from the prior, and the encoder reads nothing: it would read the tokens to
  be scored. Logits are therefore random; `latent_noise` fixes them.
- `generation_config.json` samples from the whole distribution at temperature 1; top_k or top_p
  would make it another one.{documents}

Prompts of a batch are padded on the left. Refused are beam search and assisted generation, chunked
prefill, prefill after a cache, caches other than DynamicCache, padding on the right that a mask
shows, and `labels=`.

## What must not be compared
{meaning}
- The reconstruction cross-entropy, given z from the encoder, and the training loss are no
  language-model losses: the encoder has read the text.
- Cross-entropy or perplexity from the logits of `forward`, and what lm_eval's hf backend makes of
  them, are given a single z of the prior, for the prompt, too: random, and worse than the model. A
  baseline's are exact. The answers of benchmarks were scored otherwise: z of the prompt from the
  encoder, and probabilities averaged over z of the prior.
"""
MEANING = """
- The bounds above are upper bounds on the negative log-likelihood (NLL) of held-out documents, in
  expectation over z; a baseline's NLL is exact. Arms are compared by the filtering bound. Below a
  baseline's NLL, beyond the standard errors, it shows a gain; above, it disproves one only where it
  is tight."""
DOCUMENTS = """
- In training attention, the encoder's too, stayed within documents: give each row one document."""
PRIORS = {
    Prior.uniform: "which is uniform over the 2^{bits} codes",
    Prior.learned: "in which each bit has a probability that depends on the tokens so far",
    Prior.recurrent: "in which each bit has a probability that depends on tokens and z so far",
}
BOUNDS = {
    "filtering": "filtering bound",
    "elbo": "ELBO bound",
    "iwae": "IWAE bound",
    "prior": "prior-sample bound",
}


def of_run(experiment: Experiment, manifest: Manifest, tokens: int) -> str:
    architecture = manifest.architecture
    bits = architecture["latent_bits"]
    bounds = bound_lines(experiment, manifest, tokens)
    return CARD.format(
        **facts(experiment, manifest, tokens),
        kappa=fraction(manifest.run["kappa_bits"]),
        bits=bits,
        bounds=bounds or "| bounds on the held-out NLL | not evaluated |\n",
        prior=PRIORS[LatentDesign(**architecture.get("latent", {})).prior].format(bits=bits),
        documents=DOCUMENTS if architecture.get("document_mask") else "",
        meaning=MEANING if bounds else "",
    )


def bound_lines(experiment: Experiment, manifest: Manifest, tokens: int) -> str:
    """Rows of the card's table, by the names of docs/measurement.md; none without an evaluation."""
    return "".join(
        f"| {name} on the held-out NLL, bits per {unit} | {bound} |\n"
        for unit, figures in measured(experiment, manifest, tokens).items()
        for attribute, name in BOUNDS.items()
        if (bound := getattr(figures, attribute))
    )
