"""Settings of the evaluation reach each measurement that they are for, as arguments of what
computes it; settings that a bound depends on reach its calibration, too.
"""

from collections import defaultdict
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from ftmodel.synthetic import PROCESSES
from pipelines.artifacts.tokens.shards import Shards
from pipelines.config.data import ProcessData, TextData
from pipelines.config.schema import EvaluationConfig
from pipelines.evaluate import bounds, codes, generations, hidden_causes, stage, target
from tests.evaluate.conftest import tiny
from tests.support.arrivals import arrives
from tests.support.corpora import write_shards

CONTEXT, VOCABULARY = 16, 50
SETTINGS = EvaluationConfig(  # no two alike, and none its default
    tokens=90,
    max_particles=9,
    filters=4,
    resample_below=0.25,
    proposal=0.125,
    iwae_samples=6,
    own_text_rows=3,
    groups=7,
    group_size=5,
    probe_sequences=44,
    bit_tokens=100,
    swap_tokens=110,
    steering_prompts=5,
    steering_z=2,
    steering_draws=8,
    steering_length=3,
    seed=19,
)
ROWS = 3  # of the model's context at once
WATCHED = {  # what a function is told, by its name in any module of the evaluation
    "generator": lambda seed, *_: seed,
    "noise_of": lambda batch, width, seed, *_: seed,
    "held_out": lambda shards, context, tokens: tokens,
    "calibrated": lambda model, shards, settings, tokens, *_: tokens,
    "packed": lambda chunks, context, rows, *_, **__: rows,
    "posterior": lambda model, texts, rows: rows,
    "interpolated_ce": lambda model, texts, q, donor, rows, rng: rows,
    "swapped_ce": lambda model, texts, donor, samples, rows, rng: rows,
    "encode": lambda model, tokens, *_: len(tokens),
    "generate": lambda model, prompt, new, **_: (len(prompt), new),
    "calibrate": lambda estimates, tokens, scored, most, shares, _: (most, *shares),
    "filter_estimates": lambda model, chunks, settings, filters, *_: filters,
    "nll_bound": lambda model, inputs, targets, particles, draw, ids, settings: (
        *(particles, settings.resample_below, settings.proposal),
    ),
    "sample_text": lambda model, first, length, rng: (len(first), length),
    "both_bounds": lambda model, text, particles, filters, draw, how: (
        *(len(text.tokens), filters, how.resample_below, how.proposal, how.stratify),
    ),
    "DocumentScores": lambda filters, **_: filters,
    "latent_bounds": lambda model, inputs, targets, samples, *_: samples,
    "sample_counts": lambda samples: samples,
    "sample_with_starts": lambda count, rng: count,
    "different_codes": lambda bits, count, rng: count,
    "beginnings": lambda shards, context, prompts: prompts,
}


@pytest.fixture
def asked(monkeypatch):
    """Evaluates a model; returns what each module has told the functions that are watched."""

    def watch(told, original, value):
        def watched(*arguments, **keywords):
            told.add(value(*arguments, **keywords))
            return original(*arguments, **keywords)

        return watched

    def evaluate(model, shards, data, **changes):
        settings = replace(SETTINGS, batch_tokens=ROWS * model.config.context, **changes)
        seen = defaultdict(set)
        with monkeypatch.context() as patch:
            for module in (bounds, codes, generations, hidden_causes, target):
                for name in WATCHED.keys() & vars(module).keys():
                    told = seen[module.__name__.rpartition(".")[2], name]
                    patch.setattr(module, name, watch(told, getattr(module, name), WATCHED[name]))
            stage.evaluate(model, shards, data, settings, torch.device("cpu"))
        found = defaultdict(dict)
        for (module, name), told in seen.items():
            if told:
                found[module][name] = told
        return found

    return evaluate


@pytest.fixture
def text(tmp_path, monkeypatch):
    """Twelve documents of 20 ids, each after an end of text, in either part."""
    monkeypatch.setattr(Shards, "token_bytes", lambda _: torch.ones(VOCABULARY))
    decode = SimpleNamespace(decode=str)
    monkeypatch.setattr(Shards, "tokenizer", lambda _: decode)
    rng = torch.Generator().manual_seed(0)
    ids = [torch.randint(1, VOCABULARY, (12, 21), generator=rng) for _ in "12"]
    for part in ids:
        part[:, 0] = 0
    train, validation = ([*part.flatten().tolist(), 0] for part in ids)
    return write_shards(tmp_path / "text", [train], [validation], VOCABULARY)


