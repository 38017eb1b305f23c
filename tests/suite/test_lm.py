"""The adapter for the evaluation harness: on a baseline it equals the harness's own backend; what a
request gets depends on no other; no answer is read before it is asked.
"""

import json
import random
from itertools import pairwise

import pytest
import torch
from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from torch.nn import functional as F

from ftmodel.inference.filtering import filtering_bound
from ftmodel.inference.generate import generate
from ftmodel.inference.sampling import sample_token
from ftmodel.inference.weights import bf16_products
from pipelines.common.errors import UserError
from pipelines.common.rng_streams import Purpose
from pipelines.config.suite import Scoring, Weights
from pipelines.suite.batching import latent_noise
from pipelines.suite.lm import FreeTransformerLM
from pipelines.tokenize.vocabulary import train_bpe
from tests.support.corpora import write_shards
from tests.support.hugging_face import to_hugging_face
from tests.support.mutants import rejects

END = "<|endoftext|>"
CONTEXT = 48
TEXT = """The quick brown fox jumps over the lazy dog. Question: what is the answer?
Answer: the answer is seven. def add(a, b):\n    return a + b\n
Über Größe ist naïve café 東京 → ∀x.
Which of these is the larger number? It was the best of times, it was the worst of times. """


@pytest.fixture(scope="module")
def tokenizer():
    return train_bpe([TEXT.encode()] * 3, 400, END)


@pytest.fixture
def make_lm(make_model, tokenizer):
    """Factory of adapters of tiny models, a Free Transformer unless latent_bits=0."""

    def make(
        model=None,
        scoring=Scoring.marginal,
        samples=4,
        batch_tokens=2000,
        seed=0,
        weights=Weights.float32,
        **changes,
    ):
        if model is None:
            shape = dict(d_model=32, ffn_width=48, context=CONTEXT)
            model = make_model(vocab_size=tokenizer.vocab_size, **(shape | changes))
        return FreeTransformerLM(
            model,
            tokenizer,
            torch.device("cpu"),
            scoring=scoring,
            samples=samples,
            batch_tokens=batch_tokens,
            seed=seed,
            weights=weights,
        )

    return make


def requests(kind, arguments):
    return [Instance(kind, {}, args, i) for i, args in enumerate(arguments)]


def log_likelihoods(lm, pairs):
    return lm.loglikelihood(requests("loglikelihood", pairs), disable_tqdm=True)


def rolling(lm, texts):
    arguments = [(text,) for text in texts]
    return lm.loglikelihood_rolling(requests("loglikelihood_rolling", arguments), disable_tqdm=True)


def continuations(lm, prompts, **settings):
    arguments = [(prompt, settings) for prompt in prompts]
    return lm.generate_until(requests("generate_until", arguments), disable_tqdm=True)


def near(values):
    """To what float32 gives in batches of other shapes."""
    return pytest.approx(values, rel=1e-6, abs=1e-4)


def some_text(rng, words):
    return " ".join(rng.choices(TEXT.split(), k=words))


def some_pairs(n, seed=0):
    """Contexts and answers of many lengths: empty contexts, contexts beyond the model's, trailing
    spaces, answers of one token, shared contexts, repeated requests.
    """
    rng = random.Random(seed)
    pairs = []
    while len(pairs) < n:
        context = some_text(rng, rng.choice((0, 1, 3, 8, 20, 40)))
        context += rng.choice(("", "", " ", "\n", "  \n"))
        for _ in range(rng.choice((1, 1, 2, 4))):
            answer = some_text(rng, rng.choice((1, 1, 2, 5)))
            pairs.append((context, rng.choice((" ", "")) + answer))
        if rng.random() < 0.2:
            pairs += [pairs[-1], (context, " a"), (context, "e")]
    return pairs[:n]


@pytest.fixture
def hugging_face(make_lm, tokenizer):
    """Our adapter of a baseline, and the harness's backend of the same weights."""
    from lm_eval.models.huggingface import HFLM
    from tokenizers import Tokenizer
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    def make(starts_with_end=True):
        ours = make_lm(latent_bits=0)
        reference = to_hugging_face(ours.model)
        reference.generation_config.eos_token_id = ours.eot_token_id
        fast = Tokenizer.from_str(tokenizer.tokenizer.to_str())
        if starts_with_end:
            fast.post_processor = TemplateProcessing(
                single=f"{END} $A", special_tokens=[(END, tokenizer.end_of_text)]
            )
        wrapped = PreTrainedTokenizerFast(
            tokenizer_object=fast, bos_token=END, eos_token=END, pad_token=END
        )
        theirs = HFLM(
            reference,
            tokenizer=wrapped,
            batch_size=16,
            device="cpu",
            add_bos_token=starts_with_end,
            max_length=CONTEXT,
        )
        return ours, theirs

    return make


