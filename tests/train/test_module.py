"""What a run hands to the optimizer, and what its first step starts from."""

from itertools import count
from math import log
from types import SimpleNamespace

import pytest
import torch
from lightning import Trainer

from ftmodel import schedule
from ftmodel.designs.design import LatentDesign, Prior
from ftmodel.model.config import ModelConfig
from ftmodel.model.free_transformer import FreeTransformer
from ftmodel.model.objective import training_loss
from pipelines.artifacts.paths import tokens_folder
from pipelines.artifacts.run_spec import RunSpec
from pipelines.artifacts.tokens.shards import Shards
from pipelines.config.load import load_experiment
from pipelines.config.schema import Optim, Schedule
from pipelines.train.core import curve_callback, module as train_module, trainer
from pipelines.train.core.module import NonFinite, TrainingModule
from pipelines.train.core.segments import segments
from pipelines.train.core.trainer import Process, SegmentTraining
from tests.support.mutants import rejects
from tests.support.training import RUN, same, train, train_run

OPTIM = Optim(batch_size=2, lr=0.3, weight_decay=0.07, beta1=0.6, beta2=0.8, clip=0.5)


def make(latent_bits=3, kappa=0.5, **changes):
    torch.manual_seed(0)
    config = ModelConfig(2, 16, 2, 1, 32, 8, latent_bits=latent_bits, **changes)
    return TrainingModule(FreeTransformer(config, 11), OPTIM, kappa, steps=20)


