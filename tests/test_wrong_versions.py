"""Wrong versions of our code, each a mistake that is easy to make, must each fail a named test.

Public re-implementations of the paper pass all their own tests with the encoder made causal, the
injection removed, or the gradient cut. Here a package and its tests are copied, one piece of text
is replaced, and the test that exists to notice it is run on the copy.
"""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]


@dataclass
class Wrong:
    """A replacement in a file of a package, and the test (file::function) that must fail on it."""

    name: str
    file: str
    old: str
    new: str
    noticed_by: str
    package: str = "ftmodel"


ENCODE = "self.encoder_block(self.zeta, x, positions, causal=False)"
UPPER = "self.upper(x, kv, positions, cache), codes, o"
KEYS_VALUES = "keys_values = queries if kv is None else self.attention_norm(kv)"

WRONG = [
    Wrong(
        "encoder causal",
        "model/transformer.py",
        ENCODE,
        "self.encoder_block(self.zeta, x, positions, causal=True)",
        "model/test_transformer.py::test_bits_of_the_first_position_know_the_last_token",
    ),
    Wrong(
        "encoder without RoPE",
        "model/transformer.py",
        ENCODE,
        "self.encoder_block(self.zeta, x, Positions(positions.rope**0), causal=False)",
        "model/test_transformer.py::test_bits_know_their_position",
    ),
    Wrong(
        "encoder with RoPE on its queries only",
        "model/layers.py",
        "rotate(self.heads(k), positions.rope)",
        "rotate(self.heads(k), positions.rope if causal else positions.rope**0)",
        "model/test_transformer.py::test_bits_know_the_order_of_what_they_read",
    ),
    Wrong(
        "encoder queries from x",
        "model/transformer.py",
        ENCODE,
        "self.encoder_block(x, x, positions, causal=False)",
        "model/test_transformer.py::test_encoder_is_a_non_causal_block_with_rope_that_zeta_queries",
    ),
    Wrong(
        "r added to the residual",
        "model/transformer.py",
        UPPER,
        "self.upper(kv, kv, positions, cache), codes, o",
        "model/test_transformer.py::test_forward_equals_algorithm_2",
    ),
    Wrong(
        "r added to the queries",
        "model/layers.py",
        "queries = self.attention_norm(q)",
        "queries = self.attention_norm(kv if kv is not None and causal else q)",
        "model/test_transformer.py::test_forward_equals_algorithm_2",
    ),
    Wrong(
        "norm(x) + r in place of norm(x + r)",
        "model/layers.py",
        KEYS_VALUES,
        "keys_values = queries + (0 if kv is None else kv - q) * causal",
        "model/test_transformer.py::test_forward_equals_algorithm_2",
    ),
    Wrong(
        "r not injected",
        "model/transformer.py",
        "return x + r",
        "return x",
        "model/test_transformer.py::test_forward_equals_algorithm_2",
    ),
    Wrong(
        "a forward pass over given codes with an injection of its own",
        "model/transformer.py",
        "self.upper(x, self.inject_codes(x, codes), positions, cache)",
        "self.upper(x, x + self.latent.post_sampler[codes], positions, cache)",
        "inference/test_injection.py::test_forward_pass_follows",
    ),
    Wrong(
        "bounds with an injection of their own",
        "inference/bounds.py",
        "model.inject_codes(x, pack_bits(bits))",
        "x + model.latent.post_sampler[pack_bits(bits)]",
        "inference/test_injection.py::test_bounds_follow",
    ),
    Wrong(
        "scores of answers with an injection of their own",
        "inference/answers.py",
        "model.inject_codes(lower.x_answer, codes)",
        "lower.x_answer + model.latent.post_sampler[codes]",
        "inference/test_injection.py::test_scores_of_answers_follow",
    ),
    Wrong(
        "cached generation with an injection of its own",
        "inference/fast_decoder.py",
        "self.model.inject_codes(x.x, codes)",
        "x.x + self.model.latent.post_sampler[codes]",
        "inference/test_injection.py::test_cached_generation_follows",
    ),
    Wrong(
        "block L/2 + 1 run twice",
        "model/transformer.py",
        "range(first + 1, self.config.n_layers)",
        "range(first, self.config.n_layers)",
        "model/test_transformer.py::test_forward_equals_algorithm_2",
    ),
    Wrong(
        "block L/2 + 1 skipped",
        "model/transformer.py",
        "first = self.config.lower_blocks\n",
        "first = min(self.config.lower_blocks + 1, self.config.n_layers - 1)\n",
        "model/test_transformer.py::test_forward_equals_algorithm_2",
    ),
    Wrong(
        "r injected half-way wherever latent_block says",
        "model/config.py",
        "return self.n_layers // 2 if self.latent_block is None else self.latent_block - 1",
        "return self.n_layers // 2",
        "model/test_transformer.py::test_forward_equals_algorithm_2",
    ),
    Wrong(
        "encoder reads over the boundaries of documents",
        "model/layers.py",
        "mask = positions.causal if causal else positions.full",
        "mask = positions.causal if causal else None",
        "model/test_documents.py::test_a_packed_row_equals_its_documents_run_alone",
    ),
    Wrong(
        "causal attention reads over the boundaries of documents",
        "model/layers.py",
        "mask = positions.causal if causal else positions.full",
        "mask = None if causal else positions.full",
        "model/test_documents.py::test_a_packed_row_equals_its_documents_run_alone",
    ),
    Wrong(
        "documents without causality",
        "model/layers.py",
        "causal=same.tril()",
        "causal=same",
        "model/test_documents.py::test_a_packed_row_equals_its_documents_run_alone",
    ),
    Wrong(
        "gradient through the sampled code only",
        "model/mapper.py",
        "logit_gradient(rho, p.reshape(-1, p.shape[-1]), table, ctx.product_dtype)",
        "(rho * table[codes].flatten(0, -2)).sum(-1, keepdim=True)"
        " * code_probabilities(p.flatten(0, -2)).gather(1, codes.flatten()[:, None])"
        " * (bit_table(p.shape[-1])[codes.flatten()] - p.flatten(0, -2))",
        "model/test_mapper.py::test_value_and_gradients_equal_the_dense_straight_through_form",
    ),
    Wrong(
        "cross-entropy whose gradient lacks the scale of a micro-batch",
        "model/cross_entropy.py",
        "scale = grad / ctx.n",
        "scale = 1 / ctx.n",
        "model/test_cross_entropy.py::test_value_and_gradients_are_torchs",
    ),
    Wrong(
        "cross-entropy with the gradient of the last chunk alone",
        "model/cross_entropy.py",
        "grad_weight.addmm_(g.T, x)",
        "grad_weight.addmm_(g.T, x, beta=0)",
        "model/test_cross_entropy.py::test_value_and_gradients_are_torchs",
    ),
    Wrong(
        "softmax of the cross-entropy in bf16",
        "model/cross_entropy.py",
        "torch.promote_types(dtype, torch.float32)",
        "dtype",
        "model/test_cross_entropy.py::test_under_autocast_products_are_bf16_and_the_loss_is_not",
    ),
    Wrong(
        "compiled RoPE turning the other way",
        "model/layers.py",
        "(a * cos - b * sin, a * sin + b * cos)",
        "(a * cos + b * sin, b * cos - a * sin)",
        "model/test_llama_parity.py::test_compiled_blocks_turn_queries_and_keys_as_llamas_do",
    ),
    Wrong(
        "compiled RoPE turning too far",
        "model/layers.py",
        "cos, sin = torch.view_as_real(rope)",
        "cos, sin = torch.view_as_real(rope**2)",
        "model/test_llama_parity.py::test_compiled_blocks_turn_queries_and_keys_as_llamas_do",
    ),
    Wrong(
        "gradient of low bits through the last block of codes only",
        "model/mapper.py",
        "over_high[n] += ",
        "over_high[n] = ",
        "model/test_mapper.py::test_gradients_do_not_depend_on_the_block",
    ),
    Wrong(
        "gradient detached",
        "model/mapper.py",
        "BinaryMapper.apply(o, noise, table)",
        "BinaryMapper.apply(o.detach(), noise, table)",
        "model/test_transformer.py::test_cross_entropy_alone_reaches_every_parameter",
    ),
    Wrong(
        "encoder's gradient kept from the lower half",
        "model/transformer.py",
        "o = self.latent.encode(x, positions)",
        "o = self.latent.encode(x.detach(), positions)",
        "model/test_transformer.py::test_gradients_equal_those_of_algorithm_2",
    ),
    Wrong(
        "bit order reversed between mapper and table",
        "model/mapper.py",
        "weights = 1 << torch.arange(bits.shape[-1], device=bits.device)",
        "weights = 1 << torch.arange(bits.shape[-1], device=bits.device).flip(0)",
        "model/test_mapper.py::test_bit_h_of_a_code_is_worth_two_to_the_h",
    ),
    Wrong(
        "logits of bits rounded to bf16",
        "model/transformer.py",
        "torch.autocast(y.device.type, enabled=False)",
        "torch.autocast(y.device.type, enabled=torch.is_autocast_enabled('cpu'))",
        "model/test_precision.py::test_logits_of_bits_are_float32",
    ),
    Wrong(
        "KL summed in bf16",
        "model/objective.py",
        "kl_per_bit(out.bit_logits).sum(-1)",
        "kl_per_bit(out.bit_logits).bfloat16().sum(-1).float()",
        "model/test_precision.py::test_kl_and_hinge_are_float32",
    ),
    Wrong(
        "sums over codes in the precision of autocast",
        "model/mapper.py",
        "torch.autocast(p.device.type, enabled=False)",
        "torch.autocast(p.device.type, enabled=torch.is_autocast_enabled('cpu'))",
        "model/test_precision.py::test_the_mappers_sums_over_codes_are_float32",
    ),
    Wrong(
        "hinge after averaging",
        "model/objective.py",
        "(kl - kappa_bits * LN2).clamp(min=0).mean()",
        "(kl.mean() - kappa_bits * LN2).clamp(min=0)",
        "model/test_objective.py::test_hinge_is_taken_per_token_before_the_mean",
    ),
    Wrong(
        "KL halved",
        "model/objective.py",
        "return LN2 - entropy",
        "return (LN2 - entropy) / 2",
        "model/test_objective.py::test_kl_equals_the_sum_over_all_codes",
    ),
    Wrong(
        "KL in bits",
        "model/objective.py",
        "return LN2 - entropy",
        "return 1 - entropy / LN2",
        "model/test_objective.py::test_kl_equals_the_sum_over_all_codes",
    ),
    Wrong(
        "κ taken as nats",
        "model/objective.py",
        "(kl - kappa_bits * LN2)",
        "(kl - kappa_bits)",
        "model/test_objective.py::test_kappa_is_in_bits_and_kl_in_nats",
    ),
    Wrong(
        "decay from the end of the warm-up on",
        "model/schedule.py",
        "max(0, step - start) / (steps - start)",
        "(step - warmup) / (steps - warmup)",
        "model/test_schedule.py::test_wsd_is_stable_and_then_one_minus_the_root_of_what_has_passed_of_the_decay",
    ),
    Wrong(
        "no decay at all in a budget of few steps",
        "model/schedule.py",
        "max(1, round(decay * steps))",
        "round(decay * steps)",
        "model/test_schedule.py::test_the_decay_is_its_share_of_whole_steps_and_at_least_one",
    ),
    Wrong(
        "zero reached at the last step of the decay",
        "model/schedule.py",
        "/ (steps - start))",
        "/ (steps - 1 - start))",
        "model/test_schedule.py::test_warm_up_is_linear_and_zero_would_be_reached_one_step_after_the_last",
    ),
    Wrong(
        "κ = 0 at the first step of its warm-up",
        "model/schedule.py",
        "min(1.0, (step + 1) / warmup)",
        "min(1.0, step / warmup)",
        "model/test_schedule.py::test_the_threshold_is_whole_at_the_last_step_of_its_warm_up_and_without_any_from_the_first",
    ),
    Wrong(
        "z of the prompt from the prior",
        "inference/generate.py",
        "model(prompt, noise=noise, cache",
        "model(prompt, codes=None if noise is None else z.codes(noise), cache",
        "inference/test_generate.py::test_z_of_the_prompt_comes_from_the_encoder_reading_the_prompt_alone",
    ),
    Wrong(
        "prior not uniform",
        "inference/latent_source.py",
        "pack_bits(noise < 0.5)",
        "pack_bits(noise < 0.4)",
        "inference/test_generate.py::test_new_z_is_uniform_over_all_codes",
    ),
    Wrong(
        "tokens after a cache off by one position",
        "model/transformer.py",
        "start, length = cache[0].length if cache else 0, ",
        "start, length = max(cache[0].length - 1, 0) if cache else 0, ",
        "inference/test_generate.py::test_reading_in_chunks_equals_reading_at_once",
    ),
    Wrong(
        "new tokens off by one position",
        "inference/fast_decoder.py",
        "rope = self.rope[self.position]",
        "rope = self.rope[self.position - 1]",
        "inference/test_generate.py::test_cached_generation_equals_the_full_forward_pass",
    ),
    Wrong(
        "keys and values of new tokens from r alone",
        "inference/fast_decoder.py",
        "self.model.inject_codes(x.x, codes)",
        "self.model.latent.post_sampler[codes]",
        "inference/test_fast_decoder.py::test_every_token_up_to_the_last_is_read_as_the_model_reads_it",
    ),
    Wrong(
        "a token of probability 0 drawn",
        "inference/sampling.py",
        "(1 - draws)[:, None]",
        "draws[:, None]",
        "inference/test_generate.py::"
        "test_a_token_of_probability_0_is_not_drawn_by_the_least_or_greatest_number",
    ),
    Wrong(
        "a token outside the vocabulary shown where logits are NaN",
        "inference/generate.py",
        "check_tokens(token, vocabulary)",
        "pass",
        "inference/test_generate.py::test_nan_logits_are_refused_and_no_token_is_made_of_them",
    ),
    Wrong(
        "wrapped blocks taken for plain ones",
        "inference/fast_decoder.py",
        "exact and plain",
        "exact",
        "inference/test_fast_decoder.py::test_wrapped_blocks_are_decoded_by_the_model_itself",
    ),
    Wrong(
        "pinned codes off by one",
        "inference/generate.py",
        "codes[i]",
        "codes[max(i - 1, 0)]",
        "inference/test_generate.py::test_given_codes_are_used_in_order",
    ),
    Wrong(
        "a chunk read after others without their shift in the mask",
        "model/layers.py",
        ".tril(past)",
        ".tril()",
        "inference/test_generate.py::test_reading_in_chunks_equals_reading_at_once",
    ),
    Wrong(
        "z pinned by a seed shifted by padding",
        "inference/latent_source.py",
        "torch.arange(length) - padding.cpu()[:, None]",
        "torch.arange(length) - 0 * padding.cpu()[:, None]",
        "inference/test_generate.py::test_a_seed_pins_z_of_tokens_not_of_padding",
    ),
    Wrong(
        "encoder reads padding",
        "model/layers.py",
        "full = None if start else real",
        "full = None if True else real",
        "model/test_padding.py::test_a_padded_row_equals_the_row_alone",
    ),
    Wrong(
        "decoder reads padding",
        "model/layers.py",
        "(real | (keys == queries))",
        "(real | True)",
        "model/test_padding.py::test_a_padded_row_equals_the_row_alone",
    ),
    Wrong(
        "encoder reads the answer that is scored",
        "inference/answers.py",
        "model.latent.encode(lower.x, lower.positions)",
        "model.latent.encode(model.lower(torch.cat((prompts, answers), 1), "
        "q := model.positions(0, p + a, device)), q)[:, :p]",
        "inference/test_answers.py::test_an_encoder_that_leaks_the_future_does_not_move_the_score",
    ),
    Wrong(
        "z of an answer from the encoder",
        "inference/answers.py",
        "noise[:, p : p + a - 1] < 0.5",
        "noise[:, p : p + a - 1]"
        " < model.latent.encode(lower.x_answer, lower.answer_positions).sigmoid()",
        "inference/test_answers.py::test_an_encoder_that_leaks_the_future_does_not_move_the_score",
    ),
    Wrong(
        "log P of an answer as a mean of logarithms",
        "inference/answers.py",
        "log_probs.logsumexp(0) - log(len(log_probs))",
        "log_probs.mean(0)",
        "inference/test_answers.py::test_probabilities_equal_the_sum_over_all_codes",
    ),
    Wrong(
        "noise of padding given to a prompt's first tokens",
        "inference/answers.py",
        "inject_sampled(lower.x, o, noise[:, :p])",
        "inject_sampled(lower.x, o, noise[:, :p] if padding is None else "
        "torch.stack([n.roll(-k, 0) for n, k in zip(noise[:, :p], padding.tolist())]))",
        "inference/test_answers.py::test_scores_equal_those_of_full_passes_over_each_request_alone",
    ),
    Wrong(
        "greedy by a mean over samples that forgets how each took the tokens before",
        "inference/answers.py",
        "earlier[:, None]",
        "0 * earlier[:, None]",
        "inference/test_answers.py::test_greedy_answers_are_those_of_the_most_probable_tokens_of_the_mixture",
    ),
    Wrong(
        "ELBO without KL",
        "inference/bounds.py",
        "elbo=mean_ce + kl",
        "elbo=mean_ce",
        "inference/test_bounds.py::test_elbo_is_the_posterior_cross_entropy_plus_kl",
    ),
    Wrong(
        "IWAE averaging logarithms",
        "inference/bounds.py",
        "(log(k) - grouped.logsumexp(1)).mean(0)",
        "-grouped.mean(1).mean(0)",
        "inference/test_bounds.py::test_iwae_starts_at_the_elbo_and_tightens_towards_the_nll",
    ),
    Wrong(
        "IWAE without its weights",
        "inference/bounds.py",
        "-ce[-1] + log_prior - log_q",
        "-ce[-1]",
        "inference/test_bounds.py::test_sampled_probability_is_unbiased",
    ),
    Wrong(
        "windows off by one after the first token file",
        "artifacts/tokens/shards.py",
        "first = offset - self.starts[file]",
        "first = max(0, offset - self.starts[file] - (file > 0))",
        "artifacts/test_shards.py::test_a_window_that_crosses_files_has_the_tokens_of_both",
        "pipelines",
    ),
    Wrong(
        "end of text after a document",
        "tokenize/encode.py",
        "flat += [tokens.end_of_text, *ids] if first else ids",
        "flat += [*ids, tokens.end_of_text] if first else ids",
        "tokenize/test_build.py::test_shards_give_the_corpus_back_and_count_it",
        "pipelines",
    ),
    Wrong(
        "the version of the code in every token file",
        "tokenize/build.py",
        "[*vocabulary, *layout, part_sha256]",
        '[*vocabulary, *layout, part_sha256, code_version("tokenize")]',
        "tokenize/test_build.py::test_the_version_of_the_code_is_in_no_byte_of_what_it_makes",
        "pipelines",
    ),
    Wrong(
        "a file's time left out of what tells that it has changed",
        "common/file_listing.py",
        "entry.size, entry.mtime_ns)).encode()",
        "entry.size)).encode()",
        "commands/test_inputs.py::test_what_becomes_of_a_file_is_seen",
        "pipelines",
    ),
    Wrong(
        "a hub's dataset read at another commit than the one that is kept",
        "data/sources/hub.py",
        "self.version = revision = dataset_commit(",
        "self.version = dataset_commit(",
        "data/test_sources.py::test_a_dataset_of_a_hub_is_read_at_the_commit_it_was_at",
        "pipelines",
    ),
    Wrong(
        "what is excluded decides whether finished work fits",
        "data/resume.py",
        'for name in ("pattern", "exclude"):',
        'for name in ("pattern",):',
        "data/test_build.py::test_a_bad_file_mended_or_left_out_costs_nothing_that_is_finished",
        "pipelines",
    ),
    Wrong(
        "n-grams across documents",
        "tokenize/overlap.py",
        "inside[at[(at >= 0) & (at < len(inside))]] = False",
        "pass",
        "tokenize/test_overlap.py::test_an_ngram_over_the_border_of_two_documents_is_none",
        "pipelines",
    ),
    Wrong(
        "bytes that are not UTF-8 as ids",
        "artifacts/tokens/byte_tokenizer.py",
        "[self.byte_ids[byte] for byte in segment]",
        "list(segment)",
        "artifacts/test_byte_tokenizer.py::test_any_bytes_come_back",
        "pipelines",
    ),
    Wrong(
        "reconstruction cross-entropy as the bound of a Free Transformer",
        "artifacts/results.py",
        "bound = self.nll or self.iwae",
        "bound = self.nll or self.ce",
        "report/test_verdicts.py::test_verdict_from_bounds_and_errors",
        "pipelines",
    ),
    Wrong(
        "an arm's own spread over seeds ignored in the verdict",
        "analysis/statistics.py",
        "limits = [stdev(sample) for sample in (seeds, other_seeds) if len(sample) > 1]",
        "limits: list[float] = []",
        "analysis/test_statistics.py::test_a_difference_within_the_spread_of_either_arm_is_none",
    ),
    Wrong(
        "two standard errors of two seeds taken for a test",
        "analysis/statistics.py",
        "float(t.ppf(0.975, freedom))",
        "2.0",
        "analysis/test_statistics.py::test_equal_arms_are_told_apart_in_at_most_one_case_of_twenty",
    ),
    Wrong(
        "a further block's gain put down to z",
        "report/verdicts.py",
        'if matched.verdict == "lower":',
        'if matched.verdict != "higher":',
        "report/test_verdicts.py::test_a_gain_that_a_further_block_also_gives_is_called_so",
        "pipelines",
    ),
    Wrong(
        "scores of the first seed in place of means",
        "report/sections/figure4.py",
        "mean_figures(figures_by_seed(arm))",
        "mean_figures(figures_by_seed(arm)[:1])",
        "report/sections/test_figure4.py::test_scores_are_means_over_seeds_and_the_ratio_the_mean_of_ratios",
        "pipelines",
    ),
    Wrong(
        "generations called worse within what seeds differ by",
        "report/sections/target_reconstruction.py",
        'if c.verdict == "lower"',
        "if c.mean < 0",
        "report/sections/test_target_reconstruction.py::test_within_the_seeds_no_difference_is_claimed",
        "pipelines",
    ),
    Wrong(
        "free bits of one position too few",
        "report/sections/target_latent.py",
        "kappa * (t + 1)",
        "kappa * t",
        "report/sections/test_target_latent.py::test_free_bits_have_paid_for_at_most_kappa_a_position",
        "pipelines",
    ),
    Wrong(
        "averages over unlike budgets compared",
        "report/budgets.py",
        "groups[tuple(entry.tokens for entry in late)]",
        "groups[tuple(0 for entry in late)]",
        "report/test_budgets.py::test_last_thirds_are_compared_if_they_average_the_same_budgets",
        "pipelines",
    ),
    Wrong(
        "comparisons computed anew for every section",
        "report/analysis.py",
        "@cached_property\n    def comparisons(self)",
        "@property\n    def comparisons(self)",
        "report/test_analysis.py::test_findings_answers_and_counts_share_the_comparisons",
        "pipelines",
    ),
    Wrong(
        "a single seed not said on the first screen",
        "report/headline.py",
        "if numbers == {1}:",
        "if not numbers:",
        "report/test_headline.py::test_a_single_seed_is_answered_as_such",
        "pipelines",
    ),
    Wrong(
        "bars of the first picture as wide as the difference",
        "report/headline.py",
        "comparison.arm, zero, colour, comparison.threshold",
        "comparison.arm, zero, colour, abs(comparison.mean)",
        "report/test_headline.py::test_means_bars_and_seeds_are_drawn_from_the_baseline_at_0",
        "pipelines",
    ),
    Wrong(
        "benchmarks of the same documents compared as if those were different ones",
        "report/benchmarks/table.py",
        'mean_and_error(means - other_means)["se"]',
        'hypot(*(mean_and_error(each)["se"] for each in (means, other_means)))',
        "report/benchmarks/test_table.py::test_documents_are_paired_where_their_scores_are_stored",
        "pipelines",
    ),
    Wrong(
        "a higher loss called better",
        "report/benchmarks/table.py",
        "if not self.higher_is_better:",
        "if False:",
        "report/benchmarks/test_table.py::test_sign_is_of_the_score_and_verdict_of_the_metric",
        "pipelines",
    ),
    Wrong(
        "seeds left out of the verdict on a benchmark",
        "report/benchmarks/table.py",
        "means = [value.mean for value in seeds], [value.mean for value in other_seeds]",
        "means = [over_seeds(seeds).mean], [over_seeds(other_seeds).mean]",
        "report/benchmarks/test_table.py::test_seeds_may_make_a_difference_none",
        "pipelines",
    ),
    Wrong(
        "reconstruction in place of the bound",
        "inference/bounds.py",
        "iwae=importance_bound(log_weights, samples)",
        "iwae=mean_ce",
        "inference/test_bounds.py::test_bounds_of_the_coin_itself_reach_its_exact_likelihood",
    ),
    Wrong(
        "IWAE without the posterior's density",
        "inference/bounds.py",
        "-ce[-1] + log_prior - log_q",
        "-ce[-1] + log_prior",
        "inference/test_bounds.py::test_bounds_of_the_coin_itself_reach_its_exact_likelihood",
    ),
    Wrong(
        "chunks of a row scored as one",
        "inference/bounds.py",
        "positions = model.positions(0, inputs.shape[1], inputs.device, segment_ids)",
        "positions = model.positions(0, inputs.shape[1], inputs.device)",
        "inference/test_bounds.py::test_chunks_packed_into_rows_are_bounded_as_if_each_were_alone",
    ),
    Wrong(
        "standard error as if all documents had one size",
        "analysis/statistics.py",
        "residuals = totals - mean * sizes",
        "residuals = totals - totals.mean()",
        "inference/test_bounds.py::test_standard_error_over_documents_of_different_sizes",
    ),
    Wrong(
        "the coin's sides exchanged",
        "synthetic/coin_flip.py",
        "(1 - EPSILON) * z + EPSILON * (1 - z)",
        "EPSILON * z + (1 - EPSILON) * (1 - z)",
        "synthetic/test_coin_flip.py::test_a_flip_mostly_shows_its_hidden_bit",
    ),
    Wrong(
        "equation 2 with ε for 1 − ε",
        "synthetic/coin_flip.py",
        "return probability_of_one(posteriors(sequences)[:, :-1])",
        "return probability_of_one(1 - posteriors(sequences)[:, :-1])",
        "synthetic/test_coin_flip.py::test_predictive_is_the_ratio_of_two_probabilities",
    ),
    Wrong(
        "the best bit compared with one bit by chance",
        "analysis/label_information.py",
        "single.max(0).values",
        "single[single[:, 0].argmax()]",
        "analysis/test_label_information.py::test_without_a_relation_p_values_are_even",
    ),
    Wrong(
        "labels predicted by a classifier that has seen them",
        "analysis/label_information.py",
        "train, test = fold != half, fold == half",
        "train, test = fold >= 0, fold == half",
        "analysis/test_label_information.py::test_a_prediction_does_not_use_its_own_label",
    ),
    Wrong(
        "bits of sequences split at the median",
        "analysis/label_information.py",
        "counts > counts.mean(0)",
        "counts > counts.median(0).values",
        "analysis/test_label_information.py::test_a_bit_that_is_the_label_tells_all_of_it",
    ),
    Wrong(
        "rare bits weighed by a probability that noise does not have",
        "inference/bounds.py",
        "return (o.double().sigmoid() * NOISE_STEPS).ceil().clamp(1, NOISE_STEPS - 1)",
        "return (o.double().sigmoid() * NOISE_STEPS)",
        "inference/test_bounds.py::test_the_estimate_of_a_probability_is_unbiased_where_bits_saturate",
    ),
    Wrong(
        "fewer samples than were drawn for IWAE-k",
        "evaluate/bounds.py",
        "importance_bound(log_weights, k)",
        "importance_bound(log_weights[:k], k)",
        "evaluate/test_bounds.py::test_iwae_by_samples_is_that_of_the_log_weights",
        "pipelines",
    ),
    Wrong(
        "the same noise for all chunks of a document",
        "artifacts/packing.py",
        "p.document, p.index)",
        "p.document, 0)",
        "artifacts/test_packing.py::test_noise_of_a_chunk_does_not_depend_on_its_company",
        "pipelines",
    ),
    Wrong(
        "z of the encoder and of the prior exchanged",
        "evaluate/coin.py",
        "sequence.encoder_z = rounded(ones(model, model(copies, noise=noise).hidden))",
        "sequence.encoder_z = rounded(ones(model, model(copies, codes=prior).hidden))",
        "evaluate/test_coin.py::test_the_coin_is_shown_with_z_of_the_encoder_and_z_of_the_prior",
        "pipelines",
    ),
    Wrong(
        "z from the prior of the numbers that made the corpus",
        "evaluate/coin.py",
        "rng = generator(settings.seed, Purpose.COIN)",
        "rng = torch.Generator().manual_seed(settings.seed)",
        "evaluate/test_coin.py::test_z_from_the_prior_knows_nothing_of_the_hidden_sides",
        "pipelines",
    ),
    Wrong(
        "z of a prompt by its place in the batch",
        "suite/batching.py",
        "key, repeat = digest(prompt),",
        "key, repeat = row,",
        "suite/test_lm.py::test_scores_do_not_depend_on_company",
        "pipelines",
    ),
    Wrong(
        "z of answers by how long the longest of the batch is",
        "suite/batching.py",
        "stream.random((target.shape[1], samples, bits), np.float32)",
        "stream.random((samples, target.shape[1], bits), np.float32).swapaxes(0, 1)",
        "suite/test_lm.py::test_scores_do_not_depend_on_company",
        "pipelines",
    ),
    Wrong(
        "prompts that are too long cut from the right",
        "suite/batching.py",
        "prompt = tuple(ids[-room:])",
        "prompt = tuple(ids[:room])",
        "suite/test_lm.py::test_log_likelihoods_of_a_baseline_are_those_of_the_harness_own_backend",
        "pipelines",
    ),
    Wrong(
        "evaluation on the streams of training",
        "common/rng_streams.py",
        "words = (seed, purpose, index)",
        "words = (seed, purpose % 3, index)",
        "common/test_rng_streams.py::test_no_two_streams_coincide",
        "pipelines",
    ),
    Wrong(
        "Monte-Carlo errors of choices not weighed by length, as their likelihoods are",
        "suite/task_figures.py",
        "error / lengths[metric](choice)",
        "error",
        "suite/test_tasks.py::test_undecided_where_noise_may_swap_the_two_best",
        "pipelines",
    ),
    Wrong(
        "a program of MBPP passes by its first test",
        "suite/code_tasks.py",
        '*doc["test_list"]]',
        '*doc["test_list"][:1]]',
        "suite/test_tasks.py::test_mbpp",
        "pipelines",
    ),
    Wrong(
        "all files of a dataset of benchmarks in one folder",
        "suite/benchmark_data.py",
        "    if kwargs:\n",
        "    if False:\n",
        "commands/test_fetch.py::test_two_parts_of_a_dataset_lie_apart",
        "pipelines",
    ),
    Wrong(
        "a text that has ended grows with its batch",
        "suite/decoding.py",
        "for row in (~self.ended).nonzero()[:, 0].tolist():",
        "for row in range(len(self.texts)):",
        "suite/test_lm.py::test_a_text_that_has_ended_does_not_change_while_others_go_on",
        "pipelines",
    ),
    Wrong(
        "a task's figures with those of the task before",
        "suite/tasks.py",
        "    lm.start_task()\n",
        "",
        "suite/test_tasks.py::test_who_knows_the_answers_has_them_all",
        "pipelines",
    ),
    Wrong(
        "a report of a pass believed without the secret",
        "suite/sandbox/run.py",
        'word == secret + b"passed"',
        'b"passed" in word',
        "suite/test_sandbox.py::test_a_forged_report_is_no_pass",
        "pipelines",
    ),
    Wrong(
        "the program's functions see the names of its tests",
        "suite/sandbox/child.py",
        "scope = copy(names)",
        "scope = names",
        "suite/test_sandbox.py::test_tampering_with_the_checker_is_no_pass",
        "pipelines",
    ),
    Wrong(
        "the run of the tests within a program's reach",
        "suite/sandbox/child.py",
        "    sys.addaudithook(hook)",
        "    pass",
        "suite/test_sandbox.py::test_names_and_run_of_the_tests_are_out_of_reach",
        "pipelines",
    ),
    Wrong(
        "frames that tell what called them",
        "suite/sandbox/child.py",
        '    members |= {"f_back": None, "f_locals": {}, "f_globals": {}, "f_builtins": {}}',
        "    pass",
        "suite/test_sandbox.py::test_names_and_run_of_the_tests_are_out_of_reach",
        "pipelines",
    ),
    Wrong(
        "names of the checker within reach of what a program leaves to be freed",
        "suite/sandbox/child.py",
        "    globals().clear()",
        "    pass",
        "suite/test_sandbox.py::test_what_runs_among_the_checkers_names_finds_nothing_there",
        "pipelines",
    ),
    Wrong(
        "modes of files that a program may change",
        "suite/sandbox/syscalls.py",
        "exit 60 93 ",
        "chmod 90 - fchmodat 268 53 exit 60 93 ",
        "suite/test_sandbox.py::test_ways_out_are_forbidden",
        "pipelines",
    ),
    Wrong(
        "noise that goes on from the row before",
        "common/rng_streams.py",
        "stream.bit_generator.state = state",
        'stream.bit_generator.state["state"]["counter"][1] = second',
        "common/test_rng_streams.py::test_a_generator_that_is_moved_draws_as_new_ones_do",
        "pipelines",
    ),
    Wrong(
        "an order with windows that are not there",
        "train/core/shuffle.py",
        "while len(outside",
        "if len(outside",
        "train/test_shuffle.py::test_without_a_table_every_window_comes_once",
        "pipelines",
    ),
    Wrong(
        "a probe that has read the z after",
        "analysis/latent_probe.py",
        "total = log_q.cumsum(1)",
        "total = log_q.cumsum(1).roll(-1, 1)",
        "analysis/test_latent_probe.py::test_a_label_written_out_is_known_digit_by_digit_and_not_before",
    ),
    Wrong(
        "a z that is expected by one who has read it",
        "analysis/latent_probe.py",
        "(exponent * (total - log_q))",
        "(exponent * total)",
        "analysis/test_latent_probe.py::test_a_label_written_out_is_known_digit_by_digit_and_not_before",
    ),
    Wrong(
        "a probe asked about what it learned from",
        "evaluate/target_latent.py",
        "sample_with_starts(max(2, settings.probe_sequences // TRAINED), rng)",
        "(rows[::TRAINED], starts[::TRAINED])",
        "evaluate/test_target_latent.py::test_what_is_peculiar_to_the_sequences_learned_from_counts_for_nothing",
        "pipelines",
    ),
    Wrong(
        "offsets from the target's first character as it is read",
        "evaluate/target_latent.py",
        "PROMPT - 1 + starts",
        "PROMPT + starts",
        "evaluate/test_target_latent.py::test_the_start_is_known_from_z_as_soon_as_it_is_said",
        "pipelines",
    ),
    Wrong(
        "a reconstruction whose prompt has a z of its own",
        "evaluate/target_latent.py",
        "noise = 1 - 2 * bits.float()",
        "noise = torch.cat((0.5 + 0 * bits[:, :2], 1 - 2 * bits[:, 2:].float()), 1)",
        "evaluate/test_target_latent.py::test_the_decoder_is_given_these_codes_at_every_position",
        "pipelines",
    ),
]