@rejects(
    "suite/batching.py",
    "prompt = tuple(ids[-room:])",
    "prompt = tuple(ids[:room])",
    "prompts that are too long cut from the right",
)
def test_log_likelihoods_of_a_baseline_are_those_of_the_harness_own_backend(hugging_face):
    ours, theirs = hugging_face()
    pairs = some_pairs(300)
    expected = log_likelihoods(theirs, pairs)
    found = log_likelihoods(ours, pairs)
    nats, greedy = zip(*found, strict=True)
    assert nats == pytest.approx([log_p for log_p, _ in expected], rel=1e-6, abs=1e-4)
    assert list(greedy) == [is_greedy for _, is_greedy in expected]
    assert ours.truncated > 10 and ours.mc_error == {}


def test_an_answer_that_the_model_would_give_is_greedy_with_either_backend(hugging_face):
    ours, theirs = hugging_face()
    prompts = ["", "The quick brown fox", "Question: what is", "def add(a, b):"]
    made = continuations(ours, prompts, max_gen_toks=1)
    pairs = [(p, text) for p, text in zip(prompts, made, strict=True) if text.isascii() and text]
    found = log_likelihoods(ours, pairs)
    assert [g for _, g in found] == [g for _, g in log_likelihoods(theirs, pairs)]
    assert any(greedy for _, greedy in found)


def test_rolling_log_likelihoods_of_a_baseline_are_those_of_the_harness_own_backend(hugging_face):
    """Theirs without a token before the text: it puts its prefix there itself."""
    ours, theirs = hugging_face(starts_with_end=False)
    rng = random.Random(1)
    texts = ["", "a", *(some_text(rng, n) for n in (1, 5, 10, 20, 30, 60, 100)), TEXT]
    assert rolling(ours, texts) == pytest.approx(rolling(theirs, texts), rel=1e-6, abs=1e-4)
    assert rolling(ours, [""]) == [0.0]


@pytest.mark.parametrize("until", [["e"], "the", [" ", "\n\n"], []], ids=str)
def test_greedy_continuations_of_a_baseline_are_those_of_the_harness_own_backend(
    hugging_face, until
):
    ours, theirs = hugging_face()
    rng = random.Random(2)
    prompts = [some_text(rng, n) for n in (1, 1, 2, 3, 5, 8, 8, 12, 20, 40)] + ["東京 →"]
    settings = {"until": until, "max_gen_toks": 20, "do_sample": False}
    assert continuations(ours, prompts, **settings) == continuations(theirs, prompts, **settings)
    assert ours.truncated == 1


def test_texts_are_encoded_as_the_harness_template_does(make_lm):
    """`_encode_pair` is the harness's, by way of our tok_encode."""
    lm = make_lm()
    pairs = [(context, answer) for context, answer in some_pairs(50) if context]
    for pair, prompt, answer in lm.encode_pairs(pairs):
        assert (prompt, answer) == TemplateLM._encode_pair(lm, *pair)
        assert lm.eot_token_id not in answer and prompt.index(lm.eot_token_id) == 0
    assert lm.encode_pairs([("", " a")])[0][1] == [lm.eot_token_id]
    assert lm.tok_encode(f"a{END}").count(lm.eot_token_id) == 1, "in a text it is text"
    context, answer = "answ", "er"
    assert len(lm.tok_encode(context + answer)) <= len(lm.tok_encode(context))
    assert lm.encode_pairs([(context, answer)])[0][2] == lm.tok_encode(answer, False)


LATENT = pytest.mark.parametrize("latent_bits", [0, 3], ids=["baseline", "free"])


