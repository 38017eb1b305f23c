"""Wrong versions of ftmodel/analysis."""

from tests.wrong_versions import Wrong

WRONG = [
    Wrong(
        "an arm's own spread over seeds ignored in the verdict",
        "analysis/statistics.py",
        "threshold=max([threshold(deciding, documents), *spreads])",
        "threshold=threshold(deciding, documents)",
        "analysis/test_statistics.py::test_a_difference_within_the_spread_of_either_arm_is_none",
    ),
    Wrong(
        "two standard errors of two seeds taken for a test",
        "analysis/statistics.py",
        "float(stdtrit(freedom, 1 - LEVEL / 2))",
        "2.0",
        "analysis/test_statistics.py::"
        "test_two_models_alone_are_compared_by_the_t_test_of_student_or_welch",
    ),
    Wrong(
        "standard error as if all documents had one size",
        "analysis/statistics.py",
        "residuals = totals - mean * sizes",
        "residuals = totals - totals.mean()",
        "inference/test_bounds.py::test_standard_error_over_documents_of_different_sizes",
    ),
    Wrong(
        "the best bit compared with one bit by chance",
        "analysis/label_information.py",
        "single.max(0).values",
        "single[single[:, 0].argmax()]",
        "analysis/test_label_information.py::test_without_a_relation_p_values_are_even",
    ),
    Wrong(
        "labels predicted by a classifier that has seen them",
        "analysis/label_information.py",
        "train, test = fold != half, fold == half",
        "train, test = fold >= 0, fold == half",
        "analysis/test_label_information.py::test_a_prediction_does_not_use_its_own_label",
    ),
    Wrong(
        "bits of sequences split at the median",
        "analysis/label_information.py",
        "counts > counts.mean(0)",
        "counts > counts.median(0).values",
        "analysis/test_label_information.py::test_a_bit_that_is_the_label_tells_all_of_it",
    ),
    Wrong(
        "a probe that has read the z after",
        "analysis/latent_probe.py",
        "total = log_q.cumsum(1)",
        "total = log_q.cumsum(1).roll(-1, 1)",
        "analysis/test_latent_probe.py::test_a_label_written_out_is_known_digit_by_digit_and_not_before",
    ),
    Wrong(
        "a z that is expected by one who has read it",
        "analysis/latent_probe.py",
        "(exponent * (total - log_q))",
        "(exponent * total)",
        "analysis/test_latent_probe.py::test_a_label_written_out_is_known_digit_by_digit_and_not_before",
    ),
]
