"""Configuration: what ships is valid, and each mistake is one line that names its key."""

from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from ftmodel.model.latent_design import LatentDesign
from ftmodel.model.transformer import FreeTransformer
from pipelines.common.errors import UserError
from pipelines.compose import compose_config
from pipelines.config.data import KINDS, TextData
from pipelines.config.load import load_experiment, parse
from tests.support.mutants import rejects

ROOT = Path(__file__).parents[2]
DATA = sorted(p.stem for p in (ROOT / "conf/data").glob("*.yaml"))
EXPERIMENTS = sorted(p.stem for p in (ROOT / "conf/experiment").glob("*.yaml"))


@pytest.fixture(autouse=True)
def _in_root(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_shipped_experiment_is_valid_and_named_like_its_file(name):
    experiment = parse(compose_config([f"experiment={name}"]), "conf")
    assert experiment.name == name
    assert all(experiment.steps(run) > 0 for run in experiment.runs.values())


@pytest.mark.parametrize("name", DATA)
def test_all_data_that_ships_is_valid(name):
    config = compose_config(
        ["experiment=smoke", f"data=[{','.join(sorted({'target', 'stdlib', name}))}]"]
    )
    data = parse(config, "conf").data[name]
    if isinstance(data, TextData):
        assert set(data.parts) == set(config.data[name].parts)


def test_the_mixture_is_made_of_the_parts_that_ship():
    data = parse(compose_config(["experiment=smoke", f"data=[{','.join(DATA)}]"]), "conf").data
    parts = {"web": "fineweb_edu", "code": "stack_python", "stories": "tinystories"}
    for part, name in parts.items():
        mixed, (alone,) = data["mixture"].parts[part], data[name].parts.values()
        assert {**vars(mixed), "weight": 1.0} == vars(alone)
    assert sum(part.weight for part in data["mixture"].parts.values()) == pytest.approx(1)


def test_committed_params_are_the_default_experiment():
    """So that a bare `dvc repro` in a fresh clone runs the quickstart."""
    composed = OmegaConf.to_container(compose_config([]))
    assert composed == OmegaConf.to_container(OmegaConf.load("params.yaml"))


def test_a_baseline_has_the_architecture_of_its_preset_but_no_latent():
    experiment = parse(
        compose_config(["experiment=smoke", f"{ARCHITECTURE}.latent_block=2"]), "conf"
    )
    free = experiment.model_config(experiment.runs["free_k1_8"])
    baseline = experiment.model_config(experiment.runs["baseline"])
    assert (free.latent_bits, free.latent_block) == (8, 2)
    assert (baseline.latent_bits, baseline.latent_block) == (0, None)
    assert vars(free) == {**vars(baseline), "latent_bits": 8, "latent_block": 2}


@rejects(
    "config/derived.py",
    "replace(architecture.latent, **changes)",
    "architecture.latent",
    "a run's own design of the latent ignored",
)
@rejects(
    "config/derived.py",
    "latent_block=block, latent=design",
    "latent=design",
    "a run's own block that reads z ignored",
)
def test_a_run_may_have_a_design_of_its_own():
    """Beside the preset's, which the baseline, having no latent, has none of."""
    changes = [f"{RUN}.latent.map=linear", f"{RUN}.latent_bits=20", f"{RUN}.kappa_bits=9"]
    changes.append(f"{RUN}.latent_block=1")
    preset = f"{ARCHITECTURE}.latent.inject=residual"
    experiment = parse(compose_config(["experiment=smoke", preset, *changes]), "conf")
    configs = {name: experiment.model_config(run) for name, run in experiment.runs.items()}
    assert configs["free_k1_8"].latent == LatentDesign(inject="residual", map="linear")
    assert (configs["free_k1_8"].latent_bits, configs["free_k1_8"].latent_block) == (20, 1)
    assert configs["free_k1"].latent == LatentDesign(inject="residual")
    assert configs["free_k1"].latent_block is None
    assert configs["baseline"].latent == LatentDesign()


def test_a_run_may_have_the_shared_encoder_where_its_preset_has_a_separate_one():
    """The preset's number of layers is not the run's, then."""
    preset = [f"{ARCHITECTURE}.latent.encoder=separate", f"{ARCHITECTURE}.latent.encoder_layers=4"]
    changes = [f"{RUN}.latent.encoder=shared", "runs.free_k1.latent.encoder_layers=3"]
    experiment = parse(compose_config(["experiment=smoke", *preset, *changes]), "conf")
    designs = {name: experiment.model_config(run).latent for name, run in experiment.runs.items()}
    assert designs["free_k1_8"] == designs["baseline"] == LatentDesign()
    assert designs["free_k1"] == LatentDesign(encoder="separate", encoder_layers=3)
    assert experiment.models["target_small"].architecture.latent.encoder_layers == 4


def test_a_run_may_have_a_z_a_token_where_its_preset_has_one_for_several():
    preset = [f"{ARCHITECTURE}.latent.per=every", f"{ARCHITECTURE}.latent.every=8"]
    changes = [f"{RUN}.latent.per=token", "runs.free_k1.latent.every=4"]
    experiment = parse(compose_config(["experiment=smoke", *preset, *changes]), "conf")
    designs = {name: experiment.model_config(run).latent for name, run in experiment.runs.items()}
    assert designs["free_k1_8"] == designs["baseline"] == LatentDesign()
    assert designs["free_k1"] == LatentDesign(per="every", every=4)


@rejects(
    "config/derived.py",
    "if run.kappa_bits is None:",
    "if not run.kappa_bits:",
    "a threshold of 0 trained as a baseline",
)
@rejects(
    "config/checks.py",
    "if run.kappa_bits is None:",
    "if not run.kappa_bits:",
    "a threshold of 0 without latent bits",
)
@rejects(
    "config/checks.py",
    "run.extra_blocks < 0 or run.kappa_bits is not None",
    "run.extra_blocks < 0 or run.kappa_bits",
    "a threshold of 0 with the blocks of a larger baseline",
)
def test_a_threshold_of_0_is_that_of_a_free_transformer():
    """It has a latent, needs bits for it, and has no blocks that only a baseline may have."""
    changes = ["experiment=smoke", f"{RUN}.kappa_bits=0"]
    experiment = parse(compose_config(changes), "conf")
    assert experiment.model_config(experiment.runs["free_k1_8"]).latent_bits == 8
    for change, key in (
        (f"{ARCHITECTURE}.latent_bits=0", "kappa_bits: a Free Transformer needs latent bits"),
        (f"{RUN}.extra_blocks=1", "extra_blocks: 1"),
    ):
        with pytest.raises(UserError, match=f"{RUN}.{key}"):
            parse(compose_config([*changes, change]), "conf")


@pytest.mark.parametrize(
    ("name", "baseline", "free"),
    [("paper_1_5b", 1_511_609_856, 1_659_096_576), ("paper_8b", 8_053_329_920, 8_539_951_104)],
)
def test_the_papers_models_have_the_papers_sizes(name, baseline, free):
    """About 1.51 B and 8.05 B; the latent adds a block, a table of 2^16 rows, ζ and a read-out."""
    experiment = parse(compose_config([f"experiment={name}"]), "conf")
    for run, expected in (("baseline", baseline), ("free_k1", free)):
        with torch.device("meta"):
            model = FreeTransformer(experiment.model_config(experiment.runs[run]), 1 << 17)
        assert sum(p.numel() for p in model.parameters()) == expected
    d, k = model.config.d_model, model.config.d_model // model.config.n_heads
    block = (2 * d + 2 * k * model.config.n_kv_heads + 3 * model.config.ffn_width + 2) * d
    assert free - baseline == block + (1 << 16) * d + 16 * d + 2 * d  # ζ, and the read-out's norm


@pytest.mark.parametrize(("name", "tokens"), [("paper_1_5b", 47e9), ("paper_8b", 200e9)])
def test_the_papers_experiments_have_the_arms_of_its_tables_1_and_2(name, tokens):
    runs = parse(compose_config([f"experiment={name}"]), "conf").runs
    assert [run.kappa_bits for run in runs.values()] == [None, 0.25, 0.5, 1.0, 2.0]
    assert {run.tokens for run in runs.values()} == {tokens}


def test_the_papers_third_experiment_has_the_arms_of_table_3_and_its_last_third():
    runs = parse(compose_config(["experiment=paper_8b_1t"]), "conf").runs
    assert [run.kappa_bits for run in runs.values()] == [None, 0.5, 1.0]
    assert {run.tokens for run in runs.values()} == {10**12}
    for run in runs.values():
        averaged = [tokens for tokens in run.budgets if 3 * tokens >= 2 * run.tokens]
        assert averaged == run.budgets and len(averaged) == 3


RUN = "runs.free_k1_8"
ARCHITECTURE = "models.target_small.architecture"
PART = "data.stdlib.parts.stdlib"
SMALLEST = "{data: target, model: target_small, kappa_bits: null, tokens: 10400}"
TEXT_RUN, TEXT_MODEL = "runs.text_free_k1_2", "models.text_small.architecture"


@pytest.mark.parametrize(
    "changes",
    [
        [f"+{RUN}.latent={{per: every, every: 64}}"],
        [f"+{RUN}.latent={{per: sequence, prior: learned}}", f"{RUN}.kappa_bits=1"],
        [f"+{TEXT_RUN}.latent={{per: sequence}}", f"{TEXT_MODEL}.document_mask=true"],
    ],
    ids=["every", "learned", "documents"],
)
def test_a_threshold_that_a_token_can_reach_is_accepted(changes):
    """Of H = 8: 64 tokens may have 1/8 bit each, a KL to a learned prior has no limit, and a
    document may be shorter than the context.
    """
    parse(compose_config(["experiment=smoke", *changes]), "conf")


def expected(change: str) -> str:
    """An override that states an expectation of smoke, right but for one entry."""
    entries = {"arm": "free_k1", "than": "baseline", "bound": "lower"}
    key, _, value = change.partition(": ")
    entries[key] = value
    return f"expectation=[{{{', '.join(f'{k}: {v}' for k, v in entries.items())}}}]"


OPTIM = "models.target_small.optim"
MISTAKES = [
    ("evaluation.particles=0", "evaluation.particles", "must be at least 1"),
    ("evaluation.filters=1", "evaluation.filters", "must be at least 2"),
    ("evaluation.resample_below=1.5", "evaluation.resample_below", "outside 0 … 1"),
    ("evaluation.proposal=-1", "evaluation.proposal", "outside 0 … 1"),
    (f"+{RUN}.kapa_bits=1", f"{RUN}.kapa_bits", "not in"),
    (f"{RUN}.kappa_bits=high", f"{RUN}.kappa_bits", "could not be converted"),
    (f"{RUN}.kappa_bits=-0.5", f"{RUN}.kappa_bits", "outside 0 … 8"),
    (f"{RUN}.kappa_bits=nan", f"{RUN}.kappa_bits", "not a finite number"),
    (f"{RUN}.kappa_bits=8.5", f"{RUN}.kappa_bits", "outside 0 … 8"),
    (f"{RUN}.tokens=519", f"{RUN}.tokens", "less than one batch of 520"),
    (f"{RUN}.budgets=[519]", f"{RUN}.budgets", "do not rise"),
    (f"{RUN}.budgets=[5200,5719]", f"{RUN}.budgets", "do not rise"),
    (f"{RUN}.budgets=[10400]", f"{RUN}.budgets", "do not rise"),
    (f"{RUN}.tokens=1e6", f"{RUN}.tokens", "could not be converted"),
    (f"~{RUN}.tokens", f"{RUN}.tokens", "does not support deletion"),
    (f"{RUN}.tokens=???", f"{RUN}.tokens", "missing"),
    (f"{RUN}.kapa_bits=1", f"{RUN}.kapa_bits", "not in 'Run'"),
    (f"{RUN}.seed=-1", f"{RUN}.seed", "outside 0"),
    (f"{RUN}.seed=4294967296", f"{RUN}.seed", "outside 0"),
    ("evaluation.seed=-1", "evaluation.seed", "outside 0"),
    (f"{RUN}.data=tagret", f"{RUN}.data", "not one of target, stdlib"),
    (f"{RUN}.model=huge", f"{RUN}.model", "not one of target_small"),
    ("+runs={Bad-Name: {data: target}}", "runs.Bad-Name", "missing"),
    ("+runs.b={data: target}", "runs.b", "an entry is added as +runs={b: {…}}"),
    ("++runs.b.data=target", "runs.b", "an entry is added as +runs={b: {…}}"),
    ("runs.b.data=target", "runs.b", "not in struct"),
    (f"{ARCHITECTURE}.n_layers=3", f"{ARCHITECTURE}.n_layers", "odd"),
    (f"{ARCHITECTURE}.latent_block=3", f"{ARCHITECTURE}.latent_block", "outside 1 … 2"),
    (f"{ARCHITECTURE}.n_heads=3", f"{ARCHITECTURE}.n_heads", "does not divide d_model 16"),
    (f"{ARCHITECTURE}.n_kv_heads=3", f"{ARCHITECTURE}.n_kv_heads", "does not divide n_heads 2"),
    (f"{ARCHITECTURE}.latent_bits=0", f"{RUN}.kappa_bits", "needs latent bits"),
    (f"{ARCHITECTURE}.latent.map=tree", f"{ARCHITECTURE}.latent.map", "[table, linear]"),
    (f"{RUN}.latent.map=tree", f"{RUN}.latent.map", "[table, linear]"),
    (f"{RUN}.latent.encoder=own", f"{RUN}.latent.encoder", "[shared, separate]"),
    (f"{RUN}.latent.encoder_layers=3", f"{RUN}.latent.encoder_layers", "a shared encoder is one"),
    (
        f"{RUN}.latent={{encoder: separate, encoder_layers: 0}}",
        f"{RUN}.latent.encoder_layers",
        "0 is outside 1 … 1024",
    ),
    (
        f"{ARCHITECTURE}.latent.encoder_layers=2",
        f"{ARCHITECTURE}.latent.encoder_layers",
        "a shared encoder is one",
    ),
    (
        "runs.baseline.latent.encoder=separate",
        "runs.baseline.latent.encoder",
        "a baseline has no latent",
    ),
    (f"{RUN}.latent={{depth: 2}}", f"{RUN}.latent.depth", "not in 'DesignChanges'"),
    (f"{RUN}.latent_bits=25", f"{RUN}.latent_bits", "25 is outside 0 … 24"),
    ("runs.baseline.latent.map=linear", "runs.baseline.latent.map", "a baseline has no latent"),
    ("runs.baseline.latent_bits=4", "runs.baseline.latent_bits", "a baseline has no latent"),
    ("runs.baseline.latent_block=1", "runs.baseline.latent_block", "a baseline has no latent"),
    (f"{RUN}.latent_block=0", f"{RUN}.latent_block", "0 is outside 1 … 2"),
    (f"{RUN}.latent_block=3", f"{RUN}.latent_block", "3 is outside 1 … 2"),
    (f"{ARCHITECTURE}.context=64", f"{ARCHITECTURE}.context", "does not fit the target task"),
    (f"{ARCHITECTURE}.document_mask=true", f"{ARCHITECTURE}.document_mask", "are rows"),
    ("models.target_small.optim.lr=0", "models.target_small.optim.lr", "positive"),
    ("models.target_small.optim.batch_size=0", "models.target_small.optim.batch_size", "least 1"),
    ("+data.target.sead=1", "data.target.sead", "not in"),
    ("data.target.source=hub", "data.target.source", "target, text"),
    ("data.target.train_sequences=0", "data.target.train_sequences", "at least 1"),
    ("data.stdlib.vocab_size=100", "data.stdlib.vocab_size", "outside 257"),
    ("data.stdlib.vocab_size=131073", "data.stdlib.vocab_size", "… 131072"),
    ("data.stdlib.validation_share=1", "data.stdlib.validation_share", "between 0 and 1"),
    ("data.stdlib.tokenizer=a.json", "data.stdlib.vocab_size", "both are given"),
    ("data.stdlib.vocab_size=null", "data.stdlib.vocab_size", "neither is given"),
    ("data.stdlib.end_of_text=''", "data.stdlib.end_of_text", "empty"),
    ("data.stdlib.max_bytes=0", "data.stdlib.max_bytes", "at least 1"),
    ("~data.stdlib.parts", "data.stdlib.parts", "does not support deletion"),
    ("~data.stdlib.parts.stdlib", "data.stdlib.parts", "empty"),
    ("data.stdlib.parts=null", "data.stdlib.parts", "not Optional"),
    ("data.stdlib.parts=7", "data.stdlib.parts", "Cannot assign int"),
    ("+data.stdlib.parts.B={source: hub, dataset: a}", "data.stdlib.parts.B", "lower-case"),
    (f"{PART}.source=url", f"{PART}.source", f"not one of {', '.join(sorted(KINDS))}"),
    (f"+{PART}.subset=a", f"{PART}.subset", "not in"),
    (f"{PART}.pattern=???", f"{PART}.pattern", "missing"),
    (f"{PART}.pattern='a**b'", f"{PART}.pattern", "entire path component"),
    (f"{PART}.pattern=./*.py", f"{PART}.pattern", "paths are below root"),
    (f"{PART}.pattern=/srv/*.py", f"{PART}.pattern", "paths are below root"),
    (f"{PART}.exclude=[a,/srv/a.py]", f"{PART}.exclude", "'/srv/a.py' matches nothing"),
    (f"{PART}.exclude=[./a.py]", f"{PART}.exclude", "'./a.py' matches nothing"),
    (f"{PART}.exclude=['']", f"{PART}.exclude", "'' matches nothing"),
    (f"{PART}.exclude=[a/b**]", f"{PART}.exclude", "entire path component"),
    (f"{PART}.format=json", f"{PART}.format", "json is not one of text, jsonl, parquet"),
    (f"{PART}.weight=0", f"{PART}.weight", "positive"),
    (f"{PART}.weight=nan", f"{PART}.weight", "not a finite number"),
    ("+data.stdlib.parts.b={source: hub}", "data.stdlib.parts.b.dataset", "missing"),
    (
        "+data.stdlib.parts.b={source: hub, dataset: a}",
        "data.stdlib.parts.b.subset",
        "missing; entries of data start from /source and their parts from /part",
    ),
    (
        "+data.b={source: target, train_sequences: 1, validation_sequences: 1}",
        "data.b.seed",
        "missing; entries of data start from /source",
    ),
    ("compute.precision=fp8", "compute.precision", "Invalid value"),
    ("compute.accumulate=0", "compute.accumulate", "at least 1"),
    ("compute.accumulate=3", "compute.accumulate", "does not divide models."),
    ("compute.workers=0", "compute.workers", "at least 1"),
    ("compute.workers=3", "compute.workers", "does not divide models."),
    ("compute={workers: 4, accumulate: 4}", "compute.accumulate", "4 × compute.workers 4 does not"),
    ("compute.gpus_per_worker=2", "compute.gpus_per_worker", "a worker drives one GPU"),
    ("compute={workers: 2, gpus_per_worker: 0.5}", "compute.gpus_per_worker", "a GPU each"),
    ("compute.strategy=fsdp", "compute.strategy", "compute.workers is 1"),
    ("compute.strategy=ring", "compute.strategy", "Invalid value"),
    ("compute.max_failures=-1", "compute.max_failures", "at least 0"),
    ("evaluation.groups=1", "evaluation.groups", "at least 2"),
    ("name=a.b", "name", "lower-case"),
    ("question=' '", "question", "empty"),
    ("question=[a]", "question", "Cannot convert"),
    (expected("arm: free"), "expectation.0.arm", "'free' is not an arm: baseline, free_k1_8, "),
    (expected("than: free"), "expectation.0.than", "'free' is not an arm"),
    (expected("than: free_k1"), "expectation.0.than", "the arm itself"),
    (expected("than: text_free_k1_2"), "expectation.0.than", "never compared with free_k1"),
    (expected("because: ' '"), "expectation.0.because", "empty"),
    (expected("bound: less"), "expectation: bound", "expected one of [lower, higher, no_diff"),
    (expected("becaus: a"), "expectation: becaus", "not in 'Expectation'"),
    ("expectation=[{arm: free_k1, than: baseline}]", "expectation.0.bound", "missing"),
    ("expectation=[free_k1]", "expectation.0", "not a subclass of Expectation"),
    ("expectation=lower", "expectation", "not a ListConfig"),
    ("expectation=null", "expectation", "not Optional"),
    (f"{RUN}.kappa_warmup_steps=-1", f"{RUN}.kappa_warmup_steps", "-1 is outside 0 … 20"),
    ("runs.baseline.kappa_warmup_steps=5", "runs.baseline.kappa_warmup_steps", "has no κ"),
    (f"{ARCHITECTURE}.rope_theta=0", f"{ARCHITECTURE}.rope_theta", "from 1 on"),
    (f"{ARCHITECTURE}.rope_theta=-1", f"{ARCHITECTURE}.rope_theta", "from 1 on"),
    (f"{ARCHITECTURE}.rope_theta=nan", f"{ARCHITECTURE}.rope_theta", "not a finite number"),
    (f"{ARCHITECTURE}.rope_theta=inf", f"{ARCHITECTURE}.rope_theta", "not a finite number"),
    (f"{ARCHITECTURE}.norm_eps=0", f"{ARCHITECTURE}.norm_eps", "positive"),
    (f"{ARCHITECTURE}.d_model=2097152", f"{ARCHITECTURE}.d_model", "more than 1048576"),
    (f"{ARCHITECTURE}.n_layers=2000", f"{ARCHITECTURE}.n_layers", "more than 1024"),
    ("models.target_small.optim.weight_decay=inf", "models.target_small.optim.weight", "finite"),
    (f"{RUN}.tokens=9007199254740993", f"{RUN}.tokens", "outside −2^53 … 2^53"),
    (f"{RUN}.tokens={10**30}", f"{RUN}.tokens", "outside −2^53 … 2^53"),
    (f"seeds=[{10**30}]", "seeds.0", "outside −2^53 … 2^53"),
    (f"evaluation.groups={2**64}", "evaluation.groups", "outside −2^53 … 2^53"),
    (f"data.target.train_sequences={2**64}", "data.target.train_sequences", "outside −2^53"),
    ("data.target.seed=4294967296", "data.target.seed", "outside 0 … 2^32 − 1"),
    ("data.stdlib.seed=-1", "data.stdlib.seed", "outside 0 … 2^32 − 1"),
    (f"evaluation.proposal={10**400}", "evaluation.proposal", "too large"),
    ("suite.run_code=-1", "suite.run_code", "neither true nor false"),
    ("suite.run_code=1", "suite.run_code", "neither true nor false"),
    ("suite.run_code=yes", "suite.run_code", "neither true nor false"),
    ("data.stdlib.deduplicate=0", "data.stdlib.deduplicate", "neither true nor false"),
    (f"{ARCHITECTURE}.tied=2", f"{ARCHITECTURE}.tied", "neither true nor false"),
    (f"name={'a' * 300}", "name", "120 at most"),
    (
        f"+runs={{{'a' * 300}: {SMALLEST}}}",
        f"runs.{'a' * 40}… (300 characters)",
        "at most 120 characters",
    ),
    ("+source@data.code=target", "data.code", "missing"),
    ("data.stdlib.end_of_text=a", "data.stdlib.end_of_text", "a single character"),
    ("~suite_runs", "suite_runs.text_free_k1_2", "left out, not stdlib"),
    ("suite.name=none", "suite.name", "none, which has tasks"),
    (f"{PART}.exclude=[[a]]", f"{PART}.exclude.0", "not a single value"),
    ("experiment=null", "experiment", "null is not one of designs"),
    ("data=null", "data", "null is not one of coin"),
    (f"{RUN}.kappa_warmup_steps=21", f"{RUN}.kappa_warmup_steps", "the steps of 10400 tokens"),
    (f"+arms={{more: {SMALLEST}}}", "arms.more", "not used by any run; add +runs.more instead"),
    ("seeds=[0,1]", "seeds", "they make runs of arms, and there are none"),
    (f"+{RUN}.latent_bits=0", f"{RUN}.kappa_bits", f"but {RUN}.latent_bits is 0; null makes"),
    (
        f"{ARCHITECTURE}.latent.per=sequence",
        f"{RUN}.kappa_bits",
        "is more than a token can have: with latent.per s",
    ),
    (  # the last of 65 tokens reads a z of its own, which is no reason for the other 64
        "+runs.free_k1.latent={per: every, every: 64}",
        "runs.free_k1.kappa_bits",
        "1.0 is more than a token can have: with latent.per e",
    ),
    ("runs.baseline.extra_blocks=2000", "runs.baseline.n_layers", "more than 1024"),
]


@pytest.mark.parametrize(
    ("override", "words"),
    [
        (f"{OPTIM}.warmup_steps=17", "tokens: 10400 tokens are 20 steps, whose decay begins at 16"),
        (f"{OPTIM}.decay=0.95", "tokens: 10400 tokens are 20 steps, whose decay begins at 1"),
        (
            f"{RUN}.budgets=[1040,5200]",
            "budgets: 1040 tokens are 2 steps, whose decay begins at 1",
        ),
    ],
)
def test_a_decay_that_begins_before_the_end_of_the_warm_up_is_refused(override, words):
    """Under wsd alone: the cosine does not mind."""
    wsd = f"{OPTIM}.schedule=wsd"
    assert parse(compose_config(["experiment=smoke", wsd]), "conf")
    assert parse(compose_config(["experiment=smoke", override]), "conf")
    with pytest.raises(UserError) as caught:
        parse(compose_config(["experiment=smoke", wsd, override]), "conf")
    assert words in str(caught.value)
    assert f"before the end of {OPTIM}.warmup_steps" in str(caught.value)


@rejects(
    "config/checks.py",
    "over.needs_whole_batch and parts > 1",
    "over.needs_whole_batch and parts > 2",
    "a hinge of a batch in two parts",
)
@pytest.mark.parametrize("over", ["batch", "position"])
def test_a_hinge_of_a_whole_batch_needs_the_whole_batch(over):
    """At once: micro-batches have other means. A hinge per token or sequence does not mind."""
    split, design = "compute.accumulate=2", f"{ARCHITECTURE}.latent.free_bits="
    parse(compose_config(["experiment=smoke", split, f"{design}sequence"]), "conf")
    parse(compose_config(["experiment=smoke", "compute.workers=2", f"{design}{over}"]), "conf")
    with pytest.raises(
        UserError, match=rf"compute\.accumulate: 2, but \S+ has free_bits {over}, which"
    ):
        parse(compose_config(["experiment=smoke", split, f"{design}{over}"]), "conf")


@rejects(
    "config/values.py", "isinstance(value, bool):", "isinstance(value, int):", "a number for true"
)
@rejects("config/values.py", "abs(value) > LARGEST", "False", "integers without a bound")
@rejects(
    "config/checks.py", "if len(name) > LONGEST_NAME:", "if False:", "names as long as one likes"
)
@rejects(
    "config/checks.py",
    "if run.kappa_bits is None and run.kappa_warmup_steps:",
    "if False:",
    "a threshold that rises for a baseline",
)
@pytest.mark.parametrize(("override", "key", "reason"), MISTAKES, ids=[m[0] for m in MISTAKES])
def test_a_mistake_is_one_line_with_its_dotted_key(override, key, reason):
    with pytest.raises(UserError) as caught:
        chosen = [] if override.startswith("experiment=") else ["experiment=smoke"]
        parse(compose_config([*chosen, override]), "conf")
    assert str(caught.value).replace("conf/:", "conf:").startswith(f"conf: {key}")
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


@rejects(
    "config/checks.py",
    "in {**experiment.suite_runs, **scored}:",
    "in experiment.suite_runs:",
    "runs of the suite left out without a word",
)
@pytest.mark.parametrize(
    ("listed", "words"),
    [
        ({"text_free_k1_2": "nothing"}, "text_free_k1_2: nothing, not stdlib"),
        ({"text_free_k1_2": "stdlib", "baseline": "target"}, "baseline: target, not left out"),
        ({}, "text_free_k1_2: left out, not stdlib"),
    ],
)
def test_the_runs_of_the_suite_are_those_on_text_with_their_data(listed, words):
    config = compose_config(["experiment=smoke"])
    config.suite_runs = listed
    with pytest.raises(UserError, match=rf"^conf: suite_runs\.{words}"):
        parse(config, "conf")


def test_a_proposal_for_the_filter_is_refused_where_no_run_has_a_filter():
    names = "free_k1_8", "free_k1"
    overrides = ["experiment=smoke", "evaluation.proposal=0.25", "~runs.text_free_k1_2"]
    overrides += [f"runs.{name}.kappa_bits=0.0" for name in names]
    first, second = (f"runs.{name}.latent.per=sequence" for name in names)
    parse(compose_config([*overrides, first]), "conf")
    parse(compose_config([*overrides, first, second, "evaluation.proposal=null"]), "conf")
    with pytest.raises(UserError, match=r"evaluation\.proposal: 0\.25 is of the particle filter"):
        parse(compose_config([*overrides, first, second]), "conf")


def test_one_expectation_of_two_arms_is_enough():
    """Of a lower and a higher bound one would come true in any case."""
    both = [f"{{arm: free_k1, than: baseline, bound: {bound}}}" for bound in ("lower", "higher")]
    turned = "{arm: baseline, than: free_k1, bound: lower}"
    for second in (both[1], turned):
        with pytest.raises(UserError, match=r"^conf: expectation\.1: expectation\.0 is about"):
            parse(compose_config(["experiment=smoke", f"expectation=[{both[0]},{second}]"]), "conf")


@pytest.mark.parametrize("key", ["tokens=20800", "model=text_small", "data=other"])
def test_arms_that_the_report_never_compares_are_refused(key):
    """They differ in one of data, model and token budget; a budget on the way changes nothing."""
    overrides = ["+source@data.other=target", "data.other.train_sequences=9",
                 "data.other.validation_sequences=9", "models.text_small.architecture.context=65",
                 expected("because: so")]  # fmt: skip
    smoke = compose_config(["experiment=smoke", *overrides, "runs.free_k1.budgets=[5200]"])
    (stated,) = parse(smoke, "conf").expectation
    assert str(stated) == "the bound of free_k1 lower than that of baseline, because so"
    with pytest.raises(
        UserError, match=r"^conf: expectation\.0\.than: baseline \(.* never compared"
    ):
        parse(compose_config(["experiment=smoke", *overrides, f"runs.free_k1.{key}"]), "conf")


def test_expectations_name_arms_and_not_the_runs_of_their_seeds():
    seeds = ["experiment=kappa_text", "seeds=[3,5]"]
    entry = "expectation=[{{arm: {}, than: baseline, bound: lower}}]"
    assert parse(compose_config([*seeds, entry.format("free_k1")]), "conf").expectation
    with pytest.raises(UserError, match=r"expectation\.0\.arm: 'free_k1_s3' is not an arm"):
        parse(compose_config([*seeds, entry.format("free_k1_s3")]), "conf")


def test_a_builder_needs_files():
    overrides = ["+part@data.stdlib.parts.b=hub", "data.stdlib.parts.b.dataset=json"]
    with pytest.raises(UserError, match=r"conf: data\.stdlib\.parts\.b\.data_files: empty"):
        parse(compose_config(["experiment=smoke", *overrides]), "conf")


def test_a_name_that_dvc_would_split_is_refused():
    config = compose_config(["experiment=smoke"])
    config.runs = {"a.b": config.runs.baseline}
    with pytest.raises(UserError, match=r"runs\.a\.b: a name is lower-case"):
        parse(config, "conf")


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("experiment=nothing", "quickstart; retrofit; smoke"),
        ("runs.free_k1_8.kapa_bits=1", "runs.free_k1_8.kapa_bits"),
        ("kappa", "kappa"),
    ],
)
def test_what_hydra_refuses_is_one_line_too(override, words):
    with pytest.raises(UserError, match=words) as caught:
        compose_config([override])
    assert "\n" not in str(caught.value)


def test_two_runs_of_one_name_are_refused(tmp_path):
    path = tmp_path / "params.yaml"
    path.write_text("name: x\nruns:\n  a: {data: d}\n  a: {data: d}\n")
    with pytest.raises(UserError, match="duplicate key a"):
        load_experiment(path)


@pytest.mark.parametrize(("text", "words"), [("[1, 2]", "not a mapping"), ("a: [", "params.yaml")])
def test_a_broken_params_file_is_named(tmp_path, text, words):
    path = tmp_path / "params.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=words):
        load_experiment(path)


def test_missing_params_say_what_to_run(tmp_path):
    with pytest.raises(UserError, match="make repro"):
        load_experiment(tmp_path / "params.yaml")
