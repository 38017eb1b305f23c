"""Evaluation: the same held-out documents for every arm, exact figures, repeatable."""

import json
import math
from dataclasses import replace
from errno import ENOSPC
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
import yaml
from scipy.stats import binom

from ftmodel.analysis.information import label_information, observation_information
from ftmodel.costs.training import parameters
from ftmodel.inference.filtering import filtering_bound
from ftmodel.synthetic import PROCESSES, coin_flip
from ftmodel.synthetic.target import ALPHABET
from pipelines.artifacts.checkpoint import Manifest
from pipelines.artifacts.packing import held_out
from pipelines.artifacts.result_files import plain_data
from pipelines.artifacts.run_spec import RunSpec
from pipelines.artifacts.tokens.shards import Shards
from pipelines.config import derived
from pipelines.config.compose import compose_config
from pipelines.config.data import ProcessData, TextData
from pipelines.config.load import load_experiment, parse
from pipelines.config.schema import EvaluationConfig
from pipelines.evaluate import generations, hidden_causes, stage
from pipelines.evaluate.measurement import Context
from pipelines.evaluate.stage import evaluate, headline, measure
from pipelines.host.errors import UserError
from pipelines.host.pytorch import device_name
from tests.evaluate.conftest import tiny
from tests.support.corpora import write_shards
from tests.support.mutants import rejects
from tests.support.settings import each_changed, smoke
from tests.support.training import RUN, train_run

SETTINGS = EvaluationConfig(
    tokens=1300,
    batch_tokens=260,
    particles=8,
    iwae_samples=2,
    groups=2,
    group_size=5,
    probe_sequences=32,
)
CPU = torch.device("cpu")
MANIFEST = Manifest("e", "r", {}, {}, 29, data_hash="another", spec_hash="")
TEXT = TextData()


def figures(*arguments):
    """Figures and details without what depends on the machine."""
    evaluation, details = evaluate(*arguments, CPU)
    assert evaluation.tokens_per_second > 0
    return replace(evaluation, tokens_per_second=0.0), details


@pytest.fixture
def text(tokenized):
    return Shards(tokenized.folder / "data/tokens/stdlib")


def process(folder, name, n=40, rows=None):
    """Shards of a process's held-out rows, and its data."""
    kind = PROCESSES[name]
    if rows is None:
        rng = torch.Generator().manual_seed(0)
        rows = labelled(name, n)[0] if kind.sample_labelled else kind.sample(n, rng)
    ids = rows.flatten().tolist()
    shards = write_shards(folder / name, [ids], [ids], len(kind.symbols), kind.row)
    return shards, ProcessData(name, train_sequences=1, validation_sequences=n)


def labelled(name, n=40, seed=0):
    return PROCESSES[name].sample_labelled(n, torch.Generator().manual_seed(seed))


@pytest.fixture
def target(tmp_path):
    return process(tmp_path, "target", 64)


def of_text(text, latent_bits):
    return tiny(latent_bits, text.metadata.vocab_size, 64)


def test_target_figures_of_a_baseline(target):
    """Of 20 sequences; the exact NLL is that of the same sequences."""
    evaluation, details = figures(tiny(0), *target, SETTINGS)
    pieces = list(held_out(target[0], 65, SETTINGS.tokens))
    sequences = torch.stack([torch.from_numpy(piece.tokens) for piece in pieces])
    exact = -PROCESSES["target"].log_probability(sequences).mean() / 65
    bits = evaluation.bits_per_token
    assert (evaluation.documents, evaluation.tokens) == (20, 1300)
    assert bits.exact.mean == pytest.approx(exact.item() / math.log(2), rel=1e-6)
    gap = (bits.nll.mean - bits.exact.mean) * math.log(2)
    assert evaluation.gap_nats_per_token.mean == pytest.approx(gap, rel=1e-5)
    assert list(details.groups) == ["fresh"]
    assert sum(details.bound_bits) / 1300 == pytest.approx(bits.nll.mean, rel=1e-5)
    assert details.document_tokens == [65] * 20
    assert headline(evaluation) == {
        "bound_bits_per_token": bits.nll.mean,
        "gap_nats_per_token": evaluation.gap_nats_per_token.mean,
        "valid": evaluation.fresh.valid,
    }
    assert plain_data(bits).keys() == {"nll", "exact"} and evaluation.iwae_by_samples is None
    assert evaluation.bits_per_byte is None and evaluation.elbo_gap_nats_per_token is None
    assert evaluation.label is None and evaluation.latent is None and details.latent is None
    assert evaluation.pinned is None


