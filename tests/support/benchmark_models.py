"""Models under the harness: tiny ones by our adapter, and stand-ins whose answers are known
beforehand.
"""

import json
import random
from hashlib import sha256

import pytest
import torch
import yaml
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM

from pipelines.config.schema import Suite, SuiteTask
from pipelines.host.files import ROOT
from pipelines.suite.lm import FreeTransformerLM

END = "<|endoftext|>"
CONTEXT = 48
TEXT = """The quick brown fox jumps over the lazy dog. Question: what is the answer?
Answer: the answer is seven. def add(a, b):\n    return a + b\n
Über Größe ist naïve café 東京 → ∀x.
Which of these is the larger number? It was the best of times, it was the worst of times. """


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


def adapter(model, tokenizer, **changes):
    suite = Suite(name="tiny", **({"samples": 4, "batch_tokens": 2000} | changes))
    return FreeTransformerLM(model, tokenizer, torch.device("cpu"), suite)


def ask(lm, kind, arguments):
    return getattr(lm, kind)([Instance(kind, {}, args, i) for i, args in enumerate(arguments)])


def log_likelihoods(lm, pairs):
    return ask(lm, "loglikelihood", pairs)


def rolling(lm, texts):
    return ask(lm, "loglikelihood_rolling", [(text,) for text in texts])


def continuations(lm, prompts, **settings):
    return ask(lm, "generate_until", [(prompt, settings) for prompt in prompts])


def near(values):
    """To what float32 gives in batches of other shapes."""
    return pytest.approx(values, rel=1e-6, abs=1e-4)


class Scripted(LM):
    """Answers by functions of the texts alone; remembers what it was asked."""

    def __init__(self, log_p=None, answer=None, error=None):
        super().__init__()
        self.log_p = log_p or hashed
        self.answer = answer or (lambda prompt: "")
        self.error = error  # Monte-Carlo, nats; a function of the two texts, or None
        self.pairs, self.prompts = [], []
        self.truncated, self.mc_error = 99, {("left", "over"): 9.0}

    def start_task(self):
        self.truncated, self.mc_error = 0, {}

    def loglikelihood(self, requests):
        self.pairs += [request.args for request in requests]
        if self.error:
            self.mc_error |= {pair: self.error(*pair) for pair in self.pairs}
        return [(self.log_p(*request.args), False) for request in requests]

    def loglikelihood_rolling(self, requests):
        return [self.log_p("", *request.args) for request in requests]

    def generate_until(self, requests):
        self.prompts += [request.args[0] for request in requests]
        self.settings = [request.args[1] for request in requests]
        return [self.answer(request.args[0]) for request in requests]


def hashed(context, continuation):
    """A log-likelihood out of the blue, between −10 and 0."""
    digest = sha256(f"{context}\0{continuation}".encode()).digest()
    return -10 * int.from_bytes(digest[:4]) / 2**32


settings = Suite


def entry(task, key, shots=None):
    return SuiteTask(task=task, key=key, shots=shots)


def entries(suite):
    """Of conf/suite/, as the stage gives them."""
    content = yaml.safe_load((ROOT / f"conf/suite/{suite}.yaml").read_text())
    return {name: SuiteTask(**spec) for name, spec in content.get("tasks", {}).items()}


def documents(name):
    """Of our own tasks."""
    lines = (ROOT / f"tasks/mini/{name}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]
