"""Wrong versions of the export of a Free Transformer with its own code."""

from tests.wrong_versions import Wrong

ADAPTER = "export/modeling_free_transformer.py"
TESTS = "export/test_free_transformer.py"


def wrong(name, old, new, test, file=ADAPTER):
    return Wrong(name, file, old, new, f"{TESTS}::{test}", "pipelines")


WRONG = [
    wrong(
        "an exported model whose forward encodes what it scores",
        "encode_prompt: bool = False",
        "encode_prompt: bool = True",
        "test_forward_draws_z_from_the_prior_and_reads_nothing_ahead",
    ),
    wrong(
        "z of the prompt of an exported model from the prior",
        'prepared["encode_prompt"] = not check_cache(past_key_values)',
        'prepared["encode_prompt"] = False',
        "test_samples_are_of_the_model",
    ),
    wrong(
        "all sequences of an exported model with one z",
        "return torch.rand(size, device=device)",
        "return torch.rand(1, *size[1:], device=device).expand(size)",
        "test_samples_are_of_the_model",
    ),
    wrong(
        "padding read by an exported model",
        "            padding=padding,\n",
        "            padding=None,\n",
        "test_the_same_noise_gives_the_same_greedy_tokens",
    ),
    wrong(
        "right padding taken for left padding",
        "(read[:, :-1] & ~read[:, 1:]).any() or not read[:, -1].all()",
        "not read.any()",
        "test_generate_refuses_by_name[right]",
    ),
    wrong(
        "an exported model whose prior is not uniform",
        "prior_noise=None if encode_prompt else noise,",
        "prior_noise=None if encode_prompt else noise * 1.2,",
        "test_z_without_noise_are_independent_and_uniform",
    ),
    wrong(
        "noise of the first position for every new token",
        "given[:, start:end]",
        "given[:, :length]",
        "test_the_same_noise_gives_the_same_greedy_tokens",
    ),
    wrong(
        "shared noise that counts padding",
        "(positions - padding[:, None]).clamp(min=0)",
        "positions.clamp(min=0)",
        "test_noise_without_rows_is_shared_from_the_first_token_of_each_on",
    ),
    wrong(
        "noise of a prompt given to sequences of another",
        "repeat_interleave(rows // len(given), dim=0)",
        "repeat(rows // len(given), 1, 1)",
        "test_sequences_of_a_prompt_have_z_of_their_own_or_shared",
    ),
    wrong(
        "a cache filled by forward taken for one of generate",
        'or not getattr(cache, "prompt_encoded", False)',
        "",
        "test_caches_that_are_refused_by_name",
    ),
    wrong(
        "a tied read-out that transformers does not know of",
        '{"model.readout.weight": "model.embedding.weight"}',
        "{}",
        "test_saved_again_it_is_the_same[tied]",
    ),
    wrong(
        "exported code that imports ours",
        r"((?:ftmodel\.model|pipelines\.export)\.(\w+))",
        r"((?:pipelines\.export)\.(\w+))",
        "test_the_code_is_ours_and_imports_nothing_of_ours",
        "export/free_transformer.py",
    ),
    wrong(
        "an exported model of another precision than its weights",
        'dtype=str(model.embedding.weight.dtype).removeprefix("torch.")',
        'dtype="float32"',
        "test_in_bfloat16",
        "export/free_transformer.py",
    ),
]
