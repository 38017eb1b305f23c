"""What a run hands to the optimizer, and what its first step starts from."""

from copy import deepcopy
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
from lightning import Trainer

from ftmodel import schedule
from ftmodel.config import LatentDesign, ModelConfig, Prior
from ftmodel.model.free_transformer import FreeTransformer
from ftmodel.model.objective import training_loss
from pipelines.config.schema import Optim, OptimizerName, Run, Schedule
from pipelines.train.core.module import NonFinite, TrainingModule
from tests.support.arrivals import arrives
from tests.support.mutants import rejects
from tests.support.training import same

OPTIM = Optim(batch_size=2, lr=0.3, weight_decay=0.07, beta1=0.6, beta2=0.8, clip=0.5)
MUON = replace(OPTIM, name=OptimizerName.muon)


def make(latent_bits=3, kappa=0.5, optim=OPTIM, **changes):
    torch.manual_seed(0)
    config = ModelConfig(2, 16, 2, 1, 32, 8, latent_bits=latent_bits, **changes)
    return TrainingModule(FreeTransformer(config, 11), optim, Run(kappa_bits=kappa), steps=20)


def by_name(module):
    """The optimizer's groups by parameters' names; a parameter of no group has none."""
    groups = module.configure_optimizers()["optimizer"].param_groups
    of = {id(parameter): group for group in groups for parameter in group["params"]}
    names = module.model.named_parameters()
    return {name: of.get(id(parameter), {"weight_decay": None}) for name, parameter in names}


@arrives("optim", "weight_decay")
@rejects('optimizer.make_optimizer: «→if "zeta" not in name: »groups.setdefault', "ζ not trained")
@pytest.mark.parametrize("optim", [OPTIM, MUON], ids=["adamw", "muon"])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("latent_bits", [0, 3])
def test_every_parameter_is_trained_once_and_matrices_alone_decay(latent_bits, tied, optim):
    module = make(latent_bits, tied=tied, optim=optim)
    groups = by_name(module)
    optimizer = module.configure_optimizers()["optimizer"]
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(groups)
    gains = ("norm.weight", "attention_norm.weight", "ffn_norm.weight")
    expected = {name: 0.0 if name.endswith(gains) else 0.07 for name in groups}
    assert set(expected.values()) == {0.0, 0.07}
    assert {name: group["weight_decay"] for name, group in groups.items()} == expected


@arrives("optim", "lr beta1 beta2")
@rejects("optimizer.make_optimizer: «beta1, optim.beta2→beta2, optim.beta1»", "betas exchanged")
@rejects("optimizer.make_optimizer: «AdamW→torch.optim.Adam»(", "Adam in place of AdamW")
def test_the_optimizer_is_adamw_with_the_betas_and_the_learning_rate_of_the_settings():
    optimizer = make().configure_optimizers()["optimizer"]
    assert type(optimizer) is torch.optim.AdamW
    for group in optimizer.param_groups:
        assert (group["betas"], group["initial_lr"], group["fused"]) == ((0.6, 0.8), 0.3, True)


@arrives("optim", "latent_lr")
@arrives("init_from", "copied_lr")
@rejects('optimizer.make_optimizer: «→"norm" in name or »name.startswith', "norms' rate, too")
def test_latent_lr_multiplies_the_learning_rate_of_the_latent_alone():
    """Also where copied weights have their own."""
    optim = replace(OPTIM, latent_lr=4.0)
    module = make(optim=optim, latent=LatentDesign(prior=Prior.learned))
    module.copied, module.run.init_from.copied_lr = {"readout.weight", "latent.zeta"}, 0.1
    for name, group in by_name(module).items():
        rate = 0.1 if name in module.copied else 0.3
        rate *= 4 if name.startswith("latent.") else 1
        assert group["initial_lr"] == pytest.approx(rate), name


