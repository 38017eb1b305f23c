"""Turns what the harness counted for a task into our results, and adds what it does not compute:
how sure a choice is under Monte-Carlo scoring.
"""

from collections.abc import Mapping
from itertools import chain
from math import hypot, isclose, isnan, log
from statistics import fmean
from typing import Any

import torch

from ftmodel.analysis.statistics import mean_and_error
from pipelines.artifacts.suite_results import TaskResult
from pipelines.config.suite import SuiteTask
from pipelines.suite import benchmark_data
from pipelines.suite.lm import FreeTransformerLM

SURE = 2.0  # Monte-Carlo standard errors
LoggedSample = dict[str, Any]  # of a task, as the harness logs it


def task_result(
    lm: FreeTransformerLM,
    spec: SuiteTask,
    top: str,
    loaded: Mapping[str, Any],
    results: Mapping[str, Any],
    samples: list[LoggedSample],
    seconds: float,
) -> TaskResult:
    """The score of ``top``, a task or a group, and how much Monte-Carlo noise matters to it."""
    metric, _, chosen = spec.key.partition(",")
    tasks, group = loaded["tasks"], loaded["groups"].get(spec.task)
    counted = results["results"][top]
    first = next(iter(tasks))
    errors = list(chain.from_iterable(sample.get("mc_error", []) for sample in samples))
    origins = benchmark_data.origins(task.config for task in tasks.values())
    sources = dict.fromkeys(f"{each['dataset']} at {each['revision']}" for each in origins)
    values = {task: float(results["results"][task][spec.key]) for task in tasks}
    return TaskResult(
        value=float(counted[spec.key]),
        se=standard_error(metric, counted.get(f"{metric}_stderr,{chosen}"), samples),
        metric=spec.label,
        task=spec.task,
        higher_is_better=bool(results["higher_is_better"][first][metric]),
        documents=len(samples),
        shots=int(tasks[first].config.num_fewshot),
        version=str(results["versions"][top] if group is None else group.version),
        truncated=lm.truncated,
        mc_error=fmean(errors) if errors else None,
        undecided=undecided(metric, tasks, samples),
        seconds=seconds,
        subtasks=values if len(tasks) > 1 else {},
        sources=[*sources],
    )


def standard_error(metric: str, counted: Any, samples: list[LoggedSample]) -> float | None:
    """Standard error over documents: the harness's, or the ratio's for bits per byte, or None."""
    if metric == "bits_per_byte":
        nats, sizes = torch.tensor([sample[metric] for sample in samples]).double().T
        counted = mean_and_error(nats / log(2), sizes)["se"]
    return float(counted) if isinstance(counted, int | float) and not isnan(counted) else None


def with_error(lm: FreeTransformerLM, sample: Mapping[str, Any]) -> dict[str, Any]:
    """Monte-Carlo errors of a sample's log-likelihoods, nats; {} if any is not known."""
    # str: of a generation the arguments hold a dict, and no error is known
    errors = [lm.mc_error.get(tuple(map(str, arguments))) for arguments in sample["arguments"]]
    return {} if None in errors else {"mc_error": errors}


def undecided(metric: str, tasks: Mapping[str, Any], samples: list[LoggedSample]) -> float | None:
    """Share of multiple-choice documents whose two best choices, as the metric weighs them, are
    less than SURE standard errors of their difference apart, the two taken as independent; None
    where no error is known.
    """
    lengths = {
        "acc": lambda choice: 1,
        "acc_norm": len,
        "acc_bytes": lambda choice: len(choice.encode()),
    }
    kinds = {task.OUTPUT_TYPE for task in tasks.values()}
    if metric not in lengths or kinds != {"multiple_choice"}:
        return None
    if not samples or not all("mc_error" in sample for sample in samples):
        return None
    close = 0
    for sample in samples:
        choices = tasks[sample["task"]].doc_to_choice(sample["doc"])
        weighed = sorted(
            (
                (likelihood / lengths[metric](choice), error / lengths[metric](choice))
                for choice, (likelihood, _), error in zip(
                    choices, sample["filtered_resps"], sample["mc_error"], strict=True
                )
            ),
            reverse=True,
        )
        if len(weighed) > 1:
            (best, best_error), (second, second_error) = weighed[:2]
            close += best - second < SURE * hypot(best_error, second_error)
    return close / len(samples)


def document_scores(metric: str, value: float, samples: list[LoggedSample]) -> list[float] | None:
    """The score of each document, if the value is their mean."""
    scores = [sample[metric] for sample in samples]
    if not all(isinstance(score, int | float) for score in scores):
        return None
    scores = [float(score) for score in scores]
    return scores if isclose(fmean(scores), value, abs_tol=1e-9) else None
