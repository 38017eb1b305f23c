"""Configuration: what ships is valid, and each mistake is one line that names its key."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from ftmodel.config import LatentDesign
from pipelines.config import checks, derived
from pipelines.config.compose import compose_config, compose_valid
from pipelines.config.data import TextData
from pipelines.config.derived import trainings
from pipelines.config.init_from import InitFrom
from pipelines.config.load import parse
from pipelines.config.schema import SuiteTask
from pipelines.host.errors import UserError
from tests.support.mutants import rejects
from tests.support.settings import changed, composed_by_hydra, refusal, smoke

ROOT = Path(__file__).parents[2]
DATA = sorted(p.stem for p in (ROOT / "conf/data").glob("*.yaml"))
EXPERIMENTS = sorted(p.stem for p in (ROOT / "conf/experiment").glob("*.yaml"))
RUN = "runs.free_k1_8"
ARCHITECTURE = "models.target_small.architecture"
OPTIM = "models.target_small.optim"
PART = "data.stdlib.parts.stdlib"
SMALLEST = "{data: target, model: target_small, kappa_bits: null, tokens: 10400}"


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_shipped_experiment_is_valid_and_named_like_its_file(name):
    experiment = composed_by_hydra(f"experiment={name}")
    assert experiment.name == name
    assert all(derived.budgets(experiment, run)[-1].steps > 0 for run in experiment.runs.values())


def test_all_data_that_ships_is_valid_and_the_mixture_is_made_of_its_parts():
    config = compose_config(["experiment=smoke", f"data=[{','.join(DATA)}]"])
    data = parse(config, "conf").data
    for name, entry in data.items():
        if isinstance(entry, TextData):
            assert set(entry.parts) == set(config.data[name].parts)
    parts = {"web": "fineweb_edu", "code": "stack_python", "stories": "tinystories"}
    for part, name in parts.items():
        mixed, (alone,) = data["mixture"].parts[part], data[name].parts.values()
        assert {**vars(mixed), "weight": 1.0} == vars(alone)
    assert sum(part.weight for part in data["mixture"].parts.values()) == pytest.approx(1)


def test_committed_params_are_the_default_experiment():
    """So that a bare `dvc repro` in a fresh clone runs the quickstart."""
    # HEAD's, as `make repro` leaves the working tree's with whichever experiment it ran
    asked = subprocess.run(["git", "show", "HEAD:./params.yaml"], cwd=ROOT, capture_output=True)
    if asked.returncode:
        pytest.skip("no git here")
    committed = OmegaConf.create(asked.stdout.decode())
    composed = OmegaConf.to_container(compose_config([]))
    assert composed == OmegaConf.to_container(committed)


def test_a_baseline_has_the_architecture_of_its_preset_but_no_latent():
    experiment = smoke(f"{ARCHITECTURE}.latent_block=2")
    free = derived.model_config(experiment, experiment.runs["free_k1_8"])
    baseline = derived.model_config(experiment, experiment.runs["baseline"])
    assert (free.latent_bits, free.latent_block) == (8, 2)
    assert (baseline.latent_bits, baseline.latent_block) == (0, None)
    assert vars(free) == {**vars(baseline), "latent_bits": 8, "latent_block": 2}


@rejects("Derived.model_config: «.changed(given(run.latent))→»", "a run's design of z ignored")
def test_a_run_may_have_a_design_of_its_own():
    """Beside the preset's, which the baseline, having no latent, has none of."""
    changes = [f"{RUN}.latent.map=linear", f"{RUN}.latent_bits=20", f"{RUN}.kappa_bits=9"]
    experiment = smoke(f"{ARCHITECTURE}.latent.inject=residual", f"{RUN}.latent_block=1", *changes)
    configs = {name: derived.model_config(experiment, run) for name, run in experiment.runs.items()}
    assert configs["free_k1_8"].latent == LatentDesign(inject="residual", map="linear")
    assert (configs["free_k1_8"].latent_bits, configs["free_k1_8"].latent_block) == (20, 1)
    assert configs["free_k1"].latent == LatentDesign(inject="residual")
    assert configs["free_k1"].latent_block is None
    assert configs["baseline"].latent == LatentDesign()