def test_the_first_group_has_the_learning_rate_of_the_settings():
    """Whatever the first parameter has: it is that of the curve."""
    module = make(optim=MUON)
    first, _ = next(module.model.named_parameters())
    module.copied, module.run.init_from.copied_lr = {first}, 0.1
    optimizer = module.configure_optimizers()["optimizer"]
    assert optimizer.param_groups[0]["initial_lr"] == 0.3
    assert by_name(module)[first]["initial_lr"] == 0.1


def hidden(name):
    return "block" in name and "norm" not in name


@arrives("optim", "name")
@rejects("optimizer.make_optimizer: «blocks_of(model)→model.blocks»", "AdamW for the encoder's")
@rejects('optimizer.make_optimizer: «"match_rms_adamw"→None»', "a learning rate of Muon's own")
@pytest.mark.parametrize("optim", [OPTIM, MUON], ids=["adamw", "muon"])
def test_muon_is_for_the_matrices_of_blocks_alone(optim):
    for name, group in by_name(make(optim=optim)).items():
        assert ("momentum" in group) == (optim is MUON and hidden(name)), name
        assert "momentum" not in group or group["adjust_lr_fn"] == "match_rms_adamw"


@arrives("optim", "width_scaling")
@pytest.mark.parametrize(("optim", "factor"), [(OPTIM, 0.25), (MUON, 0.5)], ids=["adamw", "muon"])
def test_the_rate_of_hidden_matrices_falls_with_the_width(optim, factor):
    """D = 16, four times the base width; those of AdamW and Muon move activations alike."""
    for name, group in by_name(make(optim=replace(optim, width_scaling=4))).items():
        assert group["initial_lr"] == pytest.approx(0.3 * (factor if hidden(name) else 1)), name


@rejects("MuonAndAdamW.step: «part.state = self→self»", "moments apart, that no checkpoint has")
@rejects("MuonAndAdamW.step: «next(groups)→_»", "Muon without the schedule of a resumed run")
def test_muon_and_adamw_step_as_each_does_alone_also_from_a_checkpoint():
    """Two steps, the second by an optimizer made anew, with another learning rate."""
    rng = torch.Generator().manual_seed(0)
    module, twin = make(optim=MUON), make(optim=MUON)
    pairs = [(p, torch.randn(p.shape, generator=rng)) for p in twin.model.parameters()]
    parts = twin.configure_optimizers()["optimizer"].parts
    state = None
    for rate in (0.3, 0.1):
        optimizer = module.configure_optimizers()["optimizer"]
        if state:
            optimizer.load_state_dict(state)
        for part in (optimizer, *parts):
            for group in part.param_groups:
                group["lr"] = rate
        for ours, (theirs, gradient) in zip(module.model.parameters(), pairs, strict=True):
            ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        for part in (optimizer, *parts):
            part.step()
        state = deepcopy(optimizer.state_dict())
    assert same(module.model.state_dict(), twin.model.state_dict())


@pytest.mark.parametrize("workers", [1, 2])
def test_the_loss_of_several_workers_is_averaged_over_them(workers):
    module = make(latent_bits=0, kappa=None)
    reduce = Mock(return_value=torch.ones(()))
    module._trainer = SimpleNamespace(
        world_size=workers, global_step=0, strategy=SimpleNamespace(reduce=reduce)
    )
    given = []
    module.training_loss = lambda *arguments: (
        given.append(arguments[6]) or training_loss(*arguments[:6])
    )
    module.training_step({"tokens": torch.zeros(2, 9).long(), "windows": torch.arange(2)}, 0)
    assert given == [module.over_workers if workers == 2 else None]
    assert {*module.logged} == {"loss", "ce"}
    assert torch.equal(*module.windows, torch.arange(2))
    assert module.over_workers(torch.zeros(())) == 1
    assert reduce.call_args.kwargs == {"reduce_op": "mean"}


def test_numbers_of_any_type_are_logged_and_a_parameter_as_it_was_then():
    module, parameter = make(), torch.nn.Parameter(torch.zeros(()))
    for value in (3, 0.5, parameter):
        module.log("value", value, prog_bar=True)
        parameter.data += 1
    assert module.logged["value"] == [3, 0.5, 2]
    assert all(each.is_floating_point() for each in module.logged["value"])


