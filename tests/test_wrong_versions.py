"""Wrong versions of ftmodel, each a mistake that is easy to make, must each fail a named test.

Public re-implementations of the paper pass all their own tests with the encoder made causal, the
injection removed, or the gradient cut. Here ftmodel and its tests are copied, one piece of text is
replaced, and the test that exists to notice it is run on the copy.
"""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]


@dataclass
class Wrong:
    """A replacement in one file of ftmodel, and the test (file::function) that must fail on it."""

    name: str
    file: str
    old: str
    new: str
    noticed_by: str


ENCODE = "self.encoder_block(self.zeta, x, rope, causal=False)"
UPPER = "self.upper(x, x + r, rope, cache), codes, o"
KEYS_VALUES = "keys_values = queries if kv is q else self.attention_norm(kv)"

WRONG = [
    Wrong(
        "encoder causal",
        "transformer.py",
        ENCODE,
        "self.encoder_block(self.zeta, x, rope, causal=True)",
        "test_transformer.py::test_bits_of_the_first_position_know_the_last_token",
    ),
    Wrong(
        "encoder without RoPE",
        "transformer.py",
        ENCODE,
        "self.encoder_block(self.zeta, x, torch.ones_like(rope), causal=False)",
        "test_transformer.py::test_bits_know_their_position",
    ),
    Wrong(
        "encoder with RoPE on its queries only",
        "layers.py",
        "keys, values = rotate(self.heads(k), rope), self.heads(v)",
        "keys, values = rotate(self.heads(k), rope) if causal else self.heads(k), self.heads(v)",
        "test_transformer.py::test_bits_know_the_order_of_what_they_read",
    ),
    Wrong(
        "encoder queries from x",
        "transformer.py",
        ENCODE,
        "self.encoder_block(x, x, rope, causal=False)",
        "test_transformer.py::test_encoder_is_a_non_causal_block_with_rope_that_zeta_queries",
    ),
    Wrong(
        "r added to the residual",
        "transformer.py",
        UPPER,
        "self.upper(x + r, x + r, rope, cache), codes, o",
        "test_transformer.py::test_forward_equals_algorithm_2",
    ),
    Wrong(
        "r added to the queries",
        "layers.py",
        "queries = self.attention_norm(q)",
        "queries = self.attention_norm(kv if kv.shape == q.shape else q)",
        "test_transformer.py::test_forward_equals_algorithm_2",
    ),
    Wrong(
        "norm(x) + r in place of norm(x + r)",
        "layers.py",
        KEYS_VALUES,
        "keys_values = queries + (kv - q) if causal else self.attention_norm(kv)",
        "test_transformer.py::test_forward_equals_algorithm_2",
    ),
    Wrong(
        "r not injected",
        "transformer.py",
        UPPER,
        "self.upper(x, x, rope, cache), codes, o",
        "test_transformer.py::test_forward_equals_algorithm_2",
    ),
    Wrong(
        "block L/2 + 1 run twice",
        "transformer.py",
        "range(first + 1, self.config.n_layers)",
        "range(first, self.config.n_layers)",
        "test_transformer.py::test_forward_equals_algorithm_2",
    ),
    Wrong(
        "block L/2 + 1 skipped",
        "transformer.py",
        "first = self.config.lower_blocks\n",
        "first = min(self.config.lower_blocks + 1, self.config.n_layers - 1)\n",
        "test_transformer.py::test_forward_equals_algorithm_2",
    ),
    Wrong(
        "r injected half-way wherever latent_block says",
        "config.py",
        "return self.n_layers // 2 if self.latent_block is None else self.latent_block - 1",
        "return self.n_layers // 2",
        "test_transformer.py::test_forward_equals_algorithm_2",
    ),
    Wrong(
        "gradient through the sampled code only",
        "mapper.py",
        "g = g.unflatten(",
        "g = (g * torch.eye(1 << h).to(g)[codes.flatten()]).unflatten(",
        "test_mapper.py::test_value_and_gradients_equal_the_dense_straight_through_form",
    ),
    Wrong(
        "gradient detached",
        "mapper.py",
        "BinaryMapper.apply(o, noise, table)",
        "BinaryMapper.apply(o.detach(), noise, table)",
        "test_transformer.py::test_cross_entropy_alone_reaches_every_parameter",
    ),
    Wrong(
        "encoder's gradient kept from the lower half",
        "transformer.py",
        "o = self.latent.encode(x, rope)",
        "o = self.latent.encode(x.detach(), rope)",
        "test_transformer.py::test_gradients_equal_those_of_algorithm_2",
    ),
    Wrong(
        "bit order reversed between mapper and table",
        "mapper.py",
        "weights = 1 << torch.arange(bits.shape[-1], device=bits.device)",
        "weights = 1 << torch.arange(bits.shape[-1], device=bits.device).flip(0)",
        "test_mapper.py::test_bit_h_of_a_code_is_worth_two_to_the_h",
    ),
    Wrong(
        "hinge after averaging",
        "objective.py",
        "(kl - kappa_bits * LN2).clamp(min=0).mean()",
        "(kl.mean() - kappa_bits * LN2).clamp(min=0)",
        "test_objective.py::test_hinge_is_taken_per_token_before_the_mean",
    ),
    Wrong(
        "KL halved",
        "objective.py",
        "return LN2 - entropy",
        "return (LN2 - entropy) / 2",
        "test_objective.py::test_kl_equals_the_sum_over_all_codes",
    ),
    Wrong(
        "KL in bits",
        "objective.py",
        "return LN2 - entropy",
        "return 1 - entropy / LN2",
        "test_objective.py::test_kl_equals_the_sum_over_all_codes",
    ),
    Wrong(
        "κ taken as nats",
        "objective.py",
        "(kl - kappa_bits * LN2)",
        "(kl - kappa_bits)",
        "test_objective.py::test_kappa_is_in_bits_and_kl_in_nats",
    ),
    Wrong(
        "decay from the end of the warm-up on",
        "schedule.py",
        "max(0, step - start) / (steps - start)",
        "(step - warmup) / (steps - warmup)",
        "test_schedule.py::test_wsd_is_stable_and_then_one_minus_the_root_of_what_has_passed_of_the_decay",
    ),
    Wrong(
        "no decay at all in a budget of few steps",
        "schedule.py",
        "max(1, round(decay * steps))",
        "round(decay * steps)",
        "test_schedule.py::test_the_decay_is_its_share_of_whole_steps_and_at_least_one",
    ),
    Wrong(
        "zero reached at the last step of the decay",
        "schedule.py",
        "/ (steps - start))",
        "/ (steps - 1 - start))",
        "test_schedule.py::test_warm_up_is_linear_and_zero_would_be_reached_one_step_after_the_last",
    ),
    Wrong(
        "z of the prompt from the prior",
        "generate.py",
        "model(prompt, noise=noise, cache=cache)",
        "model(prompt, codes=None if noise is None else pack_bits(noise < 0.5), cache=cache)",
        "test_generate.py::test_z_of_the_prompt_comes_from_the_encoder_reading_the_prompt_alone",
    ),
    Wrong(
        "prior not uniform",
        "generate.py",
        "pack_bits(noise[:, p:] < 0.5)",
        "pack_bits(noise[:, p:] < 0.4)",
        "test_generate.py::test_new_z_is_uniform_over_all_codes",
    ),
    Wrong(
        "cached generation off by one position",
        "transformer.py",
        "self.rope(cache[0].length if cache else 0,",
        "self.rope(max(cache[0].length - 1, 0) if cache else 0,",
        "test_generate.py::test_cached_generation_equals_the_full_forward_pass",
    ),
    Wrong(
        "pinned codes off by one",
        "generate.py",
        "codes[:, i : i + 1]",
        "codes[:, i + 1 : i + 2]",
        "test_generate.py::test_given_codes_are_used_in_order",
    ),
    Wrong(
        "a chunk read after others without their shift in the mask",
        "layers.py",
        ".tril(past)",
        ".tril()",
        "test_generate.py::test_reading_in_chunks_equals_reading_at_once",
    ),
    Wrong(
        "ELBO without KL",
        "bounds.py",
        "elbo=mean_ce + kl",
        "elbo=mean_ce",
        "test_bounds.py::test_elbo_is_the_posterior_cross_entropy_plus_kl",
    ),
    Wrong(
        "IWAE averaging logarithms",
        "bounds.py",
        "log(samples) - torch.stack(log_w).logsumexp(0)",
        "-torch.stack(log_w).mean(0)",
        "test_bounds.py::test_iwae_starts_at_the_elbo_and_tightens_towards_the_nll",
    ),
    Wrong(
        "IWAE without its weights",
        "bounds.py",
        "-nll + log_prior - log_q",
        "-nll",
        "test_bounds.py::test_sampled_probability_is_unbiased",
    ),
]


