"""Documents of a benchmark, checked before a model is asked anything.

The harness takes a document's label as document 0's was: as text, as the number of a choice, as a
list of answers. Where another document differs it scores on in silence, also where no answer can
be right, or a wrong one is. `check_documents` reads all labels first: it takes those as they are
meant that can mean one thing only, and raises a UserError that names the document for the others.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from numbers import Real
from traceback import walk_tb
from typing import Any

import numpy as np
import torch
from lm_eval.api.task import ConfigurableTask
from lm_eval.utils import env

from pipelines.common.file_listing import words_of
from pipelines.host.errors import UserError
from pipelines.suite import benchmark_data

Doc = dict[str, Any]
# figures of multiple choice that the harness computes for one right choice alone
OF_ONE_CHOICE = ("brier_score", "f1", "likelihood", "mcc")


def seed_everything(seed: int) -> None:
    """Seed what a task may draw from, as it makes its documents and as it is run."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


@contextmanager
def stored_data() -> Iterator[None]:
    """Let tasks that are made meanwhile read data/benchmarks/; they raise NotHere or UserError."""
    own = ConfigurableTask.download

    def download(task: Any, dataset_kwargs: Any = None, **_: Any) -> None:
        if callable(task.config.custom_dataset) or type(task) is not ConfigurableTask:
            own(task, dataset_kwargs)
            return
        if task.config.dataset_path is None:  # also a group's member whose name nobody knows
            raise UserError(f"task {task.config.task}: no task of this name, and no dataset_path")
        task.dataset = benchmark_data.load(*benchmark_data.source(task.config))
        split = task.config.test_split or task.config.validation_split
        if split and split not in task.dataset:
            known = ", ".join(task.dataset)
            raise UserError(f"task {task.config.task}: no split {split} in its data ({known})")
        if split and not len(task.dataset[split]):
            raise UserError(f"task {task.config.task}: its split {split} has no documents")

    ConfigurableTask.download = download
    try:
        yield
    finally:
        ConfigurableTask.download = own


def named_failure(error: Exception, name: str) -> UserError:
    """An error that arose while the tasks behind ``name`` were made, as one that names the task
    and, if the harness failed on its first document, what is wrong with this one.
    """
    for frame, _ in walk_tb(error.__traceback__):
        task = frame.f_locals.get("self")
        if not isinstance(task, ConfigurableTask) or getattr(task, "config", None) is None:
            continue
        name = task.config.task or name
        if not hasattr(task, "task_docs"):  # it has not come to its documents
            continue
        if not len(task.task_docs):
            return UserError(f"task {name}: its process_docs leaves no document")
        try:
            check_documents(task, 1)
        except UserError as found:
            return found
        break
    return UserError(f"task {name}: {type(error).__name__}: {words_of(error)}")


def check_documents(task: Any, limit: int | None) -> None:
    """Check the first ``limit`` documents, or all; raises UserError. From now on the task checks
    each document that it uses, also those for the prompt, and names those over which it fails.
    """
    if isinstance(task, ConfigurableTask):
        if callable(task.config.process_docs):
            # Make the documents once. The harness makes them again for each use, and so asks and
            # scores other ones where `process_docs` shuffles choices
            split = task.config.test_split or task.config.validation_split
            task.dataset = {**task.dataset, split: task.task_docs}
            task.set_config("process_docs", None)
        read_choices = by_document(task, "doc_to_choice", task.doc_to_choice)
        task.doc_to_choice = partial(checked_choices, task, read_choices)
        task.doc_to_text = partial(checked_text, task, task.doc_to_text)
        target = partial(checked_target, task, task.doc_to_target)
        task.doc_to_target = by_document(task, "doc_to_target", target)
        task.construct_requests = partial(checked_requests, task, task.construct_requests)
        if not has_own_scoring(task):
            task.process_results = partial(checked_scores, task, task.process_results)
    for name in ("doc_to_text", "fewshot_context", "construct_requests", "process_results"):
        setattr(task, name, by_document(task, name, getattr(task, name)))
    if not isinstance(task, ConfigurableTask) or has_own_scoring(task):
        return
    labels = [task.doc_to_target(doc) for _, doc in task.doc_iterator(limit=limit)]
    # where one document has several answers, each has a list of them
    task.multiple_target = max(len(label) if isinstance(label, list) else 0 for label in labels)
    check_metrics(task)


def has_own_scoring(task: ConfigurableTask) -> bool:
    """Whether the task's own function scores its answers, and so knows what a label means."""
    own = type(task).process_results is not ConfigurableTask.process_results
    return own or callable(task.config.process_results)


