"""Score a pretrained Llama with our harness and lm_eval's.

    ftlab pretrained smollm2_135m
    ftlab fetch suite=paper
    python -m perf.scores piqa arc_easy

Both run the tasks of conf/suite/paper.yaml on the same weights: ours through FreeTransformerLM,
lm_eval's HFLM with the model as transformers reads it from the GGUF file. The results of each task
are written at once to scores.json and scores.md: both figures, the largest difference of a
log-likelihood, and how many generated texts are the same. Programs run in the sandbox.
"""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from time import perf_counter
from typing import Any

import click
import torch
from lm_eval.models.huggingface import HFLM
from omegaconf import OmegaConf
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from ftmodel.conversion.llama import decoder_of
from pipelines.artifacts.llama_files import read_llama
from pipelines.config.schema import Suite, SuiteTask
from pipelines.host.command_line import command, out_folder, run_command
from pipelines.host.errors import UserError, not_one_of
from pipelines.host.files import ROOT, check_writable, dumps, write_file
from pipelines.host.machine import git_revision
from pipelines.host.pytorch import processor_name
from pipelines.suite.lm import FreeTransformerLM
from pipelines.suite.tasks import Outcome, Skipped, run_task
from pipelines.tokenize.vocabulary import adopt

END_TOKEN = "<|endoftext|>"
MODEL = Path("models/smollm2_135m")
CONTEXT_TOKENS = 2048
LIMITS = {  # documents, so that a core needs some minutes for each; of MMLU a subject
    **dict.fromkeys(("human_eval_plus", "mbpp", "gsm8k"), 16),
    **dict.fromkeys(("nq", "tqa"), 50),
    "mmlu": 1,
    "csqa": 60,
    "boolq": 100,
    **dict.fromkeys(("race_high", "race_middle"), 40),
    "hellaswag": 200,
    **dict.fromkeys(("arc_easy", "arc_challenge"), 300),
    **dict.fromkeys(("piqa", "winogrande", "obqa"), 500),
}
SCORES_HEAD = (
    "| benchmark | figure | shots | documents | ours | lm_eval's hf | answers compared "
    "| s, ours | s, hf |\n|---|---|---|---|---|---|---|---|---|"
)


class Backend(HFLM):  # type: ignore[misc]
    """lm_eval's own class, with what our tasks read of a model."""

    truncated = 0
    mc_error: dict[tuple[str, str], float] = {}  # noqa: RUF012

    def start_task(self) -> None:
        pass


def backend() -> HFLM:
    """lm_eval's model, as transformers reads it, 8 requests at once; every text begins with
    END_TOKEN.
    """
    llama = AutoModelForCausalLM.from_pretrained(
        MODEL, gguf_file="model.gguf", dtype=torch.float32
    ).eval()
    tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    end = tokenizer.token_to_id(END_TOKEN)
    llama.generation_config.eos_token_id = end
    tokenizer.post_processor = TemplateProcessing(
        single=f"{END_TOKEN} $A", special_tokens=[(END_TOKEN, end)]
    )
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=END_TOKEN, eos_token=END_TOKEN, pad_token=END_TOKEN
    )
    lm = Backend(
        llama,
        tokenizer=wrapped,
        batch_size=8,
        device="cpu",
        add_bos_token=True,
        max_length=CONTEXT_TOKENS,
    )
    lm.softmax_dtype = torch.float64  # as ours; docs/benchmarks.md, Against float64
    return lm


def compared(mine: Outcome, theirs: Outcome) -> str:
    """Say how the answers of two models to the same requests differ."""
    pairs = list(zip(mine.log, theirs.log, strict=True))
    assert all(a["arguments"] == b["arguments"] for a, b in pairs), "other requests"
    both = ((responses_of(each["resps"]) for each in pair) for pair in pairs)
    answers = list(chain.from_iterable(zip(*pair, strict=True) for pair in both))
    if all(isinstance(text, str) for text, _ in answers):
        return f"{sum(a == b for a, b in answers)} of {len(answers)} texts the same"
    apart = max(abs(float(a[0]) - float(b[0])) for a, b in answers)
    return f"{len(answers)} log-likelihoods to {apart:.1e} nats"


def responses_of(responses: Any) -> list[Any]:
    """List a document's responses: a text or (log-likelihood, whether greedy) per request."""
    if isinstance(responses, str) or not isinstance(responses[0], list | str):
        return [responses]
    return list(chain.from_iterable(map(responses_of, responses)))


def score_row(name: str, spec: SuiteTask, models: Sequence[Any]) -> str:
    """Run a benchmark with both models; returns its row of the table."""
    suite = Suite(name="paper", limit=LIMITS[name], run_code=True)
    outcomes, values, seconds = [], [], []
    for model in models:
        start = perf_counter()
        outcome = run_task(model, name, spec, suite)
        seconds.append(f"{perf_counter() - start:.0f}")
        outcomes.append(outcome)
        result = outcome.result
        se = "" if result.se is None else f" ± {result.se:.3f}"
        values.append(f"{result.value:.3f}{se}")
    counts = f"{result.shots} | {result.documents}"
    cells = (name, spec.label, counts, *values, compared(*outcomes), *seconds)
    return f"| {' | '.join(cells)} |"


@command(__doc__)
@click.argument("names", help="Benchmarks of suite paper; all if none is named.", nargs=-1)
@out_folder("bench")
def main(names: Sequence[str], out: Path) -> None:
    tasks = OmegaConf.load(ROOT / "conf/suite/paper.yaml").tasks
    if unknown := [name for name in names if name not in tasks]:
        raise UserError(f"benchmark {not_one_of(unknown[0], tasks)}")
    if not (MODEL / "model.gguf").is_file():
        raise UserError(f"{MODEL}: is missing; `ftlab pretrained {MODEL.name}`")
    path = out / "scores.json"
    check_writable(out)
    rows = json.loads(path.read_bytes()) if path.exists() else {}
    llama = read_llama(MODEL / "model.gguf")
    model = decoder_of(llama.config, llama.weights, context=CONTEXT_TOKENS)
    tokenizer = adopt(MODEL / "tokenizer.json", END_TOKEN)
    ours = FreeTransformerLM(model, tokenizer, torch.device("cpu"), Suite(name="paper"))
    models = ours, backend()
    for name in names or tasks:
        try:
            rows[name] = score_row(name, SuiteTask(**tasks[name]), models)
        except Skipped as reason:
            print(f"{name}: skipped: {reason}", flush=True)
            continue
        print(rows[name], flush=True)
        about = f"{datetime.now(UTC):%Y-%m-%d}, commit {git_revision()}, {processor_name()}"
        table = "\n".join([SCORES_HEAD, *(rows[name] for name in tasks if name in rows)])
        for file, text in ((path, dumps(rows)), (path.with_suffix(".md"), f"{about}\n\n{table}\n")):
            write_file(file, text)
    print(path.with_suffix(".md"))


if __name__ == "__main__":
    run_command(main, "python -m perf.scores")