def test_what_a_row_cannot_hold_is_refused():
    with pytest.raises(ValueError, match="rows of the curve are means"):
        make().log("largest", 1.0, reduce_fx="max")
    with pytest.raises(RuntimeError):
        make().log("vector", torch.zeros(3))


@arrives("optim", "schedule decay warmup_steps")
@rejects('TrainingModule.configure_optimizers: «step→epoch»"', "a rate by epochs")
@pytest.mark.parametrize(
    ("kind", "factor"), [(Schedule.wsd, schedule.wsd), (Schedule.cosine, schedule.cosine)]
)
def test_the_learning_rate_follows_the_schedule_by_optimizer_steps(kind, factor):
    optim = replace(OPTIM, schedule=kind, decay=0.3, warmup_steps=3)
    found = make(optim=optim).configure_optimizers()
    assert found["lr_scheduler"]["interval"] == "step"
    rates, scheduler = [], found["lr_scheduler"]["scheduler"]
    for _ in range(20):
        rates.append(found["optimizer"].param_groups[0]["lr"] / optim.lr)
        found["optimizer"].step()
        scheduler.step()
    settings = (3, 0.3, 20) if kind is Schedule.wsd else (3, 20)
    assert rates == pytest.approx([factor(step, *settings) for step in range(20)])


@rejects(
    "TrainingModule.configure_gradient_clipping: "
    "«full(torch.nn.utils.clip_grad_norm_→torch.ones(()); full(torch.nn.utils.clip_grad_value_»",
    "gradients clipped by value",
)
@arrives("optim", "clip")
def test_gradients_are_scaled_to_the_norm_of_the_settings_and_keep_their_direction():
    module = make()
    module._trainer = SimpleNamespace(global_step=0)
    rng = torch.Generator().manual_seed(0)
    for size in (100.0, 1e-3):
        for parameter in module.parameters():
            parameter.grad = size * torch.randn(parameter.shape, generator=rng)
        before = torch.cat([p.grad.flatten() for p in module.parameters()])
        module.windows = [torch.arange(2)]
        module.configure_gradient_clipping(None)
        assert module.windows == [], "those of the next step alone are named"
        after = torch.cat([p.grad.flatten() for p in module.parameters()])
        scale = min(1.0, OPTIM.clip / before.norm().item())
        torch.testing.assert_close(after, scale * before, rtol=1e-4, atol=0)


@rejects(
    "TrainingModule.configure_gradient_clipping: «not norm.isfinite→norm.isnan»", "infinity taken"
)
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


@rejects("TrainingModule.note: «[-NORMS:]→»", "the median of all steps since the first")
def test_norms_that_stay_larger_are_no_spikes_once_they_are_half_of_the_last_hundred(capsys):
    """Nothing is skipped before there is a median to speak of; a norm is not in its own median.
    Rank 0 alone says so.
    """
    module = make(optim=replace(OPTIM, skip_spikes=2.0))
    module._trainer = SimpleNamespace(global_step=0, global_rank=1)
    for norm in [1.0] * 19 + [9.0, 9.0] + [1.0] * 10 + [2.0] + [1.0] * 118 + [3.0] * 200:
        module.note(norm)
    skipped = [int(each) for each in module.logged["skipped_steps"]]
    assert [i for i, each in enumerate(skipped) if each] == [20, *range(150, 200)]
    medians = [each.item() for each in module.logged["gradient_norm_median"]]
    assert [medians[i] for i in (0, 20, 199, 200, 201, 349)] == [1, 1, 1, 2, 3, 3]
    assert not capsys.readouterr().err