@rejects("suite/batching.py", "digest(prompt),", "row,", "z of a prompt by its place in the batch")
@rejects(
    "suite/batching.py",
    "stream.random((target.shape[1], samples, bits), np.float32)",
    "stream.random((samples, target.shape[1], bits), np.float32).swapaxes(0, 1)",
    "z of answers by how long the longest of the batch is",
)
@LATENT
def test_scores_do_not_depend_on_company(make_lm, latent_bits):
    """Batches of one prompt or of many, any order, any other requests; each alone, unpadded."""
    pairs = some_pairs(60)
    model = make_lm(latent_bits=latent_bits).model
    expected = log_likelihoods(make_lm(model), pairs)
    texts = [pair[0] for pair in pairs[::6]]
    sums = rolling(make_lm(model), texts)
    shuffled = random.Random(3).sample(range(60), 60)
    for lm in (make_lm(model, batch_tokens=1), make_lm(model, batch_tokens=100_000)):
        found = log_likelihoods(lm, pairs)
        assert [v for v, _ in found] == near([v for v, _ in expected])
        reordered = log_likelihoods(lm, [pairs[i] for i in shuffled])
        assert [v for v, _ in reordered] == near([found[i][0] for i in shuffled])
        assert rolling(lm, texts[::-1]) == near(sums[::-1])
    for i in range(0, 60, 5):
        alone = log_likelihoods(make_lm(model), [pairs[i]])
        assert alone[0][0] == near(expected[i][0])
        assert alone[0][1] == expected[i][1]


def test_the_seed_decides_z(make_lm):
    model = make_lm().model
    pairs, texts = some_pairs(20), ["It was the best of times", "of times"]
    for ask, questions in ((log_likelihoods, pairs), (rolling, texts)):
        first, again, other = (ask(make_lm(model, seed=s), questions) for s in (0, 0, 1))
        assert first == again
        assert all(a != b for a, b in zip(first, other, strict=True))


@rejects(
    "suite/lm.py",
    "averaged = model.latent is not None and scoring is Scoring.marginal",
    "averaged = model.latent is not None",
    "as many samples of z where one is asked for",
)
def test_one_sample_of_marginal_is_the_papers_procedure(make_lm):
    model = make_lm().model
    pairs, texts = some_pairs(20), ["It was the best of times"]
    one, paper = make_lm(model, samples=1), make_lm(model, Scoring.posterior_prompt, samples=9)
    assert log_likelihoods(one, pairs) == log_likelihoods(paper, pairs)
    assert rolling(one, texts) == rolling(paper, texts)
    assert one.mc_error == paper.mc_error == {}


def test_the_error_of_sampling_z_shrinks_with_samples_and_is_the_spread_over_seeds(make_lm):
    model = make_lm().model
    pairs = [("Question: what is the answer?", " seven"), ("the", " quick brown fox")]
    few, many = make_lm(model, samples=4), make_lm(model, samples=64)
    for lm in (few, many):
        log_likelihoods(lm, pairs)
        assert list(lm.mc_error) == pairs
    assert all(0 < many.mc_error[pair] < few.mc_error[pair] for pair in pairs)
    seeds = [
        [v for v, _ in log_likelihoods(make_lm(model, samples=64, seed=s), pairs)]
        for s in range(30)
    ]
    spread = torch.tensor(seeds).std(0).tolist()
    assert [many.mc_error[pair] for pair in pairs] == pytest.approx(spread, rel=0.6)
    many.start_task()
    assert many.mc_error == {} and many.truncated == 0


def test_the_encoder_never_reads_the_answer(make_lm):
    """Σ_t P(a t | prompt) = P(a | prompt), which z that had read a would break: here z moves every
    prediction strongly.
    """
    lm = make_lm()
    with torch.no_grad():
        lm.model.latent.post_sampler.mul_(20)
        lm.model.latent.readout.weight.mul_(20)
    vocabulary = range(lm.model.embedding.num_embeddings)
    prompt = lm.tok_encode("Which of these is the larger")
    for first in (40, 300):
        ((whole, _),) = lm._loglikelihood_tokens([(None, prompt, [first])], disable_tqdm=True)
        asked = [(None, prompt, [first, t]) for t in vocabulary]
        parts = lm._loglikelihood_tokens(asked, disable_tqdm=True)
        total = torch.tensor([log_p for log_p, _ in parts], dtype=torch.float64).logsumexp(0)
        assert total.item() == pytest.approx(whole, rel=1e-5, abs=1e-4)


