"""Wrong versions of pipelines/config."""

from tests.wrong_versions import Wrong

WRONG = [
    Wrong(
        "a threshold of 0 trained as a baseline",
        "config/derived.py",
        "if run.kappa_bits is not None:",
        "if run.kappa_bits:",
        "config/test_schema.py::test_a_threshold_of_0_is_that_of_a_free_transformer",
        "pipelines",
    ),
    Wrong(
        "a threshold of 0 without latent bits",
        "config/checks.py",
        "if run.kappa_bits is None:",
        "if not run.kappa_bits:",
        "config/test_schema.py::test_a_threshold_of_0_is_that_of_a_free_transformer",
        "pipelines",
    ),
    Wrong(
        "a threshold of 0 with the blocks of a larger baseline",
        "config/checks.py",
        "run.extra_blocks < 0 or run.kappa_bits is not None",
        "run.extra_blocks < 0 or run.kappa_bits",
        "config/test_schema.py::test_a_threshold_of_0_is_that_of_a_free_transformer",
        "pipelines",
    ),
    Wrong(
        "a repeated seed taken for another",
        "config/arms.py",
        "if all(runs[other].seed != run.seed for other in group):",
        "if True:",
        "report/test_arms.py::test_a_seed_that_is_there_twice_is_no_second_seed",
        "pipelines",
    ),
    Wrong(
        "runs with and without a rising κ as seeds of one arm",
        "config/arms.py",
        'key not in ("seed", "budgets")',
        'key not in ("seed", "budgets", "kappa_warmup_steps")',
        "report/test_arms.py::test_seeds_of_another_recipe_are_another_arm",
        "pipelines",
    ),
    Wrong(
        "arms of other budgets compared",
        "config/arms.py",
        '("data", "model", "tokens")',
        '("data", "model")',
        "report/test_arms.py::test_only_arms_of_the_same_data_model_and_tokens_are_a_family",
        "pipelines",
    ),
    Wrong(
        "arms of other models compared",
        "config/arms.py",
        '("data", "model", "tokens")',
        '("data", "tokens")',
        "report/test_arms.py::test_only_arms_of_the_same_data_model_and_tokens_are_a_family",
        "pipelines",
    ),
    Wrong(
        "parameters that changed while a stage ran are not noticed",
        "config/frozen.py",
        "first_difference(self.params, select(read_params(), self.params))",
        "first_difference(self.params, self.params)",
        "config/test_frozen.py::test_every_setting_that_dvc_records_for_a_stage_is_compared",
        "pipelines",
    ),
]