@pytest.mark.parametrize(
    ("preset", "default", "other", "design"),
    [
        ("{encoder: separate, encoder_layers: 4}", "encoder=shared", "encoder_layers=3",
         LatentDesign(encoder="separate", encoder_layers=3)),
        ("{per: every, every: 8}", "per=token", "every=4", LatentDesign(per="every", every=4)),
    ],
)  # fmt: skip
def test_a_run_may_go_back_to_the_default_design_or_change_a_number(preset, default, other, design):
    """A number that belongs to the preset's design is not that of the default one."""
    changes = [f"{RUN}.latent.{default}", f"runs.free_k1.latent.{other}"]
    experiment = smoke(f"{ARCHITECTURE}.latent={preset}", *changes)
    designs = {
        name: derived.model_config(experiment, run).latent for name, run in experiment.runs.items()
    }
    assert designs["free_k1_8"] == designs["baseline"] == LatentDesign()
    assert designs["free_k1"] == design
    assert experiment.models["target_small"].architecture.latent != design


@rejects("Derived.model_config: «→not »run.kappa_bits «is None→»", "κ = 0 trained as a baseline")
@rejects("checks.kappa_fits_the_latent: «→not »run.kappa_bits «is None→»", "κ of 0, no latent bits")
def test_a_threshold_of_0_is_that_of_a_free_transformer():
    """It has a latent, needs bits for it, and has no blocks that only a baseline may have."""
    experiment = smoke(f"{RUN}.kappa_bits=0")
    assert derived.model_config(experiment, experiment.runs["free_k1_8"]).latent_bits == 8
    for change, key in (
        (f"{ARCHITECTURE}.latent_bits=0", "kappa_bits: a Free Transformer needs latent bits"),
        (f"{RUN}.extra_blocks=1", "extra_blocks: 1"),
    ):
        with pytest.raises(UserError, match=f"{RUN}.{key}"):
            smoke(f"{RUN}.kappa_bits=0", change)


@pytest.mark.parametrize(
    ("name", "tokens", "kappas"),
    [
        ("paper_1_5b", 47e9, [None, 0.25, 0.5, 1.0, 2.0]),
        ("paper_8b", 200e9, [None, 0.25, 0.5, 1.0, 2.0]),
        ("paper_8b_1t", 10**12, [None, 0.5, 1.0]),
    ],
)
def test_the_papers_experiments_have_the_arms_of_its_tables_1_to_3(name, tokens, kappas):
    """The third one also has budgets in the last third, over which the paper averages."""
    runs = composed_by_hydra(f"experiment={name}").runs.values()
    assert [run.kappa_bits for run in runs] == kappas
    assert {run.tokens for run in runs} == {tokens}
    for run in runs:
        assert len(run.budgets) == (3 if name == "paper_8b_1t" else 0)
        assert all(3 * budget >= 2 * run.tokens for budget in run.budgets)


@pytest.mark.parametrize(
    "changes",
    [
        [f"{RUN}.latent={{per: every, every: 64}}"],
        [f"{RUN}.latent={{per: sequence, prior: learned}}", f"{RUN}.kappa_bits=1"],
        [
            "runs.text_free_k1_2.latent.per=sequence",
            "models.text_small.architecture.document_mask=true",
        ],
    ],
    ids=["every", "learned", "documents"],
)
def test_a_threshold_that_a_token_can_reach_is_accepted(changes):
    """Of H = 8: 64 tokens may have 1/8 bit each, a KL to a learned prior has no limit, and a
    document may be shorter than the context.
    """
    smoke(*changes)