@rejects(
    "suite/lm.py",
    "Chunk(digest(tuple(chunk.tokens.tolist())), 2, chunk.tokens)",
    "Chunk(0, 2, chunk.tokens)",
    "the same noise for all windows of all texts",
)
def test_each_window_of_a_text_has_noise_of_its_own(make_lm, monkeypatch):
    def record(model, inputs, targets, samples, draw, ids):
        noise = draw()
        windows = [noise[ids == i] for i in range(1, int(ids.max()) + 1)]
        drawn.extend(tuple(window.flatten()[:3].tolist()) for window in windows)
        return torch.zeros(len(windows), dtype=torch.float64)

    drawn = []
    monkeypatch.setattr("pipelines.suite.lm.nll_bound", record)
    rolling(make_lm(), [TEXT * 5, "Another text.", "And one more, "])
    assert len(set(drawn)) == len(drawn) > 4


def test_rolling_of_a_free_transformer_is_minus_the_bound_of_each_window(make_lm):
    """More samples bring it nearer to the truth, from below; windows are of the whole context."""
    lm = make_lm(samples=2)
    text = TEXT
    ids = lm.tok_encode(text)
    assert len(ids) > 1.5 * CONTEXT
    cuts = [*range(0, len(ids) - 1, CONTEXT), len(ids) - 1]
    windows = [torch.tensor([ids[a : b + 1]]) for a, b in pairwise(cuts)]
    rng = torch.Generator().manual_seed(0)

    def bound(samples):
        drawn = (
            filtering_bound(
                lm.model,
                w[:, :-1],
                w[:, 1:],
                samples,
                lambda w=w: torch.rand(1, w.shape[1] - 1, 3, generator=rng),
            ).item()
            for w in windows
        )
        return -sum(drawn)

    found = [rolling(make_lm(lm.model, samples=2, seed=s), [text])[0] for s in range(40)]
    expected = [bound(2) for _ in range(40)]
    error = (torch.tensor(found).var() / 40 + torch.tensor(expected).var() / 40).sqrt().item()
    assert sum(found) / 40 == pytest.approx(sum(expected) / 40, abs=4 * error)


@pytest.fixture
def speller(make_lm, tokenizer):
    """A model that continues any prompt ending in a token of a sentence by the rest of it."""

    def make(text):
        ids = [*tokenizer.encode_batch([text.encode()])[0], tokenizer.end_of_text]
        assert len(set(ids)) == len(ids), "a token twice would have two successors"
        lm = make_lm(latent_bits=0, d_model=512, tied=False, n_layers=2)
        with torch.no_grad():
            for name, parameter in lm.model.named_parameters():
                if name.endswith(("output.weight", "down.weight")):
                    parameter.zero_()
            lm.model.embedding.weight.copy_(torch.eye(tokenizer.vocab_size, 512))
            lm.model.norm.weight.fill_(1)
            lm.model.readout.weight.zero_()
            for before, after in pairwise(ids):
                lm.model.readout.weight[after, before] = 1
        return lm

    return make


SENTENCE = "The quick dog: Größe, 7 foxes."


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, " quick dog: Größe, 7 foxes."),
        ({"until": [":"]}, " quick dog"),
        ({"until": ":"}, " quick dog"),
        ({"until": [",", "dog"]}, " quick "),
        ({"until": ["k d"]}, " quic"),
        ({"until": ["öß"]}, " quick dog: Gr"),
        ({"until": [" "]}, ""),
        ({"until": ["", "x"]}, " quick dog: Größe, 7 fo"),
        ({"until": ["xx", "."]}, " quick dog: Größe, 7 foxes"),
        ({"max_gen_toks": 0}, ""),
    ],
    ids=str,
)
def test_a_continuation_ends_at_the_first_stop_string(speller, settings, expected):
    lm = speller(SENTENCE)
    prompts = ["The", "a The", "b c d The"]
    assert continuations(lm, prompts, **settings) == [expected] * 3


@rejects(
    "suite/decoding.py",
    "for row in (~self.ended).nonzero()[:, 0].tolist():",
    "for row in range(len(self.texts)):",
    "a text that has ended grows with its batch",
)
def test_a_text_that_has_ended_does_not_change_while_others_go_on(speller):
    made = continuations(speller(SENTENCE), ["The quick dog", "The"], until=[",,", "e,"])
    assert made == [": Größ", " quick dog: Größ"]


