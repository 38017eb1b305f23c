"""The planner in this process, without composing an experiment or building a model twice."""

from collections.abc import Iterator
from contextlib import chdir, contextmanager
from functools import cache
from pathlib import Path
from unittest.mock import patch

from ftmodel import costs
from ftmodel.costs import scaling, training
from ftmodel.model.free_transformer import FreeTransformer
from pipelines.compose import compose_config
from pipelines.config.load import parse
from pipelines.config.schema import Experiment

ROOT = Path(__file__).parents[2]
MODELS: dict[str, FreeTransformer] = {}
built = training.meta_model


@cache  # no test changes an experiment
def composed(*overrides: str) -> Experiment:
    with chdir(ROOT):
        return parse(compose_config(list(overrides)), "conf/")


def meta_model(config, vocab_size):
    key = f"{config} {vocab_size}"
    if key not in MODELS:
        MODELS[key] = built(config, vocab_size)
    return MODELS[key]


@contextmanager
def models_built_once() -> Iterator[None]:
    """Building a model without storage takes longer than all else that the planner does."""
    with (
        patch.object(costs, "meta_model", meta_model),
        patch.object(training, "meta_model", meta_model),
        patch.object(scaling, "meta_model", meta_model),
    ):
        yield
