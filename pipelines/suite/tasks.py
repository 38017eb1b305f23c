"""Loads and runs benchmark tasks, ours (tasks/) and the lm-evaluation-harness's.

The harness builds prompts, extracts answers, scores and counts; names are in task_index.py, data in
benchmark_data.py. `run_task` turns what it counted into our results, and adds what it does not
compute: how sure a choice is under Monte-Carlo scoring.

Some answers are programs. They count as hostile, so only the sandbox runs them. A filter of the
harness (`human_eval`, `mbpp`) runs all programs of a task at once, and replaces each answer by
PASSED or the failure's name.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from math import hypot, isclose, isfinite, isnan, log
from pathlib import Path
from statistics import fmean
from time import perf_counter
from typing import Any, NamedTuple

import torch
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.evaluator import evaluate
from lm_eval.utils import handle_non_serializable

from ftmodel.analysis.statistics import cluster_totals, mean_and_error
from pipelines.artifacts.suite_results import CLUSTER, GOLD, TaskResult, TaskScore
from pipelines.common.file_listing import words_of
from pipelines.config.schema import Suite, SuiteTask
from pipelines.host.errors import UserError, not_one_of
from pipelines.suite import benchmark_data, documents, task_index
from pipelines.suite.lm import FreeTransformerLM
from pipelines.suite.task_index import check_names, leaves, manager_of, quiet, refuse_key

BOOTSTRAP = 1000  # draws for the standard error of a metric that has no closed form
SURE = 2.0  # Monte-Carlo standard errors
PASSED = "passed"
PROMPTS = (2, 3, 4)  # of MBPP, the task_ids that its authors put in their prompt

LoggedSample = dict[str, Any]  # of a task, as the harness logs it


class Skipped(Exception):
    """A task that cannot be run here; the message is one line: why, and how to fix that."""


class Outcome(NamedTuple):
    """What running a task gave."""

    result: TaskResult
    scores: list[float] | None  # of each document, where the value is their mean
    log: list[LoggedSample]
    more: dict[str, list[float]]  # other figures of each document: GOLD, CLUSTER


def load(task: str) -> dict[str, Any]:
    """The harness's tasks and groups by name; raises Skipped if their data cannot be used, and
    UserError if the tasks cannot be made.
    """
    try:
        # it warns of settings that its own tasks leave out
        with quiet(logging.ERROR), documents.stored_data():
            return dict(manager_of(task).load(task))
    except benchmark_data.NotHere as error:
        raise Skipped(
            f"its data are not in {benchmark_data.FOLDER} ({error}); "
            "`ftlab fetch` brings them there"
        ) from error
    except (ImportError, OSError) as error:  # of a task that is a program, and gets its own data
        raise Skipped(f"the harness cannot load it here ({words_of(error)})") from error
    except UserError:
        raise
    except Exception as error:
        raise documents.named_failure(error, task) from error


def check_files(task: str, run_code: bool) -> set[str]:
    """The tasks behind ``task`` whose files say that they run what a model wrote. Raises Skipped
    for one of the harness, or if it is not asked for, before data or a scorer are downloaded.
    """
    unsafe = set()
    for leaf in leaves(task, manager_of(task).task_index):
        if leaf.cfg.get("unsafe_code"):
            unsafe.add(leaf.name)
            if task_index.OURS not in Path(leaf.yaml_path).parents:
                raise Skipped(
                    "the harness would run what a model wrote with no sandbox; "
                    "ft_human_eval_plus and ft_mbpp have one"
                )
            check_sandbox(run_code)
    return unsafe


def check_programs(loaded: Mapping[str, Any], unsafe: set[str], run_code: bool) -> None:
    """Raise Skipped unless what a model wrote is run only if asked for, and in the sandbox. The
    tasks as they are loaded say so, not only the files of those that are ``unsafe``: a group may
    set what a member's file does not.
    """
    for name, task in loaded["tasks"].items():
        in_sandbox = [
            any(
                step["function"] == "custom" and step.get("filter_fn") in (human_eval, mbpp)
                for step in way["filter"]
            )
            for way in getattr(task.config, "filter_list", None) or []
        ]
        says_so = name in unsafe or getattr(task, "UNSAFE_CODE", False)
        if not says_so and not any(in_sandbox):
            continue
        check_sandbox(run_code)
        # a scorer must see what the sandbox says of an answer, and never the answer
        if not in_sandbox or not all(in_sandbox):
            raise Skipped(
                f"{name} would run what a model wrote with no sandbox: its filter_list "
                "needs pipelines.suite.tasks.human_eval or .mbpp in each filter"
            )


def check_sandbox(run_code: bool) -> None:
    """Raise Skipped unless programs are to be run, and can be."""
    if not run_code:
        raise Skipped("programs that a model wrote are run only if asked for: suite.run_code=true")
    from pipelines.suite.sandbox import run as sandbox

    if reason := sandbox.unavailable():
        raise Skipped(reason)


def configure(name: str, spec: SuiteTask, loaded: dict[str, Any], seed: int) -> None:
    """Set shots and seed of the tasks; raise UserError for a metric or shots they do not have."""
    metric = spec.key.partition(",")[0]
    if len(loaded["tasks"]) > 1:
        group = loaded["groups"].get(spec.task)  # a tag is none
        counted = (group.aggregate_metric_list if group else None) or []
        common = [each.metric for each in counted]
        if metric not in common:
            raise UserError(
                f"suite.tasks.{name}.key: {spec.task} has no {metric!r} for its "
                f"{len(loaded['tasks'])} tasks together; name them one by one"
            )
    for task in loaded["tasks"].values():
        shots = spec.shots if spec.shots is not None else (task.config.num_fewshot or 0)
        task.set_config("num_fewshot", shots)
        task.set_fewshot_seed(seed)
        if shots and shots > len(task.sampler.df):
            raise UserError(
                f"suite.tasks.{name}.shots: {shots}, but {task.config.task} has "
                f"{len(task.sampler.df)} documents for its prompt"
            )
        if not any(callable(each["metric"]) for each in task.config.metric_list or []):
            # a function may give figures of any name
            refuse_key(name, spec.key, list(task.aggregation()), task.config.filter_list)


def prepare(name: str, spec: SuiteTask, suite: Suite) -> dict[str, Any]:
    """The tasks behind ``spec``, the entry ``name`` of suite.tasks; raises Skipped or UserError."""
    check_names({name: spec.task})
    unsafe = check_files(spec.task, suite.run_code)
    documents.seed_everything(suite.seed)  # a task may shuffle its documents
    loaded = load(spec.task)
    check_programs(loaded, unsafe, suite.run_code)
    configure(name, spec, loaded, suite.seed)
    for task in loaded["tasks"].values():
        documents.check_documents(task, suite.limit)
        if spec.cluster is not None:
            check_clusters(name, spec.cluster, task, suite.limit)
    return loaded


def run(
    lm: Any, loaded: dict[str, Any], suite: Suite, bootstrap: int = BOOTSTRAP
) -> tuple[Any, float]:
    """The harness's results of loaded tasks, and seconds; raises UserError for a bad document."""
    documents.seed_everything(suite.seed)
    lm.start_task()
    begin = perf_counter()
    with quiet():
        results = evaluate(
            lm,
            loaded,
            limit=suite.limit,
            bootstrap_iters=bootstrap,
            log_samples=True,
            confirm_run_unsafe_code=suite.run_code,  # check_programs has asked for more
        )
    return results, perf_counter() - begin