@pytest.mark.parametrize(
    "changes",
    [
        [f"{RUN}.kappa_bits=8", f"{RUN}.kappa_warmup_steps=19", f"name={'a' * 120}"],
        [f"{RUN}.tokens=520", f"{OPTIM}.warmup_steps=0", "evaluation.every_tokens=520"],
        [f"{OPTIM}.warmup_steps=19"],
        ["evaluation.every_tokens=5120", f"{OPTIM}.schedule=wsd", f"{OPTIM}.warmup_steps=16"],
        ["evaluation.particles=1", "compute={workers: 2, gpus_per_worker: 1}"],
        ["evaluation.particles=auto", "compute={workers: 1, gpus_per_worker: 0.5}"],
        [f"evaluation.groups={2**53}"],
    ],
    ids=["latent", "batch", "cosine", "wsd", "two workers", "half a GPU", "double"],
)
def test_a_value_at_its_limit_is_accepted(changes):
    smoke(*changes)


def expected(change: str) -> str:
    """An override that states an expectation of smoke, right but for one entry."""
    entries = {"arm": "free_k1", "than": "baseline", "bound": "lower"}
    key, _, value = change.partition(": ")
    entries[key] = value
    return f"expectation=[{{{', '.join(f'{k}: {v}' for k, v in entries.items())}}}]"


@rejects(
    "load.parse: smallest_effect = «experiment.smallest_effect→None»",
    "an expectation without the smallest effect",
)
def test_an_expectation_has_the_smallest_effect_of_its_experiment_unless_it_says_another():
    for mine, wanted in (("null", 0.01), ("0.5", 0.5)):
        (stated,) = smoke(
            "smallest_effect=0.01", expected(f"because: so, smallest_effect: {mine}")
        ).expectation
        assert stated.smallest_effect == wanted