def test_max_length_counts_the_prompt(speller):
    lm = speller(SENTENCE)
    ids = lm.tok_encode(SENTENCE)
    assert lm.tok_encode("The") == ids[:2]
    assert continuations(lm, ["The"], max_length=4) == [lm.tokens.decode(ids[2:4]).decode()]
    assert continuations(lm, ["The"], max_length=1) == [""]


def test_a_model_is_not_asked_for_what_comes_after_a_stop_string(speller, monkeypatch):
    lm = speller(SENTENCE)
    calls = []

    def counted(*arguments):
        calls.append(1)
        return sample_token(*arguments)

    monkeypatch.setattr("ftmodel.inference.generate.sample_token", counted)
    continuations(lm, ["The", "a The"], until=["qu"], max_gen_toks=20)
    ids = lm.tok_encode(SENTENCE)
    text = [lm.tokens.decode(ids[2 : 2 + n]) for n in range(1, 9)]
    assert len(calls) == 1 + next(i for i, made in enumerate(text) if b"qu" in made)


def test_text_is_generated_with_the_weights_asked_for(make_lm, monkeypatch):
    if not bf16_products():
        pytest.skip("this CPU does not multiply bfloat16")
    given = []

    def generate_and_note(model, *arguments, rounded, **settings):
        given.append(rounded)
        return generate(model, *arguments, rounded=rounded, **settings)

    monkeypatch.setattr("pipelines.suite.lm.generate", generate_and_note)
    for weights in Weights:
        lm = make_lm(latent_bits=0, weights=weights)
        continuations(lm, ["The"], until=["qu"], max_gen_toks=2)
    assert given == [None, lm.rounded] and lm.rounded.model is lm.model


def test_weights_that_the_processor_does_not_multiply_are_refused(make_lm, monkeypatch):
    monkeypatch.setattr("ftmodel.inference.weights.bf16_products", lambda: False)
    with pytest.raises(UserError, match=r"^suite\.weights: bf16: it needs .* AVX512-BF16 or AMX$"):
        make_lm(weights=Weights.bf16)


def test_one_new_token(make_lm, tokenizer):
    for lm in (make_lm(), make_lm(latent_bits=0)):
        ids = [lm.tok_encode(text) for text in continuations(lm, ["the"] * 2, max_gen_toks=1)]
        assert len(ids) == 2 and ids[0] == ids[1]


@LATENT
def test_greedy_continuations_are_those_of_full_forward_passes(make_lm, latent_bits):
    """Each prompt alone, without cache or padding; z of the prompt from the encoder that reads the
    prompt, later z from the prior.
    """
    lm = make_lm(latent_bits=latent_bits, seed=5)
    rng = random.Random(4)
    prompts = [some_text(rng, n) for n in (1, 2, 3, 3, 5, 8, 40)]
    found = continuations(lm, prompts, max_gen_toks=12)
    assert lm.truncated == 1
    for prompt, text in zip(prompts, found, strict=True):
        ids = lm.tok_encode(prompt)[-(CONTEXT - 12) :]
        tokens, codes = torch.tensor([ids]), None
        if latent_bits:
            noise = latent_noise([tuple(ids)], 12, 1, latent_bits, 5, Purpose.GENERATION)[0]
            first = lm.model(tokens, noise=noise[:, : len(ids)]).codes
            bits = (noise[:, len(ids) :] < 0.5) * 2 ** torch.arange(latent_bits)
            codes = torch.cat((first, bits.sum(-1)), dim=1)
        made = []
        for _ in range(12):
            z = None if codes is None else codes[:, : tokens.shape[1]]
            token = lm.model.logits(lm.model(tokens, codes=z).hidden[:, -1]).argmax(-1)
            if token == lm.eot_token_id:
                break
            made.append(token.item())
            tokens = torch.cat((tokens, token[None]), dim=1)
        assert text == lm.tokens.decode(made).decode(errors="replace")


@LATENT
def test_samples_are_the_same_whatever_the_batch_and_repeats_differ(make_lm, latent_bits):
    lm = make_lm(latent_bits=latent_bits)
    prompts = ["the quick", "It was the best of times, it was", "a", "the quick"]
    settings = dict(do_sample=True, temperature=0.8, max_gen_toks=10, top_k=0, top_p=1.0)
    found = continuations(lm, prompts, **settings)
    assert found[0] != found[3], "a repeat is another sample"
    assert found == continuations(make_lm(lm.model, batch_tokens=1), prompts, **settings)
    backwards = continuations(make_lm(lm.model, batch_tokens=40), prompts[2::-1], **settings)
    assert backwards == found[2::-1]
    other = continuations(make_lm(lm.model, seed=1), prompts, **settings)
    assert all(a != b for a, b in zip(found, other, strict=True))
    greedy = continuations(lm, prompts, max_gen_toks=10)
    assert greedy[0] == greedy[3] and greedy != found