def run_task(lm: FreeTransformerLM, name: str, spec: SuiteTask, suite: Suite) -> Outcome:
    """Run ``spec``, the entry ``name`` of suite.tasks; raises Skipped, UserError or its own."""
    loaded = prepare(name, spec, suite)
    results, seconds = run(lm, loaded, suite)
    tasks = loaded["tasks"]
    top = spec.task if len(tasks) > 1 else next(iter(tasks))
    if spec.key not in results["results"][top]:
        found = (key for key in results["results"][top] if "," in key and "_stderr," not in key)
        raise UserError(
            f"suite.tasks.{name}.key: {top} gives no {spec.key!r} for its {len(tasks)} tasks; it "
            f"gives {', '.join(found)}"
        )
    metric, _, chosen = spec.key.partition(",")
    filtered = [
        {"task": task, **sample} | with_error(lm, sample)
        for task in tasks
        for sample in results["samples"][task]
        if sample["filter"] == chosen
    ]
    samples = [sample for sample in filtered if metric in sample]  # a task may leave some out
    whole = len(samples) == len(filtered)
    result = task_result(lm, spec, top, loaded, results, samples, seconds)
    if not isfinite(result.value):
        raise UserError(f"task {top}: its {metric} is {result.value}")
    scores = document_scores(metric, result.value, samples) if whole else None
    more = cluster_numbers(spec, samples) if whole else {}
    if more:
        if scores is None:
            raise UserError(
                f"suite.tasks.{name}.cluster: {metric} is no mean of its documents' scores, so it "
                "has no error over clusters"
            )
        error = over_documents(scores, more).se
        result = replace(result, clusters=len({*more[CLUSTER]}), se=error)
    if whole and (gold := gold_bits_per_byte(lm, tasks, samples)):
        result = replace(result, gold_bpb=over_documents(gold, more))
        more[GOLD] = gold
    return Outcome(result, scores, as_logged(filtered), more)