VALUES = {  # by what is said of them
    "must be at least 1": "evaluation.particles=0 data.target.train_sequences=0 suite.limit=0 "
    f"data.stdlib.max_bytes=0 suite.samples=0 suite.batch_tokens=-1 {OPTIM}.batch_size=0 "
    f"compute.accumulate=0 compute.workers=0 {ARCHITECTURE}.rope_theta=0 "
    f"{OPTIM}.width_scaling=0",
    "must be at least 2": "evaluation.filters=1 evaluation.groups=1",
    "must be at least 0": "compute.max_failures=-1 runs.baseline.random_prefix=-1",
    "must be at least 0 and at most 1": "evaluation.resample_below=1.5 evaluation.proposal=-1",
    "is outside 0 … 8": f"{RUN}.kappa_bits=-0.5 {RUN}.kappa_bits=8.5",
    "is outside 0 … 24": f"{RUN}.latent_bits=25",
    "must be at least 0 and below 4,294,967,296": f"{RUN}.seed=-1 {RUN}.seed=4294967296 "
    "evaluation.seed=-1 data.target.seed=4294967296 data.stdlib.seed=-1 suite.seed=-1",
    "is outside 1 … 2": f"{ARCHITECTURE}.latent_block=3 {RUN}.latent_block=0 {RUN}.latent_block=3",
    "is outside 0 … 19: ": f"{RUN}.kappa_warmup_steps=-1 {RUN}.kappa_warmup_steps=20",
    "must be at least 257 and at most 131,072; 256 bytes": "data.stdlib.vocab_size=100 "
    "data.stdlib.vocab_size=131073",
    "must be above 0 and below 1": "data.stdlib.validation_share=1",
    "is outside −2^53 … 2^53": f"{RUN}.tokens=9007199254740993 evaluation.groups={2**64}",
    "is too large for a number": f"evaluation.proposal={10**400}",
    "must be above 1": f"{OPTIM}.skip_spikes=1",
    "must be above 0": f"{OPTIM}.lr=0 {ARCHITECTURE}.norm_eps=0 {PART}.weight=0 "
    f"{OPTIM}.latent_lr=0 {RUN}.beta=0",
    "not a finite number": f"{RUN}.kappa_bits=nan {PART}.weight=nan {ARCHITECTURE}.rope_theta=inf "
    f"{OPTIM}.latent_lr=nan {RUN}.beta=nan",
    "at most 1,048,576": f"{ARCHITECTURE}.d_model=2097152",
    "at most 1,024": f"{ARCHITECTURE}.n_layers=2000",
    "odd": f"{ARCHITECTURE}.n_layers=3",
    "does not divide d_model 16": f"{ARCHITECTURE}.n_heads=3",
    "does not divide n_heads 2": f"{ARCHITECTURE}.n_kv_heads=3",
    "does not divide models.": "compute.accumulate=3 compute.workers=3",
    "could not be converted": f"{RUN}.kappa_bits=high {RUN}.tokens=1e6",
    "missing": f"{RUN}.tokens=??? {PART}.pattern=???",
    "did you mean": f"{RUN}.kapa_bits=1 {RUN}.latent.incject=kv data.target.sead=1 {PART}.patern=a",
    "less than one batch of 520": f"{RUN}.tokens=519",
    "must rise": f"{RUN}.budgets=[519] {RUN}.budgets=[5200,5719] {RUN}.budgets=[10400]",
    "not one of target, stdlib": f"{RUN}.data=tagret",
    "not one of target_small": f"{RUN}.model=huge",
    "not one of coin, factors": "data.target.source=hub",
    "'url' is not one of distributions, files, hub": f"{PART}.source=url",
    "'json' is not one of text, jsonl, parquet": f"{PART}.format=json",
    "'tree' is not one of table, linear": f"{ARCHITECTURE}.latent.map=tree {RUN}.latent.map=tree",
    "'sgd' is not one of adamw": f"{OPTIM}.name=sgd",
    "is not one of ": "compute.precision=fp8 compute.strategy=ring suite.scoring=prior",
    "a shared encoder is one": f"{RUN}.latent.encoder_layers=3 "
    f"{ARCHITECTURE}.latent.encoder_layers=2",
    "a baseline has no latent": "runs.baseline.latent.encoder=separate runs.baseline.latent_bits=4",
    "only a baseline may have a random prefix": f"{RUN}.random_prefix=2",
    "must be less than the context 65": "runs.baseline.random_prefix=65",
    "a baseline has no κ": "runs.baseline.kappa_warmup_steps=5",
    "a baseline has no hinge": "runs.baseline.beta=0.5",
    "does not fit the target task": f"{ARCHITECTURE}.context=64",
    "is a document already": f"{ARCHITECTURE}.document_mask=true",
    "entire path component": f"{PART}.pattern=a**b {PART}.exclude=[a/b**]",
    "paths are below root": f"{PART}.pattern=./*.py {PART}.exclude=[a,/srv/a.py]",
    "a worker drives one GPU": "compute.gpus_per_worker=2",
    "compute.workers is 1": "compute.strategy=fsdp",
    "lower-case": "name=a.b",
    "auto": "evaluation.particles=many",
    "at most 120": f"name={'a' * 121}",
    "a single character": "data.stdlib.end_of_text=a",
    "empty": "data.stdlib.end_of_text='' question=",
    "which has tasks": "suite.name=none",
}
HUB = "source: hub, dataset: a, split: a, text_field: a, weight: 1"
ELSEWHERE = [  # what is named is another key than the one that was set
    ("data.stdlib.tokenizer=a.json", "data.stdlib.vocab_size", "both are given"),
    ("data.stdlib.tokenizer=''", "data.stdlib.vocab_size", "both are given"),
    ("data.stdlib.vocab_size=null", "data.stdlib.vocab_size", "neither is given"),
    (f"{PART}.exclude=[[a]]", f"{PART}.exclude.0", "not a single value"),
    ("data.stdlib.parts.b={source: hub, dataset: json, split: a, text_field: a, weight: 1}",
     "data.stdlib.parts.b.data_files", "empty, but json is a builder"),
    *((f"data.stdlib.parts.b={{{HUB}, {name}: ''}}", f"data.stdlib.parts.b.{name}", "empty")
      for name in ("subset", "revision")),
    ("data.stdlib.parts.b={source: hub}", "data.stdlib.parts.b.dataset", "is missing"),
    ("data.stdlib.parts.B={source: hub, dataset: a}", "data.stdlib.parts.B", "lower-case"),
    (f"runs={{{'a' * 300}: {SMALLEST}}}", f"runs.{'a' * 40}… (300 characters)", "at most 120 char"),
    (f"{RUN}.latent_bits=0", f"{RUN}.kappa_bits", f"but {RUN}.latent_bits is 0; null makes"),
    (f"{RUN}.latent={{encoder: separate, encoder_layers: 0}}", f"{RUN}.latent.encoder_layers",
     "0 must be at least 1 and at most 1,024"),
    (f"{ARCHITECTURE}.latent.per=sequence", f"{RUN}.kappa_bits",
     "is more than a token can carry: with latent.per s"),
    # the last of 65 tokens reads a z of its own, which is no reason for the other 64
    ("runs.free_k1.latent={per: every, every: 64}", "runs.free_k1.kappa_bits",
     "1.0 is more than a token can carry: with latent.per e"),
    (f"{ARCHITECTURE}={{latent_bits: 0, random_prefix: 2}}", f"{ARCHITECTURE}.random_prefix",
     "2; set random_prefix of an arm"),
    ("runs.baseline.extra_blocks=2000", "runs.baseline.n_layers", "at most 1,024"),
    (f"{RUN}={{budgets: [5200], kappa_warmup_steps: 10}}", f"{RUN}.kappa_warmup_steps",
     "10 is outside 0 … 9: 5200 tokens are 10 steps"),
    ("compute={workers: 4, accumulate: 4}", "compute.accumulate", "4 × compute.workers 4 does not"),
    ("compute={workers: 2, gpus_per_worker: 0.5}", "compute.gpus_per_worker", "a GPU each"),
    *((f"suite.tasks.x={{task: piqa, key: '{key}'}}", "suite.tasks.x.key",
       f"'{key}' is not <metric>,<filter>") for key in ("acc", "acc,", ",none")),
    ("suite.tasks.x={task: piqa, key: 'a,b', metric: ''}", "suite.tasks.x.metric", "empty"),
    ("suite.tasks.x={task: piqa, key: 'a,b', shots: -1}", "suite.tasks.x.shots", "at least 0"),
    ("suite_runs={nobody: stdlib}", "suite_runs.nobody", "stdlib, not left out; conf/"),
    (f"arms={{more: {SMALLEST}}}", "arms.more", "not used by any run; add +runs.more instead"),
    ("seeds=[0,1]", "seeds", "given without arms"),
    (expected("arm: free"), "expectation.0.arm", "'free' is not one of baseline, free_k1_8, "),
    (expected("than: free_k1"), "expectation.0.than", "the arm itself"),
    (expected("than: text_free_k1_2"), "expectation.0.than", "cannot be compared with free_k1"),
    (expected("because: ' '"), "expectation.0.because", "empty"),
    ("expectation=[free_k1]", "expectation.0", "not a subclass of Expectation"),
    (expected("bound: equivalent"), "expectation.0.bound", "equivalent needs a smallest_effect"),
    (expected("smallest_effect: 0"), "expectation.0.smallest_effect", "must be above 0"),
    ("smallest_effect=0", "smallest_effect", "must be above 0"),
]  # fmt: skip
MISTAKES = [
    *((override, override.partition("=")[0], reason)
      for reason, overrides in VALUES.items() for override in overrides.split()),
    *ELSEWHERE,
]  # fmt: skip