def by_document(task: Any, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """The task's method ``name``, which turns an error over a document, of whatever type, into a
    UserError that names it.
    """

    def named(doc: Any, *arguments: Any, **keywords: Any) -> Any:
        try:
            return method(doc, *arguments, **keywords)
        except UserError:
            raise
        except Exception as error:  # of templates, of functions of a task, of the harness
            key = f"{name}: " if name.startswith("doc_to_") else ""
            reason = f"{key}{type(error).__name__}: {words_of(error)}"
            raise UserError(f"{name_of(task, doc)}: {reason}") from error

    return named


def name_of(task: Any, doc: Any) -> str:
    """The document by its index in the task."""
    indices = (index for index, other in enumerate(task.eval_docs) if other == doc)
    index = next(indices, None)
    which = "a document for the prompt" if index is None else f"document {index}"
    return f"task {task.config.task}: {which}"


# Each of the following is a method of a task, and calls what the harness has for it: ``read``,
# ``make`` or ``score``


def checked_choices(
    task: ConfigurableTask, read: Callable[..., Any], doc: Doc, written: Any = None
) -> list[str]:
    """`doc_to_choice` that raises UserError unless it gives a list of texts, none of them empty."""
    choices = read(doc, written)
    if not isinstance(choices, list | tuple):
        kind = type(choices).__name__
        raise UserError(f"{name_of(task, doc)}: doc_to_choice gives a {kind}, not a list")
    if not choices:
        raise UserError(f"{name_of(task, doc)} has no choices")
    for number, choice in enumerate(choices):
        if choice == "":
            raise UserError(f"{name_of(task, doc)}: choice {number} is empty")
        if not isinstance(choice, str):
            hint = "yes and no need quotes" if isinstance(choice, bool) else "quote it"
            raise UserError(
                f"{name_of(task, doc)}: doc_to_choice: choice {number} is {choice!r}, not "
                f"text ({hint})"
            )
    return [*choices]


def checked_text(
    task: ConfigurableTask, read: Callable[..., Any], doc: Doc, written: Any = None
) -> Any:
    """`doc_to_text` that gives text, also for a number, unless that is which prompt is right."""
    text = read(doc, written)
    return str(text) if isinstance(text, int) and not task.multiple_input else text


def checked_target(
    task: ConfigurableTask, read: Callable[..., Any], doc: Doc, written: Any = None
) -> Any:
    """`doc_to_target` that raises UserError for a label that no answer can match, and is a list for
    each document once `multiple_target` says so.
    """
    label = meant_target(task, read, doc, written)
    own = written in (None, task.config.doc_to_target)  # not another, for the prompt
    if not own or has_own_scoring(task):
        return label
    is_scored = task.multiple_input or task.OUTPUT_TYPE not in CHECKS  # and not matched
    is_empty = isinstance(label, str | list) and not label  # else it may be a number of numpy
    if label is None or (is_empty and not is_scored):
        raise UserError(f"{name_of(task, doc)} has no label")
    label = CHECKS.get(str(task.OUTPUT_TYPE), checked_words)(task, doc, label)
    return [label] if task.multiple_target and not isinstance(label, list) else label


def meant_target(
    task: ConfigurableTask, read: Callable[..., Any], doc: Doc, written: Any = None
) -> Any:
    """A document's label. The harness takes each text in brackets for a list, and all digits for
    the number of a choice, also where a template shows a field that is text.
    """
    template = task.config.doc_to_target if written is None else written
    if not isinstance(template, str) or template in task.features or task.prompt is not None:
        return read(doc, written)
    text, values = rendered(template)(doc)
    is_field = bool(values) and isinstance(values[0], str) and text.startswith(values[0])
    if not text.isdigit() and (is_field or not text.startswith("[")):
        return text
    label = read(doc, written)
    if is_field and isinstance(label, int):
        choices = task.doc_to_choice(doc)
        if text in choices and choices.index(text) != label:
            raise UserError(
                f"{name_of(task, doc)}: label {text!r} is one of its choices and, to the harness, "
                "the number of another one; doc_to_target must give a number"
            )
    return label


@cache
def rendered(template: str) -> Callable[[Doc], tuple[str, list[Any]]]:
    """What a template makes of a document, and the values of the expressions in it."""
    values: list[Any] = []

    def note(value: Any) -> Any:
        values.append(value)
        return value

    compiled = env.overlay(finalize=note).from_string(template)

    def render(doc: Doc) -> tuple[str, list[Any]]:
        values.clear()
        return compiled.render(**doc), [*values]

    return render


def checked_choice(task: ConfigurableTask, doc: Doc, label: Any) -> Any:
    """The label of multiple choice: the number or the text of a choice, or a list of numbers."""
    target = label
    if task.multiple_input:  # several prompts, and one answer to all of them
        checked_words(task, doc, target)
        label = task.doc_to_text(doc)
    elif isinstance(label, list) and (metrics := {*task.aggregation()} & {*OF_ONE_CHOICE}):
        raise UserError(
            f"{name_of(task, doc)}: several right choices; the harness has no "
            f"{' nor '.join(sorted(metrics))} for them"
        )
    choices = task.doc_to_choice(doc)
    numbers = []
    for each in label if isinstance(label, list) else [label]:
        if each not in (range(len(choices)) if isinstance(each, Real) else choices):
            raise UserError(
                f"{name_of(task, doc)}: label {quoted(each)} is none of its {len(choices)} choices"
            )
        numbers.append(choices.index(each) if isinstance(each, str) else int(each))
        if (first := choices.index(choices[numbers[-1]])) < numbers[-1]:
            raise UserError(
                f"{name_of(task, doc)}: choice {numbers[-1]}, which is right, is choice {first} "
                "again, and never the likeliest"
            )
    if task.multiple_input:
        return target
    if isinstance(label, list):
        return numbers
    return label if isinstance(label, str) else numbers[0]


def quoted(label: Any) -> str:
    """A label in an error; −1 is what test splits have that hide theirs."""
    return f"{label!r} (a hidden one?)" if str(label) == "-1" else repr(label)


def checked_answer(task: ConfigurableTask, doc: Doc, label: Any) -> Any:
    """The label of an answer that is generated: its text or a list of texts, or the number of the
    choice that is the answer.
    """
    if task.config.doc_to_choice is not None:
        if not isinstance(label, Real) or label not in range(len(task.doc_to_choice(doc))):
            raise UserError(
                f"{name_of(task, doc)}: label {quoted(label)} is not the number of one of its "
                f"{len(task.doc_to_choice(doc))} choices"
            )
        return int(float(label))
    for answer in label if isinstance(label, list) else [label]:
        if not isinstance(answer, str | Real | np.generic):
            raise UserError(f"{name_of(task, doc)}: its answer {answer!r} is not text")
    if any(callable(each["metric"]) for each in task.config.metric_list or []):
        return label  # which is the function's
    return [*map(str, label)] if isinstance(label, list) else str(label)


def checked_words(task: ConfigurableTask, doc: Doc, label: Any) -> str:
    """The label that is a text to be scored."""
    if not isinstance(label, str):
        raise UserError(f"{name_of(task, doc)}: doc_to_target gives {label!r}, not text to score")
    return label


CHECKS = {"multiple_choice": checked_choice, "generate_until": checked_answer}


def checked_requests(
    task: ConfigurableTask, make: Callable[..., Any], doc: Doc, ctx: Any, **kwargs: Any
) -> Any:
    """`construct_requests` that raises UserError for an empty text to score."""
    requests = make(doc, ctx, **kwargs)
    for request in requests if isinstance(requests, list) else [requests]:
        if request.request_type != "generate_until" and request.args[-1] == "":
            raise UserError(f"{name_of(task, doc)}: nothing to score, an empty text")
    return requests


def check_metrics(task: ConfigurableTask) -> None:
    """Raise UserError for figures that the harness computes wrong where a document has several
    answers: all but exact_match and the functions of a task, and what stands behind exact_match.
    """
    if task.OUTPUT_TYPE != "generate_until" or not task.multiple_target:
        return
    metrics = [each["metric"] for each in task.config.metric_list or []]
    for metric in metrics:
        if not callable(metric) and metric != "exact_match":
            raise UserError(
                f"task {task.config.task}: metric_list: {metric}: the harness has none for several "
                "answers; exact_match can be had, or a function of the task"
            )
    if "exact_match" in metrics[:-1]:
        raise UserError(
            f"task {task.config.task}: metric_list: exact_match must come last: with several "
            "answers the harness gives what follows other texts than the model's"
        )


def checked_scores(
    task: ConfigurableTask, score: Callable[..., Any], doc: Doc, results: Any
) -> Any:
    """`process_results` that raises UserError where a function of the task finds an answer partly
    right, and the harness counts it as right since a document has several.
    """
    scores = score(doc, results)
    if task.OUTPUT_TYPE != "generate_until" or not task.multiple_target:
        return scores
    for entry in task.config.metric_list or []:
        if not callable(metric := entry["metric"]):
            continue
        for answer in task.doc_to_target(doc):
            value = metric(references=[answer], predictions=[results[0]], **options(entry))
            value = value.get(metric.__name__) if isinstance(value, dict) else value
            if value not in (0, 1):
                raise UserError(
                    f"{name_of(task, doc)}: {metric.__name__} is {value} for one of several "
                    "answers, and the harness would count it as 1"
                )
    return scores


def options(entry: dict[str, Any]) -> dict[str, Any]:
    """The arguments that an entry of `metric_list` has for its metric."""
    others = ("metric", "aggregation", "higher_is_better", "hf_evaluate")
    return {key: value for key, value in entry.items() if key not in others}
