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
]