@rejects("config.check_limits: «all→any»", "one limit alone", case="evaluation.resample_below=1.5")
@pytest.mark.parametrize(("override", "key", "reason"), MISTAKES, ids=[m[0][:70] for m in MISTAKES])
def test_a_mistake_is_one_line_with_its_dotted_key(override, key, reason):
    said = refusal(smoke, override)
    assert said.startswith(f"conf: {key}") and reason in said


@pytest.mark.parametrize(
    ("override", "words"),
    [(f"{OPTIM}.name=muon", "needs whole matrices"), ("evaluation.every_tokens=5200", "is fsdp")],
)
def test_muon_and_evaluation_in_the_loop_need_what_fsdp_shards(override, words):
    said = refusal(smoke, "compute={workers: 2, strategy: fsdp}", override)
    assert override.partition("=")[0] in said and words in said


@pytest.mark.parametrize("tokens", [519, 10401])
def test_evaluation_in_the_loop_comes_within_the_training(tokens):
    said = refusal(smoke, f"evaluation.every_tokens={tokens}")
    assert f"evaluation.every_tokens: {tokens} is outside 520 … 10400" in said


HINT = "missing; entries of data start from /source"


@pytest.mark.parametrize(
    ("override", "key", "reason"),
    [
        ("experiment=null", "experiment", "'null' is not one of designs"),
        ("data=null", "data", "'null' is not one of coin"),
        ("suite.run_code=maybe", "suite.run_code", "is not a valid bool"),
        (f"{OPTIM}.lr={10**400}", f"{OPTIM}.lr", "too large for a number"),
        (f"{RUN}.kappa_bits=high", f"{RUN}.kappa_bits", "could not be converted"),
        ("+runs={Bad-Name: {data: target}}", "runs.Bad-Name", "missing"),
        ("+runs.b={data: target}", "runs.b", "an entry is added as +runs={b: {…}}"),
        ("runs.b.data=target", "runs.b", "'b' is not one of baseline, free_k1_8"),
        (expected("becaus: a"), "expectation: becaus", "did you mean because?"),
        (expected("bound: less"), "expectation: bound", "'less' is not one of lower, higher"),
        ("~data.stdlib.parts.stdlib", "data.stdlib.parts", "empty"),
        ("+data.stdlib.parts.b={source: hub, dataset: a}", "data.stdlib.parts.b.subset", HINT),
        ("+source@data.code=target", "data.code", "missing"),
        ("~suite_runs", "suite_runs.text_free_k1_2", "left out, not stdlib"),
    ],
)  # fmt: skip
def test_what_hydra_refuses_is_one_line_too(override, key, reason):
    chosen = [] if override.startswith("experiment=") else ["experiment=smoke"]
    said = refusal(composed_by_hydra, *chosen, override)
    assert said.replace("conf/:", "conf:").startswith(f"conf: {key}") and reason in said


