"""The README.md of an exported Free Transformer, from the records of its run."""

from ftmodel.designs.design import LatentDesign, Prior
from pipelines.artifacts.checkpoint import Manifest
from pipelines.artifacts.run_results import fraction
from pipelines.config.schema import Experiment
from pipelines.export.model_card import bound_lines, facts

CARD = """\
---
library_name: transformers
pipeline_tag: text-generation
tags: [free-transformer-lab, custom_code]{base_model}
---
# {run} of experiment {experiment}

A Free Transformer (Fleuret 2025, arXiv 2510.17558) is a decoder language model. One of its blocks
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

- `generate` runs the encoder once on the prompt and samples the prompt's z from it. z of new
  tokens comes from the prior, {prior}. Each sequence has its own z.
- `latent_noise`, uniform on [0, 1), replaces the random numbers behind z. With shape (S, {bits})
  all sequences share it, counted from the first token of each. With shape (B, S, {bits}) it is for
  B sequences of S positions, padding included.
- `forward` draws all z from the prior. It does not use the encoder, which would read the tokens to
  be scored. Logits are therefore random; `latent_noise` fixes them.
- `generation_config.json` samples from the whole distribution at temperature 1; top_k or top_p
  would change that distribution.{documents}

Prompts of a batch are padded on the left. These are refused: beam search, assisted generation,
chunked prefill, prefill after a cache, caches other than DynamicCache, a mask with padding on the
right, and `labels=`.

## What must not be compared
{meaning}
- The reconstruction cross-entropy, given z from the encoder, and the training loss are not
  language-model losses: the encoder has read the text.
- The logits of `forward` are given a single z of the prior, for the prompt, too. So cross-entropy
  or perplexity from them, in lm_eval's hf backend as well, is random, and worse than the model. A
  baseline's is exact. The answers of benchmarks were scored differently: z of the prompt came from
  the encoder, and probabilities were averaged over z of the prior.
"""
MEANING = """
- The bounds above are upper bounds on the negative log-likelihood (NLL) of held-out documents, in
  expectation over z; a baseline's NLL is exact. Arms are compared by the filtering bound. A bound
  below a baseline's NLL, beyond the standard errors, shows a gain. A bound above it disproves a
  gain only if the bound is tight."""
DOCUMENTS = """
- In training, attention stayed within documents, in the encoder too: give each row one document."""
PRIORS = {
    Prior.uniform: "which is uniform over the 2^{bits} codes",
    Prior.learned: "in which each bit has a probability that depends on the tokens so far",
    Prior.recurrent: "in which each bit has a probability that depends on tokens and z so far",
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
