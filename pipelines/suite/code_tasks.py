"""Tasks whose answers are programs: what is run, and what counts as a pass.

A model's program counts as hostile, so only the sandbox runs it. A filter of the harness runs
all programs of a task at once, and replaces each answer by PASSED or the failure's name.
"""

from typing import Any

PASSED = "passed"
PROMPTS = (2, 3, 4)  # of MBPP, the task_ids that its authors put in their prompt


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