@rejects(
    "load.setting_words: «by_end.get(key) or →»near_names(key.partition",
    "a similar setting in place of one of the same name",
    case="seed=1-data.<name>.seed or runs.<name>.seed or evaluation.seed or suite.seed",
)
@rejects(
    'compose.no_choice: value«.strip("[]\'\\"")→»',
    "a list of choices as one name",
    case="data=[target,stdlb]-stdlib",
)
@pytest.mark.parametrize(
    ("mistyped", "meant"),
    [
        ("experiment=Smoke", "smoke"),
        ("suite=papper", "paper"),
        ("data=[target,stdlb]", "stdlib"),
        ("smke", "experiment=smoke"),
        ("experment=smoke", "experiment"),
        (f"{RUN}.kapa_bits=1", "kappa_bits"),
        ("runs.fre_k1.tokens=1", "free_k1"),
        ("evalution.groups=2", "evaluation"),
        ("optim.lr=1e-3", "models.<name>.optim.lr"),
        ("optm.lr=1e-3", "models.<name>.optim.lr"),
        ("+optim={lr: 1e-3}", "models.<name>.optim"),
        ("kapa_bits=1", "arms.<name>.kappa_bits or runs.<name>.kappa_bits"),
        ("vocab_size=300", "data.<name>.vocab_size"),
        ("seed=1", "data.<name>.seed or runs.<name>.seed or evaluation.seed or suite.seed"),
        ("compute.precision=float", "float32"),
        (f"{RUN}.data=tagret", "target"),
        (f"{RUN}.init_from.run=baselin", "baseline"),
    ],
)
def test_a_mistyped_name_is_answered_with_the_one_that_was_meant(mistyped, meant):
    said = refusal(lambda: compose_valid(["experiment=smoke", mistyped]))
    assert said.endswith(f"; did you mean {meant}?") and "\n" not in said