def test_a_random_prefix_has_a_bound_and_is_pinned_where_z_would_be(target, tmp_path):
    model = tiny(0, random_prefix=2)
    evaluation, details = figures(model, *target, SETTINGS)
    assert evaluation == figures(model, *target, SETTINGS)[0]
    bits = evaluation.bits_per_token
    assert plain_data(bits).keys() == {"filtering", "exact"} and bits.bound == bits.filtering
    assert bits.filtering.monte_carlo > 0 and evaluation.latent is None
    assert evaluation.pinned and len(details.generations[0].pinned) == generations.PINNED
    star = process(tmp_path, "path_star_2")
    model = tiny(0, star[0].metadata.vocab_size, 28, random_prefix=1)
    assert figures(model, *star, SETTINGS)[0].answers_right.mean < 0.5


def test_a_free_transformer_is_measured_by_its_bounds_and_repeatably(target):
    model = tiny()
    evaluation, details = figures(model, *target, SETTINGS)
    bits = evaluation.bits_per_token
    gap = evaluation.gap_nats_per_token.mean
    assert gap == pytest.approx((bits.filtering.mean - bits.exact.mean) * math.log(2), rel=1e-4)
    assert sum(details.bound_bits) / 1300 == pytest.approx(bits.filtering.mean, rel=1e-5)
    loose = bits.elbo.mean - bits.exact.mean
    assert evaluation.elbo_gap_nats_per_token.mean == pytest.approx(loose * math.log(2))
    assert evaluation.latent.aggregate_bits.at_most == pytest.approx(65 * loose)
    assert len(details.latent.start_bits) == len(details.latent.next_bits) == 65
    assert list(evaluation.iwae_by_samples) == [1, 2]
    assert evaluation.iwae_by_samples[2].mean == pytest.approx(bits.iwae.mean)
    assert evaluation.iwae_by_samples[2].se == pytest.approx(bits.iwae.se)
    assert len(details.kl_per_bit) == 3
    assert sum(details.kl_per_bit) == pytest.approx(bits.kl.mean, rel=1e-4)
    assert (evaluation.fresh.groups, evaluation.pinned.group_size) == (2, 5)
    shown = headline(evaluation)
    assert shown["bound_bits_per_token"] == bits.filtering.mean
    assert shown["use_bits_per_token"] == bits.use.mean
    assert shown["kl_bits_per_token"] == bits.kl.mean
    assert repr(
        [shown[name] for name in ("spread_fresh", "spread_pinned", "noise_pinned")]
    ) == repr(
        [evaluation.fresh.spread, evaluation.pinned.spread, evaluation.pinned.noise]
    )  # of which NaN is equal to NaN
    assert figures(model, *target, SETTINGS) == (evaluation, details)


def test_all_of_the_held_out_text_is_scored_where_nothing_is_capped(text):
    split = text.metadata.splits["validation"]
    settings = EvaluationConfig(tokens=None, batch_tokens=2048, particles=8)
    evaluation, details = figures(of_text(text, 0), text, TEXT, settings)
    assert evaluation.documents == split.documents
    assert evaluation.tokens == split.tokens  # an end of text is predicted, and one is given
    assert evaluation.bytes == split.bytes == sum(details.document_bytes)
    for unit, total in (("token", split.tokens), ("byte", split.bytes)):
        mean = getattr(evaluation, f"bits_per_{unit}").nll.mean
        assert mean == pytest.approx(sum(details.bound_bits) / total, rel=1e-5)
    assert len(details.generations) == 3