def copy_tree(source, target):
    """A copy whose files are links: to alter one, put another in its place."""
    shutil.copytree(source, target, copy_function=os.link, dirs_exist_ok=True)


class Bench:
    """A package and the tests, copied once, to run tests on copies of these."""

    def __init__(self, package, folder, python):
        self.package, self.folder, self.python = package, folder, python
        skip = shutil.ignore_patterns("__pycache__")
        copied = ["ftmodel", "tests"]
        if package == "pipelines":
            copied += ["pipelines", "hydra_plugins", "conf", "tasks"]
            shutil.copy(ROOT / "dvc.yaml", folder)
        for name in copied:
            shutil.copytree(ROOT / name, folder / name, ignore=skip)
        (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    slow\n    cluster\n")

    def run(self, folder, tests):
        """Run tests (file::function) in a folder, whose own pytest.ini comes before this
        checkout's; tests/conftest.py checks that no other package is imported.
        """
        environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
        environment |= {"PYTHONPATH": str(folder), "FTMODEL_UNDER_TEST": str(folder / "ftmodel")}
        options = ["-q", "--tb=short", "-p", "no:cacheprovider", *(f"tests/{t}" for t in tests)]
        command = [self.python, "-m", "pytest", *options]
        return subprocess.run(command, cwd=folder, env=environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip

    def run_wrong(self, wrong, folder):
        """Run the test that should notice it on a copy altered as ``wrong`` says."""
        copy_tree(self.folder, folder)
        source = folder / self.package / wrong.file
        text = source.read_text()
        assert text.count(wrong.old) == 1, f"{wrong.file} no longer has once: {wrong.old}"
        source.unlink()
        source.write_text(text.replace(wrong.old, wrong.new))
        return self.run(folder, [wrong.noticed_by])


@pytest.fixture(scope="module")
def bench(tmp_path_factory, warm_python):
    """Benches by package, each made when it is first asked for."""
    return cache(lambda package: Bench(package, tmp_path_factory.mktemp(package), warm_python))


@pytest.mark.parametrize("package", ["ftmodel", "pipelines"])
def test_the_right_version_passes(bench, package):
    tests = sorted({w.noticed_by for w in WRONG if w.package == package})
    here = bench(package)
    result = here.run(here.folder, tests)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("wrong", WRONG, ids=lambda w: w.name)
def test_a_wrong_version_is_noticed(bench, tmp_path, wrong):
    """By a failed assertion: exit code 1, and no exception but AssertionError."""
    result = bench(wrong.package).run_wrong(wrong, tmp_path / "copy")
    assert result.returncode == 1, result.stdout
    raised = re.findall(r"^E   (\S+)", result.stdout, re.MULTILINE)
    errors = {word for word in raised if re.fullmatch(r"(\w+\.)*\w*(Error|Exception):?", word)}
    assert errors <= {"AssertionError:"}, result.stdout


def test_another_ftmodel_than_the_copy_stops_the_tests(tmp_path):
    """The guard itself: with the wrong package imported nothing is run, and the code is not 1."""
    env = os.environ | {"FTMODEL_UNDER_TEST": str(tmp_path)}
    command = [sys.executable, "-m", "pytest", "-q", "tests/synthetic/test_target_scores.py"]
    result = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert result.returncode == 4, result.stdout
    assert "is imported" in result.stdout + result.stderr
