"""Stand-ins for a model under the harness: what each answers is known beforehand."""

import math
from hashlib import sha256

from lm_eval.api.model import LM

from pipelines.config.suite import Suite, SuiteTask


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


def by_length(context, continuation):
    """Of two texts the shorter one is likelier, but less so per character."""
    return -math.sqrt(len(continuation))


def settings(**changes):
    return Suite(**changes)


def entry(task, key, shots=None):
    return SuiteTask(task=task, key=key, shots=shots)