def test_bounds_per_byte_and_what_z_does_in_text_from_the_seed_of_evaluation(text):
    model = of_text(text, 3)
    small = replace(SETTINGS, tokens=260, steering_prompts=2, bit_tokens=1300, swap_tokens=1300)
    (first, shown), (again, _), (second, others) = (
        figures(model, text, TEXT, replace(small, seed=seed)) for seed in (0, 0, 1)
    )
    for name in ("persistence", "swap", "steering"):
        assert getattr(first, name) == getattr(again, name) != getattr(second, name), name
    assert [b.kl for b in shown.bits] == [b.kl for b in others.bits], "no z is drawn for the KL"
    per_token, per_byte = plain_data(first.bits_per_token), plain_data(first.bits_per_byte)
    names = ["ce", "kl", "elbo", "iwae", "prior", "filtering", "use", "waste"]
    assert list(per_byte) == list(per_token) == names
    ratio = first.tokens / first.bytes
    for key, figure in per_byte.items():
        assert figure["mean"] == pytest.approx(per_token[key]["mean"] * ratio, rel=1e-6)
    off = replace(small, steering_prompts=0, bit_tokens=0, swap_tokens=0)
    none, _ = figures(model, text, TEXT, off)
    assert none.persistence is none.swap is none.steering is None


def test_a_validation_part_without_documents_is_named(tmp_path):
    shards = write_shards(tmp_path / "empty", [[0] * 65], [[]], 3, row=65)
    with pytest.raises(UserError, match=r"empty: its validation part has no document"):
        evaluate(tiny(0, 3, 64), shards, ProcessData("coin"), SETTINGS, CPU)


LEAN = 0.4  # a logit


def leaning(tokens, *_):
    """Logits of three bits, of which bit 1 leans to the sign of ones − zeros."""
    lead = (2 * (tokens == coin_flip.ONE).sum(1) - tokens.shape[1]).sign()
    return LEAN * lead[:, None, None] * torch.tensor([0, 1, 0]).expand(*tokens.shape, 3)


def told(model, shards, data, **settings):
    context = Context(model, shards, data, EvaluationConfig(**{"tokens": None} | settings), CPU)
    return hidden_causes.measure_label(context)


@rejects("hidden_causes.measure_label: «draw()→0.5»", "label information of thresholded bits")
@rejects(
    "hidden_causes.measure_label: «scored→: len(scored)»],", "labels of the first rows under a cap"
)
def test_what_z_tells_of_the_hidden_side_is_found(tmp_path, monkeypatch):
    """And no more than its sampled bits tell: their count over 64 tokens errs at times."""
    model, (shards, data) = tiny(3, 3, 64), process(tmp_path, "coin", 200)
    untold = told(model, shards, data, tokens=None)
    assert untold.text == pytest.approx(1, abs=0.01)  # 64 flips leave little doubt
    assert untold.p_value > 0.01 and untold.whole.value < 0.05
    monkeypatch.setattr(model, "encode", leaning)
    found = told(model, shards, data, tokens=None, batch_tokens=640)
    error = binom.cdf(31, 64, 1 / (1 + math.exp(-LEAN)))
    assert found.value == max(found.per_bit) == found.per_bit[1]
    expected = 1 + error * math.log2(error) + (1 - error) * math.log2(1 - error)
    assert found.value == pytest.approx(expected, abs=0.15)
    assert 0.2 < found.whole.value < 0.8
    assert found.p_value < 0.01 and found.null_mean < found.null_95 < 0.05
    capped = told(model, shards, data, tokens=100 * 64)
    assert capped.value == pytest.approx(expected, abs=0.2)
    scored = labelled("coin", 200)[0][::2]  # a cap takes evenly spaced rows
    exact = observation_information(PROCESSES["coin"].label_posterior(scored))
    assert capped.text == exact != found.text


@rejects(
    "hidden_causes.measure_label: «at.span_starts→None»", "a label told by bits that nothing reads"
)
def test_bits_that_tell_of_a_label_are_those_that_tokens_read(tmp_path, monkeypatch):
    seen = []

    def information(bits, *arguments):
        seen.append(bits)
        return label_information(bits, *arguments)

    monkeypatch.setattr("pipelines.evaluate.hidden_causes.label_information", information)
    told(tiny(3, 3, 64, latent={"per": "every", "every": 16}), *process(tmp_path, "coin"))
    (bits,) = seen
    spans = bits.unflatten(1, (4, 16))
    assert torch.equal(spans, spans[:, :, :1].expand_as(spans)) and len(bits.unique()) == 2


