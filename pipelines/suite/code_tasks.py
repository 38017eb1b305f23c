"""Tasks whose answers are programs: what is run of them, and what counts as a pass.

What a model wrote is hostile: only the sandbox runs it, all programs of a task at once, as a filter
of the harness that replaces each answer by PASSED or the name of the failure.
"""

from typing import Any

PASSED = "passed"
PROMPTS = (2, 3, 4)  # of MBPP, the task_ids that its authors put in their prompt


def human_eval(answers: list[list[str]], docs: list[dict[str, Any]]) -> list[list[str]]:
    """The prompt is the head of a function, an answer its body; ``test`` defines ``check``."""
    return program_verdicts(
        [
            (doc["prompt"] + answer, f"{doc['test']}\ncheck({doc['entry_point']})\n")
            for doc, (answer,) in zip(docs, answers, strict=True)
        ]
    )


def mbpp(answers: list[list[str]], docs: list[dict[str, Any]]) -> list[list[str]]:
    """An answer is the whole program; it passes if it passes all tests."""
    return program_verdicts(
        [
            (answer, "\n".join([doc["test_setup_code"], *doc["test_list"]]) + "\n")
            for doc, (answer,) in zip(docs, answers, strict=True)
        ]
    )


def program_verdicts(programs: list[tuple[str, str]]) -> list[list[str]]:
    """PASSED, or what went wrong, of each program with its tests."""
    from pipelines.suite.sandbox import run as sandbox

    results = sandbox.run_programs(programs)
    return [[PASSED if verdict.passed else verdict.failure] for verdict in results]


def pass_at_1(doc: dict[str, Any], results: list[list[str]]) -> dict[str, float]:
    """The score of the one answer to a document."""
    return {"pass@1": float(results == [[PASSED]])}


def mbpp_prompts(documents: Any) -> Any:
    """The documents that MBPP's authors put in their prompt."""
    return documents.filter(lambda doc: doc["task_id"] in PROMPTS)