def run_copy(folder, tests, wrong=None):
    """Run tests (file::function) on a copy of ftmodel in ``folder``, altered as ``wrong`` says.

    Started in the copy, with a pytest.ini of its own, so that neither this checkout nor an
    installed ftmodel comes before it; tests/conftest.py checks that.
    """
    skip = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "ftmodel", folder / "ftmodel", ignore=skip)
    shutil.copytree(ROOT / "tests/ftmodel", folder / "tests/ftmodel", ignore=skip)
    shutil.copy(ROOT / "tests/conftest.py", folder / "tests")
    (folder / "pytest.ini").write_text("[pytest]\n")
    if wrong:
        source = folder / "ftmodel" / wrong.file
        text = source.read_text()
        assert text.count(wrong.old) == 1, f"{wrong.file} no longer has once: {wrong.old}"
        source.write_text(text.replace(wrong.old, wrong.new))
    options = ["-q", "--tb=short", "-p", "no:cacheprovider"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, *(f"tests/ftmodel/{t}" for t in tests)],
        cwd=folder,
        env=os.environ
        | {
            "PYTHONPATH": str(folder),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTEST_ADDOPTS": "",
            "FTMODEL_UNDER_TEST": str(folder / "ftmodel"),
        },
        capture_output=True,
        text=True,
    )


def test_the_right_version_passes(tmp_path):
    result = run_copy(tmp_path, sorted({w.noticed_by for w in WRONG}))
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("wrong", WRONG, ids=lambda w: w.name)
def test_a_wrong_version_is_noticed(tmp_path, wrong):
    """By a failed assertion: exit code 1, and no exception but AssertionError."""
    result = run_copy(tmp_path, [wrong.noticed_by], wrong)
    report = result.stdout + result.stderr
    assert result.returncode == 1, report
    raised = re.findall(r"^E   (\S+)", result.stdout, re.MULTILINE)
    errors = {word for word in raised if re.fullmatch(r"(\w+\.)*\w*(Error|Exception):?", word)}
    assert errors <= {"AssertionError:"}, report


def test_another_ftmodel_than_the_copy_stops_the_tests(tmp_path):
    """The guard itself: with the wrong package imported nothing is run, and the code is not 1."""
    env = os.environ | {"FTMODEL_UNDER_TEST": str(tmp_path)}
    command = [sys.executable, "-m", "pytest", "-q", "tests/ftmodel/test_target_scores.py"]
    result = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert result.returncode == 4, result.stdout
    assert "is imported" in result.stdout + result.stderr
