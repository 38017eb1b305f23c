"""Several answers to each prompt of a benchmark: pass@k, and how many of them are distinct.

The harness repeats requests (`repeats`), and its filters may keep all answers (`take_first_k`). But
its only pass@k is code_eval's, which asks a hub for a scorer that runs programs without a
sandbox. So each answer is scored here by the task itself, as if it were the only one.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from ftmodel.analysis.statistics import mean_and_error, pass_at_k
from pipelines.artifacts.suite_results import SampledScore, Sampling, TaskScore, Varied
from pipelines.config.suite import PassAtK, Suite, SuiteTask
from pipelines.host.errors import UserError
from pipelines.suite.lm import FreeTransformerLM
from pipelines.suite.tasks import LoggedSample, StoredTask, as_logged, prepare, run


class SampledOutcome(NamedTuple):
    """The outcome of one way of sampling answers to a task."""

    score: SampledScore
    documents: dict[str, list[float]]  # each figure of the score, by document
    log: list[LoggedSample]


class RepeatedTask(StoredTask):
    """A task with several answers to each document, each scored as if it were the only one."""

    def apply_filters(self) -> None:
        answers: list[list[str]] = [instance.resps for instance in self.instances]
        filtered: list[dict[str, list[Any]]] = [defaultdict(list) for _ in answers]
        for number in range(self.config.repeats):
            for instance, texts in zip(self.instances, answers, strict=True):
                instance.resps = [texts[number]]
            super().apply_filters()
            for instance, results in zip(self.instances, filtered, strict=True):
                for name, result in instance.filtered_resps.items():
                    results[name].append(result)
        for instance, texts, results in zip(self.instances, answers, filtered, strict=True):
            instance.resps, instance.filtered_resps = texts, dict(results)

    def process_results(self, doc: Any, results: list[list[Any]]) -> dict[str, list[float]]:
        """The score of each answer, by metric."""
        scores: dict[str, list[float]] = defaultdict(list)
        (answers,) = results
        for answer in answers:
            for metric, score in super().process_results(doc, [answer]).items():
                scores[metric].append(score)
        return dict(scores)

    def aggregation(self) -> dict[str, Callable[[list[list[float]]], float]]:
        """Count documents, for every metric: `run_sampled` averages over them itself."""
        return dict.fromkeys(super().aggregation(), len)


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
    loaded = prepare(name, spec, suite, RepeatedTask)
    task = next(iter(loaded["tasks"].values()))
    if len(loaded["tasks"]) > 1 or not isinstance(task, RepeatedTask):
        raise UserError(f"suite.pass_at_k.tasks: {name} is not one task with stored data")
    if task.OUTPUT_TYPE != "generate_until":
        raise UserError(f"suite.pass_at_k.tasks: {name} generates no answers")
    task.set_config("repeats", n)
    decoding = {
        "do_sample": sampling.temperature > 0,
        "temperature": sampling.temperature,
        "fresh_z": sampling.varied is not Varied.tokens,
    }
    task.set_config("generation_kwargs", decoding, update=True)
    results, seconds = run(lm, loaded, suite)
    samples = [s for s in results["samples"][task.config.task] if s["filter"] == chosen]
    if {score for sample in samples for score in sample[metric]} - {0, 1}:
        raise UserError(f"suite.pass_at_k.tasks: {name}: {metric} is not 0 or 1 of each answer")
    documents = by_figure(samples, metric, suite.pass_at_k, equal_answers(task, metric))
    scores = {figure: mean_score(values) for figure, values in documents.items()}
    pass_at = {k: scores[f"pass_at_{k}"] for k in suite.pass_at_k.k}
    score = SampledScore(sampling, n, pass_at, scores["distinct"], seconds)
    return SampledOutcome(score, documents, as_logged(samples))


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


def equal_answers(task: RepeatedTask, metric: str) -> Callable[[Any, Any], bool] | None:
    """The test by which the task's metric takes two answers for the same; None for programs, whose
    text is compared.
    """
    if (function := task._metric_fn_list.get(metric)) is None:
        return None
    keywords = task._metric_fn_kwargs[metric]

    def equal(one: Any, other: Any) -> bool:
        return bool(function(references=[one], predictions=[other], **keywords)[metric] == 1)

    return equal


def distinct(answers: Sequence[Any], equal: Callable[[Any, Any], bool]) -> int:
    """How many of ``answers`` differ from all before them."""
    different: list[Any] = []
    for answer in dict.fromkeys(answers):
        if not any(equal(answer, other) for other in different):
            different.append(answer)
    return len(different)


def program_text(text: str) -> str:
    """A program without blank lines, comment lines and trailing spaces."""
    lines = (line.rstrip() for line in text.splitlines())
    return "\n".join(line for line in lines if not re.fullmatch(r"\s*(#.*)?", line))


def mean_score(values: list[float]) -> TaskScore:
    """The mean over documents, and its error."""
    estimate = mean_and_error(torch.tensor(values, dtype=torch.float64))
    return TaskScore(estimate["mean"], estimate["se"] if len(values) > 1 else None)