@arrives("optim", "skip_spikes")
@rejects("TrainingModule.note: «self.zero_grad()→pass»", "a spike that is only counted")
def test_a_skipped_step_changes_neither_weights_nor_moments(capsys):
    module = make(optim=replace(OPTIM, skip_spikes=2.0))
    module._trainer = SimpleNamespace(global_step=30, global_rank=0)
    optimizer = module.configure_optimizers()["optimizer"]
    for size in [1.0] * 21 + [3.0]:
        before = {name: value.clone() for name, value in module.model.state_dict().items()}
        moments = deepcopy(optimizer.state_dict()["state"])
        for parameter in module.parameters():
            parameter.grad = torch.full_like(parameter, size)
        module.configure_gradient_clipping(None)
        optimizer.step()
        assert same(before, module.model.state_dict()) == (size == 3.0)
    after = optimizer.state_dict()["state"]
    assert all(same(moments[index], after[index]) for index in after)
    assert [int(each) for each in module.logged["skipped_steps"]] == [0] * 21 + [1]
    assert capsys.readouterr().err.count("step 31 is skipped") == 1


@rejects(
    'TrainingModule.configure_gradient_clipping: «post_sampler", "→»prior', "a post-sampler too"
)
def test_the_gradient_norms_of_the_latent_are_of_before_the_clipping():
    module = make()
    module._trainer = SimpleNamespace(global_step=0)
    for name, parameter in module.model.named_parameters():
        parameter.grad = torch.full_like(parameter, 3.0 if "post_sampler" in name else 2.0)
    module.configure_gradient_clipping(None)
    latent = module.model.latent
    of_encoder = sum(p.numel() for p in latent.parameters()) - latent.post_sampler.numel()
    norms = {
        name: module.logged[f"gradient_norm_{name}"][0] for name in ("encoder", "post_sampler")
    }
    assert norms["encoder"].item() == pytest.approx(2 * of_encoder**0.5)
    assert norms["post_sampler"].item() == pytest.approx(3 * latent.post_sampler.numel() ** 0.5)


@arrives("run", "kappa_warmup_steps")
@rejects("TrainingModule.threshold: «→not »self.run.kappa_bits «is None→»", "κ = 0 taken for none")
@pytest.mark.parametrize("kappa", [None, 0.0, 0.5])
def test_kappa_rises_with_the_optimizer_steps_and_is_none_for_a_baseline_alone(kappa):
    module = make(latent_bits=0 if kappa is None else 3, kappa=kappa)
    module.run.kappa_warmup_steps = 10
    found = []
    for step in range(20):
        module._trainer = SimpleNamespace(global_step=step)
        found.append(module.threshold())
    if kappa is None:
        assert found == [None] * 20
    else:
        assert found == pytest.approx([kappa * min(1, step / 10) for step in range(1, 21)])


@arrives("run", "beta")
@rejects("TrainingModule.training_step: «self.run.beta→1.0»", "β never reaches the loss")
@rejects("TrainingModule.training_step: «inputs→targets».", "the documents of targets masked")
def test_the_loss_has_the_beta_of_the_run_and_a_document_starts_with_its_end_of_text():
    """And a window may begin in the middle of one."""
    module = make(document_mask=True, kappa=0.0)
    module.end_of_text, module.run.beta = 0, 0.25
    module.trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    tokens = torch.tensor([[3, 0, 4, 5, 0, 0, 6, 7, 8], [0, 9, 9, 9, 9, 9, 9, 9, 0]])
    documents = torch.tensor([[0, 1, 1, 1, 2, 3, 3, 3], [0, 0, 0, 0, 0, 0, 0, 0]])
    batch = {"tokens": tokens, "windows": torch.arange(2), "noise": torch.rand(2, 8, 3)}
    loss = module.training_step(batch, 0)
    arguments = (module.model, tokens[:, :-1], tokens[:, 1:], batch["noise"], 0.0)
    expected = training_loss(*arguments, documents, beta=0.25)
    assert torch.equal(loss, expected.total) and expected.hinge > 0
    for name in ("ce", "kl", "hinge"):
        assert module.logged[name] == [getattr(expected, name)]
    assert module.logged["loss"] == [expected.total]
    assert torch.equal(torch.cat(module.logged["kl_of_bits"]), expected.kl_of_bits)
    assert not torch.equal(loss, training_loss(*arguments, beta=0.25).total)