@rejects("bounds.bounds_of: «settings.seed→0»", "bounds with noise of seed 0")
@pytest.mark.parametrize("name", ["target", "coin"])
def test_every_measurement_draws_from_the_seed_of_evaluation(tmp_path, name):
    shards, data = process(tmp_path, name)
    model = tiny(3, shards.metadata.vocab_size, PROCESSES[name].row - 1)
    small = replace(SETTINGS, tokens=260, particles=2, filters=2)
    (first, shown), (second, others) = (
        figures(model, shards, data, replace(small, seed=seed)) for seed in (0, 1)
    )
    assert first.bits_per_token.iwae != second.bits_per_token.iwae
    assert first.bits_per_token.prior != second.bits_per_token.prior
    assert first.bits_per_token.filtering != second.bits_per_token.filtering
    assert first.bits_per_token.exact == second.bits_per_token.exact
    if name == "target":
        assert shown.groups != others.groups
        assert first.latent.reconstruction != second.latent.reconstruction
    else:
        assert first.label.per_bit != second.label.per_bit
        assert shown.coin[0].prior_z != others.coin[0].prior_z
        assert shown.coin[0].encoder_z != others.coin[0].encoder_z


def test_rows_of_another_seed_have_no_labels(tmp_path):
    others = process(tmp_path, "reviews", rows=labelled("reviews", seed=1)[0])
    with pytest.raises(UserError, match="their labels are unknown"):
        told(tiny(), *others)


def test_the_coin_of_a_baseline_has_its_own_probabilities_and_nothing_of_z(tmp_path):
    model, flips = tiny(0, 3, 64), {}
    evaluation, details = figures(model, *process(tmp_path, "coin"), SETTINGS)
    assert evaluation.label is evaluation.elbo_gap_nats_per_token is None
    assert evaluation.latent is evaluation.fresh is None
    for row in labelled("coin")[0]:
        flips["".join("^01"[t] for t in row[1:])] = row[None]
    assert len(details.coin) == 3
    for shown in details.coin:
        hidden = model(flips[shown.flips][:, :-1]).hidden
        own = model.logits(hidden).softmax(-1)[0, :, coin_flip.ONE]
        assert shown.model == pytest.approx(own.tolist(), abs=1e-4)
        assert shown.encoder_z is shown.prior_z is None
    json.dumps(plain_data(details))


@rejects("stage.measure_all: «curve[-1]→run».tokens", "trained tokens as they were configured")
@rejects("stage.measure_all: «parameters→state_dict().values»(", "tied parameters counted twice")
def test_every_budget_is_scored(workspace, monkeypatch):
    """After 5, 15 and 20 steps; z are proposed as κ says, and where it was trained is kept."""
    params = yaml.safe_load(Path("params.yaml").read_text())
    changes = {"kappa_bits": 2.0, "tokens": 20 * 520 + 9, "budgets": [5 * 520 + 7, 15 * 520]}
    params["runs"][RUN] |= changes
    Path("params.yaml").write_text(yaml.safe_dump(params))
    monkeypatch.setenv("GIT_REVISION", "abc123")
    train_run()
    proposals, experiment = [], load_experiment()
    experiment.evaluation = SETTINGS

    def spy(*args):
        proposals.append(args[-1].proposal)
        return filtering_bound(*args)

    monkeypatch.setattr("pipelines.evaluate.bounds.nll_bound", spy)
    monkeypatch.setenv("GIT_REVISION", "another")
    measure(RunSpec(experiment, RUN))
    assert set(proposals) == {0.125}
    details = json.loads((Path("results/smoke") / RUN / "details.json").read_text())
    made = details["manifest"]
    assert (made["git_revision"], made["device"]) == ("abc123", device_name())
    evaluation = json.loads((Path("results/smoke") / RUN / "evaluation.json").read_text())
    budgets = evaluation["budgets"]
    assert [b["tokens"] for b in budgets] == [5 * 520, 15 * 520, 20 * 520]
    assert [b["listed"] for b in budgets] == [5 * 520 + 7, 15 * 520, 20 * 520 + 9]
    config = derived.model_config(experiment, experiment.runs[RUN])
    assert config.tied and evaluation["parameters"] == parameters(config, len(ALPHABET)).total
    assert evaluation["trained_tokens"] == 20 * 520
    assert [b["annealed"] for b in budgets] == [False, False, True]
    assert budgets[-1]["bits_per_token"] == evaluation["bits_per_token"]
    bounds = [b["bits_per_token"]["filtering"]["mean"] for b in budgets]
    assert len(set(bounds)) == 3