def test_samples_follow_the_models_distribution(make_lm):
    lm = make_lm(latent_bits=0)
    found = continuations(lm, ["The"] * 3000, do_sample=True, temperature=2.0, max_gen_toks=1)
    logits = lm.model.logits(lm.model(torch.tensor([lm.tok_encode("The")])).hidden[0, -1])
    p = F.softmax(logits / 2, dim=-1)
    for token in p.topk(3).indices.tolist():
        text = lm.tokens.bytes_of[token].decode(errors="replace")
        same = [t for t, b in enumerate(lm.tokens.bytes_of) if b.decode(errors="replace") == text]
        expected = p[same].sum().item()
        error = (expected * (1 - expected) / 3000) ** 0.5
        assert found.count(text) / 3000 == pytest.approx(expected, abs=4 * error)


def test_what_was_cut_is_counted(make_lm):
    lm = make_lm(latent_bits=0)
    long = TEXT[:300]
    log_likelihoods(lm, [(long, " a"), (long, " a"), ("a", " b"), (long, " quick")])
    assert lm.truncated == 3
    lm.start_task()
    continuations(lm, [long, "a"], max_gen_toks=10)
    assert lm.truncated == 1
    lm.start_task()
    rolling(lm, [long])
    assert lm.truncated == 0


def test_more_new_tokens_than_the_context_are_as_many_as_half_of_it(speller):
    lm = speller(SENTENCE)
    assert continuations(lm, ["The"]) == [" quick dog: Größe, 7 foxes."]
    assert continuations(lm, ["The"], max_gen_toks=10**6) == [" quick dog: Größe, 7 foxes."]


def test_a_user_reads_one_line(make_lm, make_model, tokenizer, tmp_path):
    lm = make_lm()
    with pytest.raises(UserError, match=r"answer '' to a prompt that ends in 'Why\?' has 0 tokens"):
        log_likelihoods(lm, [("a", " b"), ("Why?", "")])
    with pytest.raises(UserError, match=r"the model can score from 1 to 48"):
        log_likelihoods(lm, [("a", TEXT)])
    for kwargs in ({"top_k": 5}, {"num_beams": 2}, {"temperature": -1.0}):
        (name, value), *_ = kwargs.items()
        with pytest.raises(UserError, match=f"{name}: {value} is not supported"):
            continuations(lm, ["a"], **({"do_sample": True, "temperature": 1.0} | kwargs))
    continuations(lm, ["a"], do_sample=False, top_k=5, max_gen_toks=1)
    with pytest.raises(UserError, match="does not fit a model of 11"):
        make_lm(make_model())
    with pytest.raises(UserError, match="without an end of text"):
        write_shards(tmp_path, [[0, 1, 2, 3]], row=2).byte_tokenizer()


def test_the_harness_runs_a_task_of_its_own_format_through(make_lm, tmp_path):
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    rows = [{"q": f"What comes after {i}?", "c": [f"{i + 1}", "none"], "gold": 0} for i in range(5)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "task.yaml").write_text(
        f"""
task: ours
dataset_path: json
dataset_kwargs: {{data_files: {{test: {tmp_path}/rows.jsonl}}, cache_dir: {tmp_path}/cache}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{q}}}}"
doc_to_choice: c
doc_to_target: gold
metric_list: [{{metric: acc}}, {{metric: acc_norm}}]
"""
    )
    lm = make_lm()
    manager = TaskManager(include_path=str(tmp_path), include_defaults=False)
    results = simple_evaluate(lm, tasks=["ours"], task_manager=manager, bootstrap_iters=0)
    pairs = [(row["q"], f" {choice}") for row in rows for choice in row["c"]]
    scores = [v for v, _ in log_likelihoods(make_lm(lm.model), pairs)]
    right = sum(a > b for a, b in zip(scores[::2], scores[1::2], strict=True))
    assert results["results"]["ours"]["acc,none"] == right / 5
    assert set(lm.mc_error) == set(pairs)
