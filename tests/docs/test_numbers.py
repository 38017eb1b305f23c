"""Numbers that the pages state are those of the code."""

import re
from fractions import Fraction
from math import log2

import pytest

from ftmodel.analysis import calibration, differences, information, statistics
from ftmodel.config import DEFAULT_ENCODER_LAYERS, MAX_BITS, LatentDesign, Map, Per
from ftmodel.inference import decoder, latent_source, sequence_bound, swap
from ftmodel.inference.bounds import NOISE_STEPS
from ftmodel.synthetic import factors, target
from pipelines.common import file_listing
from pipelines.compare import comparison
from pipelines.config.schema import PassAtK
from pipelines.data import build
from pipelines.evaluate import bounds as run_calibration, codes, codes as shown_bits, generations
from pipelines.tokenize import overlap
from pipelines.tracking import live
from pipelines.train import monitoring
from pipelines.train.core import acceleration, module, parent
from tests import ROOT
from tests.support import real_benchmarks

WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight"]
LETTERS, TEXT = generations.LETTERS, generations.TEXT
PROPOSALS = [
    sequence_bound.default_proposal(LatentDesign(), kappa_bits=1.0),
    sequence_bound.default_proposal(LatentDesign(), kappa_bits=1.01),
    sequence_bound.default_proposal(LatentDesign(per=Per.every, every=8)),
]
PERCENT = [100 * share for share in swap.SHARES[1:]]
NUMBERS = {  # by page: its words with each number in brackets, and the numbers in the code
    "../README": [("a t-test over documents and seeds finds it at (5) %", 100 * differences.LEVEL)],
    "measurement/particles": [
        ("one window for every (32) chunks", run_calibration.SCORED_PER_CHUNK),
        ("that will be scored, but at least (32)", run_calibration.MIN_CHUNKS),
        ("With (four) particles, the proposal takes 0,", calibration.MIN_PARTICLES),
        ("takes 0, (1/16), (1/8), (1/4) and (1/2) of the encoder", *calibration.SHARES[1:]),
        ("fewer chunks run at once beyond (32)", run_calibration.PARTICLES_AT_ONCE),
        ("a is (0) up to κ = 1 and (1/8) above, and (1/4) where", *PROPOSALS),
    ],
    "measurement/processes": [
        ("(four) letters of the target task or", LETTERS.prompts),
        ("or the first (32) tokens of (three) held-out chunks", TEXT.beginning, TEXT.prompts),
        ("is continued with (six) pinned z and with fresh z", generations.PINNED),
        ("(six) sequences of the target task, or (four) continuations", LETTERS.draws, TEXT.draws),
        ("continuations of text at temperature (0.8).", TEXT.temperature),
        ("the (57) starts of a target", target.STARTS),
    ],
    "measurement/steering": [
        ("`steering_draws` continuations at temperature (0.8)", TEXT.temperature),
        ("of held-out chunks, at most (32) tokens each", TEXT.beginning),
        ("are exchangeable: (10,000) times", statistics.PERMUTATIONS),
    ],
    "measurement/benchmark_answers": [
        ("of (16) candidates half are proposed", latent_source.CANDIDATES)
    ],
    "measurement/label_information": [
        ("for (1000) random permutations of the labels", information.LABEL_PERMUTATIONS)
    ],
    "measurement/persistence": [
        ("Δ = 0 … (32) is the *lag*", max(shown_bits.LAGS)),
        ("The (64) most frequent tokens", information.TOKENS),
        ("The same estimate is made (20) times", information.CODE_PERMUTATIONS),
        ("in at most (32) groups", information.GROUPS),
        ("The (four) bits with the largest KL", shown_bits.BITS),
        ("bits under (0.001) bits of KL are left out", shown_bits.MIN_KL_BITS),
        ("the (five) places where the encoder is most certain", shown_bits.CONTEXTS),
    ],
    "measurement/swap": [("Each is the mean over (two) draws of z", codes.SWAP_DRAWS)],
    "measurement/code_per_sequence": [
        ("they differ, (25), (50), (75) and (100) %", *PERCENT),
        ("texts among documents (10,000) times", statistics.PERMUTATIONS),
    ],
    "measurement/differences": [
        ("the (97.5) % quantile of Student's t with", 100 * (1 - differences.LEVEL / 2)),
        ("distribution is (20 000) draws of normal samples", differences.DRAWS),
        ("draws of normal samples; the test rejects at p < (0.2)", differences.REFUSED),
    ],
    "measurement/use_of_z": [
        ("of 0 or under (5) % of the KL", 100 * comparison.NEGLIGIBLE),
        ("has (three) sizes or more whose", differences.MIN_POINTS),
    ],
    "measurement/other_bounds": [("Noise is float32, a multiple of 2^−(24)", log2(NOISE_STEPS))],
    "measurement/filtering_bound": [("If it has up to (8) bits", sequence_bound.MOST_ENUMERATED)],
    "remote": [
        ("(128) MiB or 10 000 files", file_listing.MAX_BYTES_READ / 2**20),
        ("128 MiB or (10 000) files", file_listing.MAX_FILES_READ),
    ],
    "pretrained": [("on the first (4096) training tokens", parent.SAMPLE)],
    "settings": [
        ("each of the 2^H codes, H up to (24)", MAX_BITS[Map.table]),
        ("a vector for each bit, H up to (64)", MAX_BITS[Map.linear]),
        ("blocks of a separate encoder; null: (2)", DEFAULT_ENCODER_LAYERS),
        ("held-out windows with (3) % as many tokens", 100 * monitoring.SHARE),
    ],
    "running": [("current one and the last (three)", build.MAX_OTHERS)],
    "experiments": [("a prompt and one of (six) pinned z", generations.PINNED)],
    "optimizers": [
        ("the median of the last (100) norms", module.NORMS),
        ("once there are (20) norms", module.MIN_NORMS),
        ("on one window in (four), a filtering bound with 4", monitoring.WINDOWS_PER_FILTER),
        ("on one window in four, a filtering bound with (4) particles", monitoring.PARTICLES),
    ],
    "performance": [
        ("A model of up to (four) blocks is compiled", acceleration.SHALLOW),
        ("by two batched products from (64) heads on", decoder.BMM_HEADS),
    ],
    "tracking": [("a row of the curve and at least (10) s apart", live.SAMPLE_SECONDS)],
    "benchmarks": [
        ("the last (50) documents of the validation part", real_benchmarks.HELD_OUT),
        ("shows `suite.pass_at_k.k`, (1) and (10)", *PassAtK().k),
    ],
    "data": [
        ("by (13)-grams of tokens", overlap.N),
        ("two primes of (three) digits", factors.DIGITS),
        ("the paper's task: (eight) copies of a letter", target.TARGET),
    ],
}


def number(text: str) -> float:
    if text in WORDS:
        return WORDS.index(text)
    return float(Fraction(re.sub(r"[ ,]|\.$", "", text)))


@pytest.mark.parametrize(
    ("page", "words", "expected"), [(p, w, e) for p, rows in NUMBERS.items() for w, *e in rows]
)
def test_a_stated_number_is_that_of_the_code(page, words, expected):
    text = " ".join((ROOT / "docs" / f"{page}.md").read_text().split())
    number_or_word = r"(\\d[\\d.,/]*(?: \\d{3})?|[a-z]+)"
    pattern = re.sub(r"\\\(.*?\\\)", number_or_word, re.escape(words))
    found = re.search(pattern, text)
    assert found, f"the page no longer says: {words}"
    assert [number(group) for group in found.groups()] == pytest.approx(expected)
