"""Several answers to each prompt of a benchmark: pass@k, and how many of them are distinct.

The harness repeats requests (`repeats`), and its filters may keep all answers (`take_first_k`). But
its only pass@k is code_eval's, which asks a hub for a scorer that runs programs without a
sandbox. So each answer is scored here by the task itself, as if it were the only one.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.api.registry import get_metric
from lm_eval.api.task import ConfigurableTask

from ftmodel.analysis.statistics import pass_at_k
from pipelines.artifacts.suite_results import SampledScore, Sampling, Varied
from pipelines.config.schema import PassAtK, Suite, SuiteTask
from pipelines.host.errors import UserError
from pipelines.suite.documents import has_own_scoring, options
from pipelines.suite.lm import FreeTransformerLM
from pipelines.suite.tasks import (
    LoggedSample,
    as_logged,
    cluster_numbers,
    over_documents,
    prepare,
    run,
)


class SampledOutcome(NamedTuple):
    """The outcome of one way of sampling answers to a task."""

    score: SampledScore
    documents: dict[str, list[float]]  # each figure of the score, by document
    log: list[LoggedSample]


class Reciter(LM):  # type: ignore[misc]
    """Draws all answers to each prompt at once, and gives answer ``number`` of them."""

    def __init__(self, lm: FreeTransformerLM, samples: int) -> None:
        super().__init__()
        self.lm, self.samples, self.number = lm, samples, 0
        self.start_task = lm.start_task
        self.texts: list[list[str]] = []  # by request

    def generate_until(self, requests: list[Instance]) -> list[str]:
        n = self.samples
        if not self.texts:
            drawn = self.lm.generate_until([each for each in requests for _ in range(n)])
            self.texts = [drawn[i : i + n] for i in range(0, len(drawn), n)]
        return [texts[self.number] for texts in self.texts]

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        raise NotImplementedError

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        raise NotImplementedError


def samplings(settings: PassAtK, latent: bool) -> list[Sampling]:
    """All ways to draw several answers. A baseline varies its tokens alone, unless it has a random
    prefix, which varies as z does.
    """
    tokens = [Sampling(Varied.tokens, t) for t in settings.temperatures]
    if not latent:
        return tokens
    both = [Sampling(Varied.z_and_tokens, t) for t in settings.temperatures]
    return [Sampling(Varied.z, 0.0), *tokens, *both]


def run_sampled(
    lm: FreeTransformerLM, name: str, spec: SuiteTask, suite: Suite, sampling: Sampling
) -> SampledOutcome:
    """Draw several answers to each prompt of ``spec``, the entry ``name`` of suite.tasks. Raises
    what `run_task` does, and UserError if answers are not right or wrong.
    """
    n = suite.pass_at_k.samples
    metric, _, chosen = spec.key.partition(",")
    loaded = prepare(name, spec, suite)
    task = next(iter(loaded["tasks"].values()))
    if len(loaded["tasks"]) > 1 or not isinstance(task, ConfigurableTask):
        raise UserError(f"suite.pass_at_k.tasks: {name} is not one task with stored data")
    if task.OUTPUT_TYPE != "generate_until":
        raise UserError(f"suite.pass_at_k.tasks: {name} generates no answers")
    task.set_config("repeats", 1)
    decoding = {
        "do_sample": sampling.temperature > 0,
        "temperature": sampling.temperature,
        "fresh_z": sampling.varied is not Varied.tokens,
    }
    task.set_config("generation_kwargs", decoding, update=True)
    reciter, seconds = Reciter(lm, n), 0.0
    by_answer: list[list[LoggedSample]] = []
    for number in range(n):
        reciter.number = number
        task.set_fewshot_seed(suite.seed)  # the same examples in each prompt
        results, took = run(reciter, loaded, suite, bootstrap=0)
        seconds += took
        scored = [s for s in results["samples"][task.config.task] if s["filter"] == chosen]
        if any(sample.get(metric) not in (0, 1) for sample in scored):
            raise UserError(f"suite.pass_at_k.tasks: {name}: {metric} is not 0 or 1 of each answer")
        by_answer.append(scored)
    samples = [together(answers) for answers in zip(*by_answer, strict=True)]
    documents = by_figure(samples, metric, suite.pass_at_k, equal_answers(task, metric))
    clusters = cluster_numbers(spec, samples)
    scores = {figure: over_documents(values, clusters) for figure, values in documents.items()}
    pass_at = {k: scores[f"pass_at_{k}"] for k in suite.pass_at_k.k}
    score = SampledScore(sampling, n, pass_at, scores["distinct"], seconds)
    return SampledOutcome(score, documents, as_logged(samples))


def together(answers: Sequence[LoggedSample]) -> LoggedSample:
    """The answers to a document as one sample, with lists of texts and of scores."""
    first = answers[0]
    return first | {
        "resps": [[each["resps"][0][0] for each in answers]],
        "filtered_resps": [[each["filtered_resps"][0] for each in answers]],
        **{metric: [each.get(metric) for each in answers] for metric in first["metrics"]},
    }


def by_figure(
    samples: list[LoggedSample],
    metric: str,
    settings: PassAtK,
    equal: Callable[[Any, Any], bool] | None,
) -> dict[str, list[float]]:
    """Figures of each document, named as in SampledScore; ``equal`` as `equal_answers` says."""
    n = settings.samples
    right = [int(sum(sample[metric])) for sample in samples]
    by_k = {f"pass_at_{k}": pass_at_k(n, right, k).tolist() for k in settings.k}
    if equal is None:
        different = [len({*map(program_text, sample["resps"][0])}) for sample in samples]
    else:
        different = [distinct(sample["filtered_resps"][0], equal) for sample in samples]
    return by_k | {"distinct": [number / n for number in different]}


def equal_answers(task: ConfigurableTask, metric: str) -> Callable[[Any, Any], bool] | None:
    """The test by which the task's metric takes two answers for the same; None for programs, whose
    text is compared.
    """
    if has_own_scoring(task):
        return None

    def equal(one: Any, other: Any) -> bool:
        for entry in task.config.metric_list or [{"metric": metric}]:
            named = function = entry["metric"]
            if not callable(named):
                function = get_metric(named, entry.get("hf_evaluate", False))
            elif named.__name__ == metric:
                named = metric
            value = function(references=[one], predictions=[other], **options(entry))
            if isinstance(value, dict):  # of a function, with figures of any name
                named, value = metric, value.get(metric)
            if named == metric and value is not None:
                return bool(value == 1)
        return bool(one == other)

    return equal


def distinct(answers: Sequence[Any], equal: Callable[[Any, Any], bool]) -> int:
    """How many of ``answers`` differ from all before them."""
    different: list[Any] = []
    for answer in {repr(answer): answer for answer in answers}.values():
        if not any(equal(answer, other) for other in different):
            different.append(answer)
    return len(different)


def program_text(text: str) -> str:
    """A program without blank lines, comment lines and trailing spaces."""
    lines = (line.rstrip() for line in text.splitlines())
    return "\n".join(line for line in lines if not re.fullmatch(r"\s*(#.*)?", line))