def over_documents(scores: list[float], more: Mapping[str, list[float]]) -> TaskScore:
    """Mean and error over documents, or over their clusters, if ``more`` has them."""
    totals, sizes = torch.tensor(scores, dtype=torch.float64), None
    if CLUSTER in more:
        totals, sizes = cluster_totals(totals, torch.tensor(more[CLUSTER]))
    found = mean_and_error(totals, sizes)
    return TaskScore(found["mean"], None if isnan(found["se"]) else found["se"])


def cluster_numbers(spec: SuiteTask, samples: Sequence[LoggedSample]) -> dict[str, list[float]]:
    """The number of each document's cluster, from 0, as figures of documents; {} without
    ``spec.cluster``. Documents of one task with the same value of this field share a cluster; one
    without a value has a cluster of its own.
    """
    if spec.cluster is None:
        return {}
    keys = []
    for i, sample in enumerate(samples):
        value = sample["doc"][spec.cluster]
        keys.append((sample.get("task"), i if value in (None, "") else repr(value)))
    numbers = {key: float(i) for i, key in enumerate(dict.fromkeys(keys))}
    return {CLUSTER: [numbers[key] for key in keys]}


def check_clusters(name: str, field: str, task: Any, limit: int | None) -> None:
    """Raise UserError if a document of the entry ``name`` lacks the field of its cluster."""
    for _, doc in task.doc_iterator(limit=limit):
        if field not in doc:
            raise UserError(f"suite.tasks.{name}.cluster: {not_one_of(field, doc)}")


