"""Wrong versions of ftmodel/costs: time on a CPU, the filter, many GPUs."""

from tests.wrong_versions import Wrong

HERE = "test_costs_of_time_and_filtering.py"

WRONG = [
    Wrong(
        "FSDP gathers blocks once for both passes",
        "costs/scaling.py",
        "accumulate * (3 * blocks * block + 2 * rest)",
        "accumulate * (2 * blocks * block + 2 * rest)",
        "test_scaling.py::test_fsdp_sends_what_is_counted",
    ),
    Wrong(
        "a separate encoder planned as one block",
        "costs/training.py",
        "return config.n_layers + config.n_encoder_blocks * (",
        "return config.n_layers + 1 * (",
        "test_costs.py::test_activations_are_what_autograd_keeps",
    ),
    Wrong(
        "attention within documents without its masks",
        "costs/training.py",
        "return config.document_mask * batch * (2 if half else 4) * config.context**2",
        "return 0",
        "test_costs.py::test_activations_are_what_autograd_keeps",
    ),
    Wrong(
        "an all-reduce sends the gradients once",
        "costs/scaling.py",
        "return Traffic(2 * (gpus - 1)",
        "return Traffic((gpus - 1)",
        "test_scaling.py::test_ddp_reduces_every_gradient_once_a_step",
    ),
    Wrong(
        "DDP hides its transfers behind all computation",
        "costs/scaling.py",
        "else compute / accumulate * 2 / 3",
        "else compute",
        "test_scaling.py::test_what_computation_cannot_hide_is_waited_for",
    ),
    Wrong(
        "views count as bytes that are moved",
        "costs/time.py",
        "not operator.is_view and ",
        "",
        f"{HERE}::test_an_operator_reads_and_writes_its_tensors_and_products_and_views_do_not_count",
    ),
    Wrong(
        "attention's backward pass keeps its scores",
        "costs/time.py",
        "pairs = 14 *",
        "pairs = 12 *",
        f"{HERE}::test_products_are_those_that_torch_counts_and_the_scores_once_more",
    ),
    Wrong(
        "rates fitted to seconds, which the longest step decides",
        "costs/time.py",
        "relative = parts / torch.tensor(seconds, dtype=torch.float64)[:, None]\n"
        "    scale = relative.max(0).values\n"
        "    fit = torch.linalg.lstsq(relative / scale, "
        "torch.ones(len(works), 1, dtype=torch.float64))",
        "scale = parts.max(0).values\n"
        "    fit = torch.linalg.lstsq(parts / scale, "
        "torch.tensor(seconds, dtype=torch.float64)[:, None])",
        f"{HERE}::test_rates_are_found_again_and_relative_errors_count",
    ),
    Wrong(
        "keys and values of memory cost no product",
        "costs/latent_memory.py",
        "return memory_blocks(config) * 2 * config.d_model * kv_width",
        "return 0",
        "test_costs.py::test_flops_are_those_that_torch_counts",
    ),
    Wrong(
        "the filter reads out once for all particles",
        "costs/filtering.py",
        "matrices = linear_elements(model.blocks[lower:]) + linear_elements(model.readout)",
        "matrices = linear_elements(model.blocks[lower:])",
        f"{HERE}::test_flops_of_the_filter_are_those_that_torch_counts",
    ),
]
