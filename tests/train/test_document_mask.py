"""Text packed into windows: with document_mask, training tells documents apart by the id that
starts them.
"""

from pathlib import Path
from types import SimpleNamespace

import torch
from lightning import Trainer

from ftmodel.model.config import ModelConfig
from ftmodel.model.objective import training_loss
from ftmodel.model.transformer import FreeTransformer
from pipelines.artifacts.tokens.shards import Shards
from pipelines.config.load import load_experiment
from pipelines.config.schema import Optim
from pipelines.train.core.module import TrainingModule
from pipelines.train.core.segments import segments
from pipelines.train.core.trainer import Process, SegmentTraining
from tests.support.mutants import rejects


@rejects(
    "train/core/module.py",
    "documents = inputs.eq",
    "documents = targets.eq",
    "the documents of targets masked",
)
def test_a_document_starts_with_its_end_of_text():
    """And a window may begin in the middle of one."""
    torch.manual_seed(0)
    config = ModelConfig(2, 16, 2, 1, 32, 8, latent_bits=4, document_mask=True)
    model = FreeTransformer(config, 11)
    tokens = torch.tensor([[3, 0, 4, 5, 0, 0, 6, 7, 8], [0, 9, 9, 9, 9, 9, 9, 9, 0]])
    documents = torch.tensor([[0, 1, 1, 1, 2, 3, 3, 3], [0, 0, 0, 0, 0, 0, 0, 0]])
    batch = {"tokens": tokens, "windows": torch.arange(2), "noise": torch.rand(2, 8, 4)}
    training = TrainingModule(model, Optim(batch_size=2, lr=1.0), 0.5, 1, 0)
    training.trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    loss = training.training_step(batch, 0)
    arguments = (model, tokens[:, :-1], tokens[:, 1:], batch["noise"], 0.5)
    assert torch.equal(loss, training_loss(*arguments, documents).total)
    assert not torch.equal(loss, training_loss(*arguments).total)


def test_a_run_with_document_mask_knows_the_end_of_text_of_its_data(workspace):
    experiment = load_experiment()
    experiment.models["text_small"].architecture.document_mask = True
    name, shards = "text_free_k1_2", Shards(Path("data/tokens/stdlib"))
    (segment,) = segments(experiment, experiment.runs[name])
    start = SimpleNamespace(segment=segment, checkpoint=None)
    training, _ = SegmentTraining(experiment, name, Process(), start, None).build_module(shards)
    assert training.model.config.document_mask
    assert training.end_of_text == shards.metadata.end_of_text is not None
