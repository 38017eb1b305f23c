"""Wrong versions of ftmodel/synthetic."""

from tests.wrong_versions import Wrong

WRONG = [
    Wrong(
        "the coin's sides exchanged",
        "synthetic/coin_flip.py",
        "(1 - EPSILON) * z + EPSILON * (1 - z)",
        "EPSILON * z + (1 - EPSILON) * (1 - z)",
        "synthetic/test_coin_flip.py::test_a_flip_mostly_shows_its_hidden_bit",
    ),
    Wrong(
        "equation 2 with ε for 1 − ε",
        "synthetic/coin_flip.py",
        "return probability_of_one(posteriors(sequences)[:, :-1])",
        "return probability_of_one(1 - posteriors(sequences)[:, :-1])",
        "synthetic/test_coin_flip.py::test_predictive_is_the_ratio_of_two_probabilities",
    ),
    Wrong(
        "the goal of a path-star always at the end of the first arm",
        "synthetic/path_star.py",
        "torch.randint(self.degree, (n,), generator=generator)",
        "torch.zeros(n, dtype=torch.long)",
        "synthetic/test_path_star.py::test_the_goal_is_the_end_of_any_arm",
    ),
    Wrong(
        "arms of a path-star counted as if they had an order",
        "synthetic/path_star.py",
        "torch.tensor(lgamma(self.degree + 1) - draws",
        "torch.tensor(-draws",
        "synthetic/test_path_star.py::test_log_probability_counts_the_draws_of_a_sequence",
    ),
    Wrong(
        "forked arms of a path-star admitted",
        "synthetic/path_star.py",
        "fits &= (inner <= 1).all(1)",
        "fits &= (inner <= self.arm).all(1)",
        "synthetic/test_path_star.py::test_impossible_sequences_have_no_probability",
    ),
    Wrong(
        "a square of a prime counted twice",
        "synthetic/factors.py",
        "torch.where(smaller == larger, 1.0, 2.0)",
        "torch.full_like(smaller, 2)",
        "synthetic/test_factors.py::test_log_probability_counts_the_draws_of_a_sequence",
    ),
    Wrong(
        "factors in the order of the draw",
        "synthetic/factors.py",
        "written(*drawn.sort(1).values.unbind(1))",
        "written(*drawn.unbind(1))",
        "synthetic/test_factors.py::test_sampled_sequences_are_products_with_their_factors",
    ),
]
