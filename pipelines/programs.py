"""Tasks whose answers are programs: what is run of them, and what counts as a pass.

What a model wrote is hostile. It is run by sandbox.py alone.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

PROMPTS = (2, 3, 4)  # of MBPP, the task_ids that its authors put in their prompt


def human_eval(doc: dict[str, Any], results: list[str]) -> dict[str, Any]:
    """The prompt is the head of a function, the completion its body; ``test`` defines check."""
    tests = f"{doc['test']}\ncheck({doc['entry_point']})\n"
    return score(doc["prompt"] + results[0], tests)


def mbpp(doc: dict[str, Any], results: list[str]) -> dict[str, Any]:
    """The completion is the whole program; it passes if it passes all tests."""
    tests = "\n".join([doc["test_setup_code"], *doc["test_list"]]) + "\n"
    return score(results[0], tests)


def score(program: str, tests: str) -> dict[str, Any]:
    """pass@1 of one program, and the name of its failure, if any."""
    from pipelines import sandbox

    verdict = sandbox.run_program(program, tests)
    return {"pass@1": float(verdict.passed), "failure": verdict.failure}


def failures(names: Iterable[str]) -> dict[str, int]:
    """How often each failure occurred."""
    return dict(Counter(name for name in names if name))


def mbpp_prompts(documents: Any) -> Any:
    return documents.filter(lambda doc: doc["task_id"] in PROMPTS)
