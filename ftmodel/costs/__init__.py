"""What a model costs, from its shape alone: the planner's formulas.

training.py       parameters, FLOPs and memory of training
latent_memory.py  what a second key and value at each position adds
time.py           time of a training step on a CPU
filtering.py      FLOPs and memory of the filtering bound
scaling.py        what many GPUs send one another, and the speed that is left
"""

from ftmodel.costs.training import (
    Flops,
    Memory,
    dense_mapper_flops,
    elements,
    flops_per_token,
    kept_activations,
    linear_elements,
    memory,
    meta_model,
    parameters,
    recomputed_activations,
    utilisation,
)

__all__ = [
    "Flops",
    "Memory",
    "dense_mapper_flops",
    "elements",
    "flops_per_token",
    "kept_activations",
    "linear_elements",
    "memory",
    "meta_model",
    "parameters",
    "recomputed_activations",
    "utilisation",
]