def of_process(folder, name, latent_bits):
    """A model, shards and data of a process, 30 rows held out."""
    process, rng = PROCESSES[name], torch.Generator().manual_seed(3)
    draw = process.sample_labelled
    ids = (draw(30, rng)[0] if draw else process.sample(30, rng)).flatten().tolist()
    shards = write_shards(folder / name, [ids], [ids], len(process.symbols), process.row)
    data = ProcessData(name, train_sequences=1, validation_sequences=30, seed=3)
    return tiny(latent_bits, len(process.symbols), process.row - 1), shards, data


def together(*told):
    """What several measurements of one module tell: the union for each name."""
    return {
        name: set().union(*(each.get(name, set()) for each in told)) for name in set().union(*told)
    }


def own_text(context, **how):
    """What the gap on its own text tells."""
    return {
        "sample_text": {(3, context)},
        "both_bounds": {(3, 4, *how.values())},
        "generator": {19},
    }


def bounds_of(tokens, **others):
    """What bounds of a Free Transformer tell."""
    return {
        "calibrated": {tokens},
        "held_out": {tokens},
        "packed": {ROWS},
        "DocumentScores": {4},
        "noise_of": {19},
        "latent_bounds": {6},
        "sample_counts": {6},
    } | others


@arrives("evaluation", "tokens batch_tokens max_particles filters resample_below proposal")
@arrives("evaluation", "iwae_samples own_text_rows bit_tokens swap_tokens seed")
@arrives("evaluation", "steering_prompts steering_z steering_draws steering_length")
@pytest.mark.parametrize("per", ["token", "sequence"])
def test_every_measurement_of_text_does_as_the_settings_say(asked, text, per):
    found = asked(tiny(3, VOCABULARY, CONTEXT, latent={"per": per}), text, TextData())
    rows_of_bits = found["codes"].pop("encode")
    assert max(rows_of_bits) == ROWS
    swaps = {"held_out": {110}, "generator": {19}}
    bits = {"held_out": {100}, "packed": {ROWS}, "noise_of": {19}, "generator": {19}}
    expected = {
        "generations": {
            "beginnings": {3, 5}, "held_out": {3 * CONTEXT, 5 * CONTEXT}, "generator": {19},
            "generate": {(4 * 7, 9), (2 * 8, 1 + 3)}, "different_codes": {2},
        },
        "codes": together(bits, swaps, {"swapped_ce": {ROWS}}),
    }  # fmt: skip
    if per == "token":
        particles = found["bounds"].pop("nll_bound")
        assert {each[1:] for each in particles} == {(0.25, 0.125)}
        calibrated = {"calibrate": {(9, 0.125)}, "filter_estimates": {2 * 4}}
        gap = own_text(CONTEXT, below=0.25, proposal=0.125, calibrated=True)
        expected["bounds"] = together(bounds_of(90, filter_estimates={4}), calibrated, gap)
    else:
        expected["bounds"] = bounds_of(90)
        expected["codes"] |= {"posterior": {ROWS}, "interpolated_ce": {ROWS}}
    assert found == expected


@arrives("evaluation", "particles groups group_size probe_sequences")
@pytest.mark.parametrize("name", ["target", "coin", "factors"])
def test_every_measurement_of_a_process_does_as_the_settings_say(asked, tmp_path, name):
    """With so many particles that none are calibrated, and a baseline on the factors."""
    bits, seeded = 0 if name == "factors" else 3, {"generator": {19}}
    process = of_process(tmp_path, name, bits)
    found = asked(*process, particles=5, tokens=10 * process[0].config.context)
    tokens = 10 * process[0].config.context
    filters = {"filter_estimates": {4}, "nll_bound": {(5, 0.25, 0.125)}}
    gap = own_text(process[0].config.context, below=0.25, proposal=0.125, calibrated=False)
    expected = {"bounds": bounds_of(tokens, **filters) | gap}
    if name == "target":
        expected["generations"] = seeded | {"generate": {(6 * 7, 64)}}
        expected["target"] = seeded | {
            "sample_with_starts": {44, 11}, "encode": {ROWS, 2},
            "generate": {(7 * 5, 64), (11, 64)},
        }  # fmt: skip
    elif name == "coin":
        scored = {"held_out": {tokens}, "packed": {ROWS}, "noise_of": {19}}
        expected["hidden_causes"] = seeded | scored
    else:
        expected = {
            "bounds": {name: bounds_of(tokens)[name] for name in
                       ("calibrated", "held_out", "packed", "DocumentScores")},
            "hidden_causes": seeded | {"held_out": {tokens}, "generate": {(ROWS, 7), (1, 7)}},
        }  # fmt: skip
    assert found == expected
