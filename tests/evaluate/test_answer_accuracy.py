"""How often the end of a sequence of a process is right, by stand-ins for a model."""

import pytest
import torch

from ftmodel.synthetic import PROCESSES
from pipelines.artifacts.packing import Chunk
from pipelines.config.data import ProcessData
from pipelines.evaluate import hidden_causes
from tests.evaluate.conftest import tiny
from tests.support.mutants import rejects


@rejects("hidden_causes.measure_answers: .«all→any»", "answers that are right in part")
@rejects(
    "hidden_causes.measure_answers: -answer«→ + 1»", "a prompt with the beginning of the answer"
)
@pytest.mark.parametrize(("source", "answer"), [("path_star_2_reversed", 3), ("factors", 7)])
def test_an_answer_is_right_if_all_its_tokens_are(measured, monkeypatch, rng, source, answer):
    process = PROCESSES[source]
    rows = process.sample(8, rng)
    wrong = rows.clone()
    wrong[:2, -1] = (rows[:2, -1] + 1) % 4  # the last token of two
    prompts = []

    def generate(_model, prompt, new, *, temperature, **_):
        assert (new, temperature) == (answer, 0)
        prompts.append(prompt)
        first = sum(map(len, prompts[:-1]))
        return wrong[first : first + len(prompt)]

    monkeypatch.setattr(hidden_causes, "generate", generate)
    chunks = [Chunk(i, 0, row.numpy()) for i, row in enumerate(rows)]
    model = tiny(0, len(process.symbols), process.row - 1)
    data = ProcessData(source, 8, 8)
    right = measured(
        hidden_causes.measure_answers, model, chunks, data, batch_tokens=3 * model.config.context
    )
    assert right.mean == 0.75
    assert right.se == pytest.approx((0.75 * 0.25 / 7) ** 0.5)
    assert [len(each) for each in prompts] == [3, 3, 2]
    assert torch.equal(torch.cat(prompts), rows[:, :-answer])
