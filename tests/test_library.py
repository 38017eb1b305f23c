"""The public names of ftmodel: the page that explains them runs, and what does not fit is refused
in one line that names it.
"""

import re

import pytest
import torch

import ftmodel
from ftmodel import (
    Noise,
    encode,
    exact_nll,
    filtering_bound,
    from_prior,
    generate,
    latent_bounds,
    new_cache,
    score_answers,
    training_loss,
    with_codes,
)
from tests import ROOT
from tests.support.mutants import rejects


def test_the_page_of_the_library_runs_and_its_training_learns(capsys):
    page = (ROOT / "docs/library.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    scope = {}
    for block in blocks[:3]:  # the last one reads a tokenizer from the hub
        exec(block, scope)
    losses = [float(loss) for loss in re.findall(r"loss (\S+),", capsys.readouterr().out)]
    assert losses[-1] < losses[0] - 1
    assert scope["nats"].shape == (16,) and scope["fresh"].shape == (4, 48)


def test_the_readmes_script_prints_what_it_says(capsys):
    (script,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    exec(script, {})
    shown, printed = script.rpartition("# ")[2], capsys.readouterr().out
    number = r"\d+\.\d+"
    assert re.sub(number, "", printed) == re.sub(number, "", shown)
    here, there = (map(float, re.findall(number, text)) for text in (printed, shown))
    assert [*here] == pytest.approx([*there], abs=0.2)  # other processors round otherwise


def test_every_public_name_is_there_and_on_its_page():
    page = (ROOT / "docs/library.md").read_text()
    for name in ftmodel.__all__:
        assert getattr(ftmodel, name).__name__ == name
        assert name in page, name
    with pytest.raises(AttributeError, match="nothing"):
        ftmodel.nothing  # noqa: B018


INPUTS = torch.zeros(2, 5, dtype=torch.long)
NOISE = torch.zeros(2, 5, 3)


OUTSIDE = torch.linspace(-1, 0.5, 30).view(2, 5, 3)
LONG = torch.zeros(2, 17, dtype=torch.long)


def scored(model, draws, lengths=INPUTS[:, 0] + 1, prompts=INPUTS):
    """Two answers of one token to prompts of five."""
    return score_answers(model, prompts, None, INPUTS[:, :1], lengths, INPUTS[:, 0], draws)


def generated(model, prompt, **more):
    return generate(model, prompt, 1, generator=torch.Generator(), **more)


WRONG = {
    "noise: .*not None": lambda free, _: free(INPUTS),
    r"noise: .*\(1, 5, 3\), not \(2, 5, 3\)": lambda free, _: free(INPUTS, NOISE[:1]),
    r"noise: .*\(2, 5, 1\)": lambda free, _: from_prior(free, INPUTS, NOISE[..., :1]),
    "noise: .*int64": lambda free, _: free(INPUTS, NOISE.long()),
    "noise: it is on meta, the tokens are on cpu": lambda free, _: free(INPUTS, NOISE.to("meta")),
    "noise: a baseline": lambda _, baseline: baseline(INPUTS, NOISE),
    "codes: a baseline": lambda _, baseline: with_codes(baseline, INPUTS, INPUTS),
    r"codes: .*\(2, 4\)": lambda free, _: with_codes(free, INPUTS, INPUTS[:, 1:]),
    "codes: .* 0 … 7": lambda free, _: with_codes(free, INPUTS, INPUTS + 8),
    "codes: .* 0 … 7$": lambda free, _: with_codes(free, INPUTS, INPUTS - 1),
    "cache: .*room for 4 positions, not for 5": (
        lambda _, baseline: baseline(INPUTS, cache=new_cache(baseline.config, 4))
    ),
    "cache: it holds 5 tokens": (
        lambda free, _: [
            free(INPUTS, NOISE, cache=cache) for cache in [new_cache(free.config, 9)] * 2
        ]
    ),
    "documents: .*not": lambda free, _: free.positions(INPUTS, documents=INPUTS[:1]),
    "padding: .*not": lambda free, _: free.positions(INPUTS, padding=INPUTS[0]),
    "targets: .*not": lambda free, _: training_loss(free, INPUTS, INPUTS[:, :1], NOISE, 0.5),
    "targets: .*not .": lambda _, baseline: exact_nll(baseline, INPUTS, INPUTS[:1]),
    "kappa_bits: .*not None": lambda free, _: training_loss(free, INPUTS, INPUTS, NOISE),
    r"noise: .*\(2, 1, 3\)": (
        lambda free, _: filtering_bound(free, INPUTS, INPUTS, 2, lambda: NOISE[:, :1])
    ),
    r"noise: .*\(5, 3\)": lambda free, _: latent_bounds(free, INPUTS, INPUTS, 2, lambda: NOISE[0]),
    "noise: from -1 to 0.5, not uniform on": lambda free, _: free(INPUTS, OUTSIDE),
    "noise: from 0 to 1, ": lambda free, _: training_loss(
        free, INPUTS, INPUTS, NOISE.index_fill(1, INPUTS[0, :1], 1.0), 0.5
    ),
    "noise: from nan": lambda free, _: encode(free, INPUTS, NOISE / 0),
    "noise: from -1": lambda free, _: from_prior(free, INPUTS, OUTSIDE),
    "noise: from -1 ": lambda free, _: filtering_bound(free, INPUTS, INPUTS, 2, lambda: OUTSIDE),
    "noise: from -1 t": lambda free, _: latent_bounds(free, INPUTS, INPUTS, 2, lambda: OUTSIDE),
    "noise: from -1 to": lambda free, _: generated(free, INPUTS, z=Noise(OUTSIDE)),
    "draws: from -1": lambda free, _: scored(free, [OUTSIDE]),
    "tokens: .*no token": lambda free, _: free(INPUTS[:, :0], NOISE[:, :0]),
    "tokens: .*no token$": lambda _, baseline: exact_nll(baseline, INPUTS[:0], INPUTS[:0]),
    r"prompt: .*\(2, 0\), not": lambda free, _: generated(free, INPUTS[:, :0]),
    r"prompt: .*\(5,\), not": lambda _, baseline: generated(baseline, INPUTS[0]),
    "padding: .*keep a token": lambda free, _: generated(free, INPUTS, padding=INPUTS[:, 0] + 5),
    "prompts and answers: .*at least": lambda free, _: scored(free, [NOISE], prompts=INPUTS[:, :0]),
    "tokens: a row of 17 exceeds the context of 16": lambda free, _: training_loss(
        free, LONG, LONG, torch.zeros(2, 17, 3), 0.5
    ),
    "tokens: a row of 17": lambda _, baseline: exact_nll(baseline, LONG, LONG),
    "tokens: a row of 20": lambda _, baseline: [
        baseline(LONG[:, :10], cache=cache) for cache in [new_cache(baseline.config, 20)] * 2
    ],
    "draws: a baseline": lambda _, baseline: scored(baseline, [NOISE]),
    "draws: .*not None": lambda free, _: scored(free, None),
    r"draws: .*\(2, 4, 3\), not \(2, 5, 3\)": lambda free, _: scored(free, [NOISE[:, 1:]]),
    "lengths: .*not": lambda free, _: scored(free, [NOISE], lengths=INPUTS[0]),
    "model: a baseline has no enc": lambda _, baseline: encode(baseline, INPUTS, NOISE),
    "model: a baseline": (
        lambda _, baseline: filtering_bound(baseline, INPUTS, INPUTS, 2, lambda: NOISE)
    ),
}


@rejects(
    "noise.check_uniform: (low >= 0 «and high < 1→»)",
    "noise of 1 taken",
    case="noise: from 0 to 1, ",
)
@rejects(
    "positions.Positions.of: «start + tokens.shape[1]→tokens.shape[1]» > longest",
    "a cache longer than the context",
    case="tokens: a row of 20",
)
@rejects("positions.check_like: «shape != shape→dim() != len(shape)»", "arguments are broadcast")
@pytest.mark.parametrize(("message", "call"), WRONG.items(), ids=WRONG)
def test_what_does_not_fit_is_named(make_model, message, call):
    said = "nothing"
    try:
        call(make_model(), make_model(latent_bits=0))
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    assert re.search(f"^ValueError: {message}", said)


def test_compiled_code_does_not_read_noise(make_model):
    """It would break its graph; on a GPU only a model's first noise is read."""
    model = make_model()
    graph = torch.compile(model, backend="eager", fullgraph=True)
    assert graph(INPUTS, NOISE).hidden.shape == (2, 5, 16)
    assert not model.noise_checked
    assert model(INPUTS, NOISE).hidden.shape == (2, 5, 16) and model.noise_checked