@pytest.mark.parametrize(
    ("right", "wrong", "words"),
    [
        ("kappa_bits: null", "kapa_bits: null", "runs.baseline.kapa_bits: 'kapa_bits' is not one "),
        ("/data: [target", "/data: [targt", "data: 'targt' is not one of coin, "),
        ("/model: [", "/modle: [", "defaults: 'modle' is not one of data, "),
        ("models:", "optim: {lr: 1}\nmodels:", "optim: 'optim' is not one of name, "),
    ],
)
def test_a_name_mistyped_in_a_file_is_said_with_the_file(conf, right, wrong, words):
    file = conf / "conf/experiment/smoke.yaml"
    file.write_text(file.read_text().replace(right, wrong, 1))
    said = refusal(lambda: compose_valid(["experiment=smoke"]))
    assert said.startswith(f"conf/experiment/smoke.yaml: {words}") and "did you mean" in said


@rejects("checks.warm_up_leaves_steps: least.steps «- 1→+ 1»", "nothing but a warm-up")
@pytest.mark.parametrize(
    ("schedule", "override", "words"),
    [
        ("cosine", f"{OPTIM}.warmup_steps=20", "tokens: 10400 tokens are 20 steps, {} at 19"),
        ("cosine", f"{RUN}.budgets=[1040]", "budgets: 1040 tokens are 2 steps, {} at 1"),
        ("wsd", f"{OPTIM}.warmup_steps=17", "tokens: 10400 tokens are 20 steps, {} at 16"),
        ("wsd", f"{OPTIM}.decay=0.95", "tokens: 10400 tokens are 20 steps, {} at 1"),
        ("wsd", f"{RUN}.budgets=[1040]", "budgets: 1040 tokens are 2 steps, {} at 1"),
    ],
)
def test_a_decay_that_begins_before_the_end_of_the_warm_up_is_refused(schedule, override, words):
    said = refusal(smoke, f"{OPTIM}.schedule={schedule}", override)
    assert words.format("whose decay begins") in said and f"before {OPTIM}.warmup_steps" in said


def test_a_copy_of_a_parent_that_nothing_trains_needs_no_warm_up():
    """The parent of `retrofit` is one: a step with a learning rate of 0."""
    experiment, start = smoke(), InitFrom(run="baseline", copied_lr=0.0)
    copy = replace(experiment.runs["baseline"], tokens=520, init_from=start)
    checks.warm_up_leaves_steps(experiment, "runs.copy", copy)


@pytest.mark.parametrize("over", ["batch", "position"])
def test_a_hinge_of_a_whole_batch_needs_the_whole_batch(over):
    """At once: micro-batches have other means. A hinge per token or sequence does not mind."""
    split, design = "compute.accumulate=2", f"{ARCHITECTURE}.latent.free_bits="
    smoke(split, f"{design}sequence")
    smoke("compute.workers=2", f"{design}{over}")
    with pytest.raises(UserError, match=rf"compute\.accumulate: 2, but \S+ has free_bits {over}, "):
        smoke(split, f"{design}{over}")


