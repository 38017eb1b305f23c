"""Wrong versions of pipelines/tracking."""

from tests.wrong_versions import Wrong

WRONG = [
    Wrong(
        "a threshold of 0 tagged as a baseline",
        "tracking/describe.py",
        '"baseline" if kappa_bits is None',
        '"baseline" if not kappa_bits',
        "tracking/test_tracking.py::test_a_threshold_of_0_is_not_tagged_as_a_baseline",
        "pipelines",
    ),
    Wrong(
        "artifacts of a copied project written into the original",
        "tracking/store.py",
        "bring_places_up_to_date(self.database)",
        "pass",
        "tracking/test_moved_store.py::"
        "test_a_copy_writes_nothing_into_the_original_and_finds_its_own_artifacts",
        "pipelines",
        slow=True,
    ),
    Wrong(
        "a deleted experiment stays deleted",
        "tracking/store.py",
        'if experiment.lifecycle_stage != "active":',
        "if False:",
        "tracking/test_lost_runs.py::test_a_deleted_experiment_is_restored_and_recorded_again",
        "pipelines",
        slow=True,
    ),
    Wrong(
        "a rebuilt store gets the curve a second time",
        "tracking/rebuild.py",
        "if (p[0], p[1], p[3]) not in points",
        "if True",
        "tracking/test_lost_runs.py::test_a_deleted_database_is_rebuilt_twice_as_once[lost]",
        "pipelines",
        slow=True,
    ),
    Wrong(
        "a logged model made anew whenever the answer was lost",
        "tracking/models.py",
        'there.get(content["name"]) or',
        "None or",
        "tracking/test_what_mlflow_shows.py::test_calls_whose_answer_is_lost_double_nothing[3]",
        "pipelines",
        slow=True,
    ),
    Wrong(
        "a changed description replaces the user's own",
        "tracking/store.py",
        'if tags.get(MLFLOW_RUN_NOTE, "") == tags.get(NOTE, ""):',
        "if True:",
        "tracking/test_what_mlflow_shows.py::"
        "test_the_experiment_has_a_description_which_a_user_may_replace",
        "pipelines",
        slow=True,
    ),
]
