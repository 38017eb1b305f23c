"""Wrong versions of ftmodel/conversion, and of what starts from a parent."""

from tests.wrong_versions import Wrong

START = "conversion/latent_start.py"
BEGINS = "conversion/test_latent_start.py::"
LLAMA = "conversion/test_llama.py::"
CHILD = "train/test_init_from.py::"
PARENT = "train/core/parent.py"
GGUF, GGUF_TEST = "artifacts/gguf_file.py", "artifacts/test_gguf_file.py::"

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
        "names - expected.keys()",
        "expected.keys() - names",
        LLAMA + "test_weights_that_do_not_fit_are_named_and_nothing_is_copied",
    ),
    Wrong(
        "fast rotations slowed down, slow ones kept",
        "model/layers.py",
        "rates * (high_share + (1 - high_share) / config.rope_factor)",
        "rates * ((1 - high_share) + high_share / config.rope_factor)",
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
        "gains of Qwen's queries and keys taken over as they are",
        "conversion/llama.py",
        "to_pairs(w[name], 1)",
        "w[name]",
        LLAMA + "test_we_compute_what_hugging_face_does_with_its_weights",
    ),
    Wrong(
        "gains of Qwen's queries and keys handed over as they are",
        "conversion/llama.py",
        "gain if pairs else to_halves(gain, 1)",
        "gain",
        LLAMA + "test_hugging_face_computes_what_we_do_with_our_weights",
    ),
    Wrong(
        "gains of Qwen's queries taken for those of keys",
        "conversion/llama.py",
        'norms = {"q": attention.query_norm, "k": attention.key_norm}',
        'norms = {"k": attention.query_norm, "q": attention.key_norm}',
        LLAMA + "test_hugging_face_computes_what_we_do_with_our_weights",
    ),
    Wrong(
        "queries of Qwen turned before they are normalised",
        "model/layers.py",
        "queries = rotate(self.heads(self.query(q), self.query_norm), positions.rope)",
        "queries = rotate(self.heads(self.query(q)), positions.rope)\n"
        "        if self.query_norm is not None:\n"
        "            queries = self.query_norm(queries)",
        LLAMA + "test_we_compute_what_hugging_face_does_with_its_weights",
    ),
    Wrong(
        "rotations of heads of width D / N, whatever their width",
        "model/layers.py",
        "    width = config.head_channels\n",
        "    width = config.head_channels\n"
        "    wrong = config.d_model // config.n_heads\n"
        "    return config.rope_theta ** (-torch.arange(0, width, 2, device=device) / wrong)\n",
        LLAMA + "test_we_compute_what_hugging_face_does_with_its_weights",
    ),
    Wrong(
        "Qwen's norms of queries and keys forgotten in decoding",
        "inference/fast_decoder.py",
        "if self.head_gains is not None:",
        "if False:",
        "inference/test_fast_decoder.py::"
        "test_every_token_up_to_the_last_is_read_as_the_model_reads_it",
    ),
    Wrong(
        "gains of queries exchanged with those of keys in decoding",
        "inference/fast_decoder.py",
        "(q // e, attention.query_norm), (kv // e, attention.key_norm)",
        "(q // e, attention.key_norm), (kv // e, attention.query_norm)",
        "inference/test_fast_decoder.py::"
        "test_every_token_up_to_the_last_is_read_as_the_model_reads_it",
    ),
    Wrong(
        "a parent of other heads",
        "model/config.py",
        '"n_heads", "n_kv_heads", "head_width", "ffn_width"),',
        '"n_heads", "n_kv_heads", "ffn_width"),',
        "config/test_parents.py::test_a_mistake_is_one_line",
    ),
    Wrong(
        "a parent with norms of queries and keys taken over without",
        "model/config.py",
        '"qkv_bias", "qk_norm", "norm_eps"',
        '"qkv_bias", "norm_eps"',
        "config/test_parents.py::test_a_mistake_is_one_line",
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
        "post_sampler.mul_(share * stream_rms(x) / ",
        "post_sampler.mul_(share / ",
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
        "model.upper_from_prior(x, noise[0], positions, documents)[0]",
        "model.upper(x, latent.sample(o, noise[0])[0], positions)",
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
        "a latent of other bits taken over",
        "config/parents.py",
        'return {"latent_bits": config.latent_bits, "latent_block"',
        'return {"latent_block"',
        "config/test_parents.py::test_a_mistake_is_one_line",
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
    Wrong(
        "a GGUF file's channels taken for Hugging Face's",
        GGUF,
        "weight if heads is None else to_halves(weight, heads)",
        "weight",
        GGUF_TEST + "test_transformers_reads_the_same_numbers",
        package="pipelines",
    ),
    Wrong(
        "a slowed-down RoPE of a GGUF file overlooked",
        GGUF,
        'field.contents() != "none"',
        'field.contents() == "no"',
        GGUF_TEST + "test_a_rope_that_transformers_does_not_read_is_refused",
        package="pipelines",
    ),
    Wrong(
        "unknown tensors of a GGUF file left out",
        GGUF,
        "for t in reader.tensors}",
        "for t in reader.tensors if t.name in theirs}",
        GGUF_TEST + "test_a_tensor_that_transformers_leaves_out_is_refused",
        package="pipelines",
    ),
]