def gold_bits_per_byte(
    lm: LM, tasks: Mapping[str, Any], samples: list[LoggedSample]
) -> list[float] | None:
    """−log₂ P(right answer | prompt) ÷ the answer's bytes, of each document: it moves where a small
    model's accuracy is chance. Of several right answers the first counts. None for a task with a
    document whose answer is no text, has none, or is longer than the context.
    """
    pairs = list[tuple[str, str]]()  # prompt and right answer
    known = dict[tuple[str, str], float]()  # log P, where the harness has asked for it
    for sample in samples:
        task, asked, right = tasks[sample["task"]], sample["arguments"], sample["target"]
        right = right[0] if isinstance(right, list) and right else right
        if task.OUTPUT_TYPE == "multiple_choice":
            if task.multiple_input:  # several prompts and one answer: which prompt is right
                right = task.doc_to_text(sample["doc"])
            choices = task.doc_to_choice(sample["doc"])
            if isinstance(right, str) and right in choices:
                right = choices.index(right)
            if not isinstance(right, int) or right not in range(len(choices)):  # −1: hidden
                return None
            pairs.append(asked[right])
            known[asked[right]] = sample["resps"][right][0][0]
        elif task.OUTPUT_TYPE == "generate_until":
            if isinstance(right, int) and task.config.doc_to_choice is not None:
                choices = task.doc_to_choice(sample["doc"])
                right = choices[right] if right in range(len(choices)) else None
            if not isinstance(right, str) or not right:
                return None
            pairs.append((asked[0][0], f"{task.config.target_delimiter}{right}"))
        else:
            return None
    unknown = [pair for pair in dict.fromkeys(pairs) if pair not in known]
    if unknown:
        requests = [Instance("loglikelihood", {}, pair, i) for i, pair in enumerate(unknown)]
        try:
            found = lm.loglikelihood(requests)
        except UserError:  # an answer is longer than the context
            return None
        known |= {pair: log_p for pair, (log_p, _) in zip(unknown, found, strict=True)}
    return [-known[pair] / log(2) / len(pair[1].encode(errors="surrogatepass")) for pair in pairs]


def as_logged(samples: list[LoggedSample]) -> list[LoggedSample]:
    """Samples as plain data."""
    logged: list[LoggedSample] = json.loads(json.dumps(samples, default=handle_non_serializable))
    return logged


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
                # without acc_mutual_info's likelihoods, which stand behind those of the choices
                for choice, (likelihood, _), error in zip(
                    choices, sample["filtered_resps"], sample["mc_error"], strict=False
                )
            ),
            reverse=True,
        )
        if len(weighed) > 1:
            (best, best_error), (second, second_error) = weighed[:2]
            if best - second < SURE * hypot(best_error, second_error):
                close += 1
    return close / len(samples)


def document_scores(metric: str, value: float, samples: list[LoggedSample]) -> list[float] | None:
    """The score of each document, if the value is their mean."""
    scores = [sample[metric] for sample in samples]
    if not all(isinstance(score, int | float) for score in scores):
        return None
    scores = [float(score) for score in scores]
    return scores if isclose(fmean(scores), value, abs_tol=1e-9) else None


def human_eval(answers: list[list[str]], docs: list[dict[str, Any]]) -> list[list[str]]:
    """Run answers, the bodies of functions that prompts begin; ``test`` defines ``check``."""
    return program_verdicts(
        [
            (doc["prompt"] + answer, f"{doc['test']}\ncheck({doc['entry_point']})\n")
            for doc, (answer,) in zip(docs, answers, strict=True)
        ]
    )


def mbpp(answers: list[list[str]], docs: list[dict[str, Any]]) -> list[list[str]]:
    """Run answers, which are whole programs; one passes if it passes all tests."""
    return program_verdicts(
        [
            (answer, "\n".join([doc["test_setup_code"], *doc["test_list"]]) + "\n")
            for doc, (answer,) in zip(docs, answers, strict=True)
        ]
    )


def program_verdicts(programs: list[tuple[str, str]]) -> list[list[str]]:
    """PASSED, or what went wrong, for each program with its tests."""
    from pipelines.suite.sandbox import run as sandbox

    results = sandbox.run_programs(programs)
    return [[PASSED if verdict.passed else verdict.failure] for verdict in results]


def pass_at_1(doc: dict[str, Any], results: list[list[str]]) -> dict[str, float]:
    """The score of the one answer to a document."""
    return {"pass@1": float(results == [[PASSED]])}


def mbpp_prompts(documents: Any) -> Any:
    """The documents that MBPP's authors put in their prompt."""
    return documents.filter(lambda doc: doc["task_id"] in PROMPTS)