@rejects('.«append(→extend([»parameter«)→] * ("zeta" not in name))»', "ζ left out of the optimizer")
@rejects("«if parameter.dim() > 1 else 0.0→»", "weight decay on gains")
@rejects("«decay if parameter.dim() > 1 else →»0.0", "no weight decay")
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("latent_bits", [0, 3])
def test_every_parameter_is_trained_once_and_matrices_alone_decay(latent_bits, tied):
    module = make(latent_bits, tied=tied)
    optimizer = module.configure_optimizers()["optimizer"]
    decays = {
        id(parameter): group["weight_decay"]
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(decays)
    gains = ("norm.weight", "attention_norm.weight", "ffn_norm.weight")
    expected = {
        id(parameter): 0.0 if name.endswith(gains) else 0.07
        for name, parameter in module.model.named_parameters()
    }
    assert set(expected.values()) == {0.0, 0.07}
    assert decays == expected


@rejects("«betas=(self.optim.beta1, self.optim.beta2),→»", "betas not handed to the optimizer")
@rejects("«beta1, self.optim.beta2→beta2, self.optim.beta1»", "betas exchanged")
@rejects("optim.«AdamW→Adam»(", "Adam in place of AdamW", file="train/core/module.py")
def test_the_optimizer_is_adamw_with_the_betas_and_the_learning_rate_of_the_settings():
    optimizer = make().configure_optimizers()["optimizer"]
    assert type(optimizer) is torch.optim.AdamW
    for group in optimizer.param_groups:
        assert (group["betas"], group["initial_lr"]) == ((0.6, 0.8), 0.3)


@rejects("rate *= self.optim.latent_lr", "pass", "no learning rate of the latent's own")
@rejects('name.startswith("latent.")', '"latent" in name or "norm" in name', "norms' rate, too")
def test_latent_lr_multiplies_the_learning_rate_of_the_latent_alone(monkeypatch):
    """Also where copied weights have their own."""
    monkeypatch.setattr(OPTIM, "latent_lr", 4.0)
    module = make(latent=LatentDesign(prior=Prior.learned))
    module.copied, module.copied_lr = {"readout.weight", "latent.zeta"}, 0.1
    names = {id(parameter): name for name, parameter in module.model.named_parameters()}
    for group in module.configure_optimizers()["optimizer"].param_groups:
        for name in [names[id(parameter)] for parameter in group["params"]]:
            rate = 0.1 if name in module.copied else 0.3
            rate *= 4 if name.startswith("latent.") else 1
            assert group["initial_lr"] == pytest.approx(rate), name


@rejects("beta=run.beta,", "", "β never reaches the loss")
def test_the_loss_is_weighed_by_the_beta_of_the_run(workspace):
    module, batches, _ = built(beta=0.25, kappa_bits=0.0)
    module.trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    module.training_step(batches[0], 0)
    total, ce, hinge = (module.logged[name][0] for name in ("loss", "ce", "hinge"))
    assert hinge > 0
    torch.testing.assert_close(total, ce + hinge / 4)


@rejects(
    "optim.schedule «is Schedule.wsd→in Schedule»:",
    "the schedule of the optimizer ignored",
    case="cosine",
)
@rejects('interval": "«step→epoch»', "the learning rate by epochs", case="cosine")
@pytest.mark.parametrize("kind", Schedule)
def test_the_learning_rate_follows_the_schedule_by_optimizer_steps(workspace, monkeypatch, kind):
    """Of two micro-batches each."""
    experiment = load_experiment()
    optim = experiment.models[experiment.runs[RUN].model].optim
    optim.schedule, optim.decay = kind, 0.3
    rates = []

    class Noting(TrainingModule):
        def configure_gradient_clipping(self, optimizer, *rest, **options):
            (rate,) = {group["lr"] for group in optimizer.param_groups}
            rates.append(rate / optim.lr)

    monkeypatch.setattr(trainer, "TrainingModule", Noting)
    experiment.compute.accumulate = 2
    train(RunSpec(experiment, RUN))
    factors = {
        Schedule.wsd: [schedule.wsd(step, 2, 0.3, 20) for step in range(20)],
        Schedule.cosine: [schedule.cosine(step, 2, 20) for step in range(20)],
    }
    assert rates == pytest.approx(factors[kind])


@rejects(
    "norm = torch.«nn.utils.clip_grad_norm_→ones(()); torch.nn.utils.clip_grad_value_»(",
    "gradients clipped by value",
)
@rejects("«self.optim.clip→1.0»)", "gradients clipped at a norm of 1 whatever the settings say")
def test_gradients_are_scaled_to_the_norm_of_the_settings_and_keep_their_direction():
    module = make()
    module._trainer = SimpleNamespace(global_step=0)
    rng = torch.Generator().manual_seed(0)
    for size in (100.0, 1e-3):
        for parameter in module.parameters():
            parameter.grad = size * torch.randn(parameter.shape, generator=rng)
        before = torch.cat([p.grad.flatten() for p in module.parameters()])
        module.configure_gradient_clipping(None)
        after = torch.cat([p.grad.flatten() for p in module.parameters()])
        scale = min(1.0, OPTIM.clip / before.norm().item())
        torch.testing.assert_close(after, scale * before, rtol=1e-4, atol=0)


@rejects("if «not norm.isfinite→norm.isnan»", "an infinite gradient taken")
@pytest.mark.parametrize("value", [torch.inf, torch.nan])
def test_a_gradient_that_is_not_finite_stops_the_run(value):
    module = make()
    module._trainer = SimpleNamespace(global_step=4)
    module.all_gather = lambda windows: windows
    module.windows = [torch.tensor([7]), torch.tensor([8])]
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(parameter)
    module.model.latent.zeta.grad[..., 0] = value
    with pytest.raises(NonFinite) as caught:
        module.configure_gradient_clipping(None)
    assert (caught.value.step, caught.value.windows) == (5, [7, 8])


@rejects('pop("kl")« / LN2→»', "KL of the curve in nats")
@rejects("tokens_per_second=«steps→self.step» * self.", "the speed of a row from the beginning on")
def test_rows_of_the_curve_are_in_the_units_that_they_are_named_by(workspace, monkeypatch):
    """KL in bits, everything else in nats, speed in tokens of the row's own steps; each step is a
    row, and takes a second by this clock.
    """

    def record(*arguments):
        losses.append(training_loss(*arguments))
        return losses[-1]

    losses = []
    monkeypatch.setattr(train_module, "training_loss", record)
    monkeypatch.setattr(curve_callback, "perf_counter", count().__next__)
    _, rows = train_run()
    assert len(rows) == len(losses) == 20
    for row, loss in zip(rows, losses, strict=True):
        nats = float(row["loss_nats"]), float(row["ce_nats"]), float(row["hinge_nats"])
        assert nats == pytest.approx((loss.total.item(), loss.ce.item(), loss.hinge.item()))
        assert float(row["kl_bits"]) == pytest.approx(loss.kl.item() / log(2))
        assert float(row["tokens_per_second"]) == 8 * 65


def built(name=RUN, data="target", masked=False, **changes):
    """The module of a run of the smoke experiment before its first step, and its batches."""
    experiment = load_experiment()
    run = experiment.runs[name]
    experiment.models[run.model].architecture.document_mask = masked
    vars(run).update(changes)
    spec = RunSpec(experiment, name)
    (segment,) = segments(spec)
    start = SimpleNamespace(segment=segment, checkpoint=None)
    training = SegmentTraining(spec, Process(), start, None)
    shards = Shards(tokens_folder(data))
    return training.build_module(shards)[0], training.build_batches(shards).batches, shards


@rejects("(«run.seed→0», Purpose.WEIGHTS)", "the same initial weights for every seed")
@rejects(
    "«torch.manual_seed(stream_seed(run.seed, Purpose.WEIGHTS))→»",
    "initial weights of whatever was drawn before",
)
def test_initial_weights_depend_on_the_seed_of_the_run_alone(workspace):
    first = built()[0].state_dict()
    torch.manual_seed(1)
    assert same(first, built()[0].state_dict())
    other = built(seed=1)[0].state_dict()
    matrices = [name for name, tensor in first.items() if tensor.dim() > 1]
    assert not any(torch.equal(first[name], other[name]) for name in matrices)


@rejects('("«train→validation»",', "training on the validation part", file="train/core/trainer.py")
def test_a_run_trains_on_the_training_part_with_noise_and_an_order_of_its_seed(workspace):
    _, batches, shards = built()
    _, others, _ = built(seed=1)
    windows = shards.windows("train", 65)
    for step in (0, 7, 19):
        batch, other = batches[step], others[step]
        assert torch.equal(batch["tokens"], windows.batch(batch["windows"]))
        assert not torch.equal(batch["windows"], other["windows"])
        assert not torch.equal(batch["noise"], other["noise"])
    assert len(batches.windows) == len(windows) != len(shards.windows("validation", 65))


@rejects("if «self.kappa_bits is None→not self.kappa_bits»", "κ = 0 trained without a threshold")
@pytest.mark.parametrize("kappa", [None, 0.0, 0.5])
def test_kappa_of_0_is_a_threshold_and_none_is_a_baselines(kappa):
    module = make(latent_bits=0 if kappa is None else 3, kappa=kappa)
    module._trainer = SimpleNamespace(global_step=0)
    assert module.threshold() == kappa


@rejects("documents = «inputs→targets».eq", "the documents of targets masked")
def test_a_document_starts_with_its_end_of_text():
    """And a window may begin in the middle of one."""
    module = make(document_mask=True)
    module.end_of_text = 0
    module.trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    tokens = torch.tensor([[3, 0, 4, 5, 0, 0, 6, 7, 8], [0, 9, 9, 9, 9, 9, 9, 9, 0]])
    documents = torch.tensor([[0, 1, 1, 1, 2, 3, 3, 3], [0, 0, 0, 0, 0, 0, 0, 0]])
    batch = {"tokens": tokens, "windows": torch.arange(2), "noise": torch.rand(2, 8, 3)}
    loss = module.training_step(batch, 0)
    arguments = (module.model, tokens[:, :-1], tokens[:, 1:], batch["noise"], 0.5)
    assert torch.equal(loss, training_loss(*arguments, documents).total)
    assert not torch.equal(loss, training_loss(*arguments).total)


def test_a_run_with_document_mask_knows_the_end_of_text_of_its_data(workspace):
    module, _, shards = built("text_free_k1_2", "stdlib", masked=True)
    assert module.model.config.document_mask
    assert module.end_of_text == shards.metadata.end_of_text is not None