@rejects("evaluate.stage.decisive: «, manifest.tracking_key→»,", "figures of an earlier training")
def test_figures_wait_under_all_that_decides_them(tmp_path, monkeypatch):
    """Each setting of evaluation, each identity of the model, the code and torch."""
    monkeypatch.chdir(tmp_path)
    spec, files = RunSpec(smoke(), RUN), []

    def wait(spec=spec, manifest=MANIFEST):
        with stage.unfinished(spec, "evaluate") as waiting:
            files.append(waiting.path("evaluation", stage.decisive(spec, manifest)))

    for _, other in [("", spec.experiment.evaluation), *each_changed(spec.experiment.evaluation)]:
        wait(RunSpec(replace(spec.experiment, evaluation=other), RUN))
    for name in ("spec_hash", "tracking_key", "data_hash"):
        wait(manifest=replace(MANIFEST, **{name: "other"}))
    wait(RunSpec(spec.experiment, "baseline"))
    wait(RunSpec(replace(spec.experiment, name="other"), RUN))
    monkeypatch.setattr(stage, "code_version", {"evaluate": "another"}.__getitem__)
    wait()
    monkeypatch.setattr("torch.__version__", "9.9")
    wait()
    assert len({*files}) == len(files) > 25
    wait(manifest=replace(MANIFEST, git_revision="other"))
    assert files[-1] == files[-2]


def test_a_run_can_be_resumed_until_its_figures_are_written(workspace, monkeypatch):
    """A run that was evaluated by hand is one that DVC trains again. A full GPU is one line."""
    train_run()
    experiment = load_experiment()
    experiment.evaluation = SETTINGS
    kept = [*Path("resume").rglob("*.ckpt")]
    assert kept
    oom = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB. GPU 0 has …")
    words = r"lower evaluation\.batch_tokens or .* \(CUDA out"
    with monkeypatch.context() as patch, pytest.raises(UserError, match=words):
        patch.setattr(stage, "evaluate", Mock(side_effect=oom))
        measure(RunSpec(experiment, RUN))
    write = stage.write_json

    def fill_up(path, content):
        if path.name.startswith("details-"):
            raise OSError(ENOSPC, "No space left on device")
        write(path, content)

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space"):
        patch.setattr(stage, "write_json", fill_up)
        measure(RunSpec(experiment, RUN))
    assert all(path.exists() for path in kept)
    measure(RunSpec(experiment, RUN), clean_up=False)
    assert all(path.exists() for path in kept)
    measure(RunSpec(experiment, RUN))
    assert not any(path.exists() for path in kept)


@rejects("stage.measure_all: «curve[-1].step→len(kl)»", "collapsed by the last row of the curve")
@rejects("stage.measure_all: «kl_of_use(model.config,→»run.kappa_bits«)→»", "collapsed by κ alone")
@pytest.mark.parametrize(
    ("per", "kappa", "kl_bits", "expected"),
    [
        ("token", 0.125, [0.125] * 5 + [0.0], False),
        ("token", 0.125, [0.125] * 4 + [0.0] * 2, True),
        ("sequence", 1.0, [5 / 65] * 6, False),
        ("sequence", 1.0, [0.4 / 65] * 6, True),
    ],
)
def test_a_latent_has_collapsed_if_it_was_unused_for_the_last_third_of_the_curve(
    monkeypatch, per, kappa, kl_bits, expected
):
    """A z of a whole sequence is used with 5 bits in 65 tokens, all that it can tell."""
    monkeypatch.setattr(stage, "evaluate", lambda *_: (SimpleNamespace(), SimpleNamespace()))
    experiment = parse(compose_config(["experiment=smoke"]), "conf")
    experiment.runs[RUN].kappa_bits = kappa
    curve = [
        SimpleNamespace(step=2 * i, tokens=520 * i, kl_bits=bits)
        for i, bits in enumerate(kl_bits, 1)
    ]
    model = tiny(5, latent={"per": per})
    evaluation, _ = stage.measure_all(RunSpec(experiment, RUN), model, None, curve)
    assert (evaluation.collapsed, evaluation.trained_tokens) == (expected, 6 * 520)
