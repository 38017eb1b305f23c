"""Wrong versions of ftmodel/conversion, and of what starts from a parent."""

from tests.wrong_versions import Wrong

START = "conversion/latent_start.py"
BEGINS = "conversion/test_latent_start.py::"
LLAMA = "conversion/test_llama.py::"
CHILD = "train/test_init_from.py::"
PARENT = "train/core/parent.py"

WRONG = [
    Wrong(
        "channels of a Llama's heads taken over as they are",
        "conversion/llama.py",
        'to_pairs(w["self_attn.q_proj.weight"], config.n_heads)',
        'w["self_attn.q_proj.weight"]',
        LLAMA + "test_we_compute_what_hugging_face_does_with_its_weights",
    ),
    Wrong(
        "channels of keys handed over as they are",
        "conversion/llama.py",
        "to_halves(key, config.n_kv_heads)",
        "key",
        LLAMA + "test_hugging_face_computes_what_we_do_with_our_weights",
    ),
    Wrong(
        "gate and up exchanged",
        "conversion/llama.py",
        "gate, up = block.ffn.gate_up.weight.chunk(2)",
        "up, gate = block.ffn.gate_up.weight.chunk(2)",
        LLAMA + "test_hugging_face_computes_what_we_do_with_our_weights",
    ),
    Wrong(
        "what is left over in a Llama's file is ignored",
        "conversion/llama.py",
        "given.keys() - expected.keys()",
        "expected.keys() - given.keys()",
        LLAMA + "test_weights_that_do_not_fit_are_named_and_nothing_is_copied",
    ),
    Wrong(
        "fast rotations slowed down, slow ones kept",
        "model/layers.py",
        "rates * (kept + (1 - kept) / config.rope_factor)",
        "rates * ((1 - kept) + kept / config.rope_factor)",
        LLAMA + "test_llama_3_slows_down_rotations_as_transformers_does",
    ),
    Wrong(
        "Qwen's biases forgotten in decoding",
        "inference/fast_decoder.py",
        "if attention.query.bias is not None:",
        "if False:",
        "inference/test_fast_decoder.py::"
        "test_every_token_up_to_the_last_is_read_as_the_model_reads_it",
    ),
    Wrong(
        "Qwen's biases of keys in Hugging Face's order",
        "conversion/llama.py",
        'to_pairs(w["self_attn.k_proj.bias"], config.n_kv_heads)',
        'w["self_attn.k_proj.bias"]',
        LLAMA + "test_we_compute_what_hugging_face_does_with_its_weights",
    ),
    Wrong(
        "a few huge tokens decide how loud the latent begins",
        START,
        ".sqrt().median()",
        ".sqrt().mean()",
        BEGINS + "test_a_few_tokens_of_a_huge_norm_do_not_decide_the_rms",
    ),
    Wrong(
        "the first KL held against κ in nats",
        START,
        "(middle, high) if kl(middle) <= kl_bits * LN2",
        "(middle, high) if kl(middle) <= kl_bits",
        BEGINS + "test_the_readout_shrinks_to_the_threshold_and_no_further",
    ),
    Wrong(
        "the post-sampler's share of 1, not of the stream",
        START,
        "table.mul_(share * stream_rms(x) / ",
        "table.mul_(share / ",
        BEGINS + "test_the_post_sampler_has_its_share_and_the_kl_is_within_the_threshold",
    ),
    Wrong(
        "the encoder is a copy of the first block",
        START,
        "model.blocks[model.config.lower_blocks].state_dict()",
        "model.blocks[0].state_dict()",
        BEGINS + "test_the_post_sampler_has_its_share_and_the_kl_is_within_the_threshold",
    ),
    Wrong(
        "z from the encoder said to be from the prior",
        START,
        "zip((torch.zeros_like(o), o), noise, strict=True)",
        "zip((o, o), noise, strict=True)",
        BEGINS + "test_losses_before_the_first_step",
    ),
    Wrong(
        "copied weights at the rate of new ones",
        "train/core/module.py",
        "own = self.copied_lr if name in self.copied else None",
        "own = None",
        CHILD + "test_copied_weights_have_a_learning_rate_of_their_own",
        "pipelines",
    ),
    Wrong(
        "the latent counted among what was copied",
        PARENT,
        "names = {name for name in names if not name.startswith(LATENT)}",
        "pass",
        CHILD + "test_copied_weights_have_a_learning_rate_of_their_own",
        "pipelines",
    ),
    Wrong(
        "another parent, the same run",
        "train/core/manifest.py",
        'parts["parent"] = parent["sha256"]',
        "pass",
        CHILD + "test_another_parent_is_another_run",
        "pipelines",
    ),
    Wrong(
        "a parent of other tokens",
        PARENT,
        "if llama.tokenizer is not None and spelling",
        "if llama.tokenizer is None and spelling",
        CHILD + "test_a_parent_that_does_not_fit_is_one_line",
        "pipelines",
    ),
    Wrong(
        "documents that the tokenizer cannot spell not counted",
        "tokenize/build.py",
        "corpus.count_documents(task.part) - header.documents",
        "header.documents - header.documents",
        "tokenize/test_build.py::"
        "test_documents_that_the_tokenizer_cannot_spell_are_left_out_and_counted",
        "pipelines",
    ),
    Wrong(
        "a child of every seed starts from the same run",
        "hydra_plugins/seeds.py",
        "{start['run']}_s{seed}",
        "{start['run']}_s{seeds[0]}",
        "config/test_parents.py::test_an_arm_starts_from_the_run_of_its_own_seed_and_stays_one_arm",
        "",
    ),
]