@rejects("checks.check_derived: «, **entries→»", "runs of the suite left out without a word")
@pytest.mark.parametrize(
    ("listed", "words"),
    [
        ({"text_free_k1_2": "nothing"}, "text_free_k1_2: nothing, not stdlib"),
        ({"text_free_k1_2": "stdlib", "baseline": "target"}, "baseline: target, not left out"),
        ({}, "text_free_k1_2: left out, not stdlib"),
    ],
)
def test_the_runs_of_the_suite_are_those_on_text_with_their_data(listed, words):
    config = changed()
    config.suite_runs = listed
    with pytest.raises(UserError, match=rf"^conf: suite_runs\.{words}"):
        parse(config, "conf")


def test_a_proposal_for_the_filter_is_refused_where_no_run_has_a_filter():
    names = "free_k1_8", "free_k1", "text_free_k1_2"
    changes = [f"runs.{name}.kappa_bits=0.0" for name in names]
    changes += [f"runs.{name}.latent.per=sequence" for name in names]
    smoke(*changes)
    smoke(*changes[:-1], "evaluation.proposal=0.25")
    with pytest.raises(UserError, match=r"evaluation\.proposal: 0\.25 has no effect"):
        smoke(*changes, "evaluation.proposal=0.25")


def test_a_score_is_named_as_the_suite_says_or_as_the_harness_does():
    task = SuiteTask(task="piqa", key="acc_norm,none")
    assert (task.label, replace(task, metric="accuracy").label) == ("acc_norm", "accuracy")


def test_one_expectation_of_two_arms_is_enough():
    """Of a lower and a higher bound one would come true in any case."""
    both = [f"{{arm: free_k1, than: baseline, bound: {bound}}}" for bound in ("lower", "higher")]
    for second in (both[1], "{arm: baseline, than: free_k1, bound: lower}"):
        with pytest.raises(UserError, match=r"^conf: expectation\.1: expectation\.0 already comp"):
            smoke(f"expectation=[{both[0]},{second}]")


@pytest.mark.parametrize("key", ["tokens=20800", "model=other", "data=other"])
def test_arms_that_the_report_never_compares_are_refused(key):
    """They differ in one of data, model and token budget; a budget on the way changes nothing."""
    others = ["data.other=${data.target}", "models.other=${models.target_small}"]
    changes = [
        *others,
        expected("because: so, smallest_effect: null"),
        "runs.free_k1.budgets=[5200]",
    ]
    (stated,) = smoke(*changes).expectation
    assert str(stated) == "the bound of free_k1 lower than that of baseline, because so"
    with pytest.raises(
        UserError, match=r"^conf: expectation\.0\.than: baseline \(.* cannot be compa"
    ):
        smoke(*changes, f"runs.free_k1.{key}")


def test_a_name_that_dvc_would_split_is_refused():
    config = changed()
    config.runs = {"a.b": config.runs.baseline}
    assert refusal(parse, config, "conf").startswith("conf: runs.a.b: a name is lower-case")


@pytest.mark.parametrize(("text", "words"), [("a\0", "NUL character"), ("\ud800", "as UTF-8")])
def test_text_that_no_file_may_have_is_refused(text, words):
    config = changed()
    config.question = text
    said = refusal(parse, config, "conf")
    assert said.startswith("conf: question: ") and words in said


def test_a_value_of_up_to_40_characters_is_shown_whole():
    assert checks.shortened("a" * 40) == "a" * 40
    assert checks.shortened("a" * 41) == "a" * 40 + "… (41 characters)"


def test_malformed_runs_are_left_out_of_the_trainings():
    """A mistake in them has its own line, which `parse` gives."""
    good = {"data": "text", "model": "small"}
    runs = {"a": good, "b": good | {"data": 1}, "c": good | {"model": 1}, "d": 1}
    assert {*trainings(runs, "smoke")} == {"a"}


def test_a_parent_is_called_by_its_folder_or_its_run():
    parents = InitFrom(hf="llama"), InitFrom(run="baseline"), InitFrom()
    assert [str(parent) for parent in parents] == ["llama", "baseline", ""]
