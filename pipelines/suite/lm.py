"""A trained model as EleutherAI's lm-evaluation-harness sees it: log-likelihoods, continuations.

A prompt is read as the start of a document, as documents stood in training: after an end of text.
The encoder of a Free Transformer reads the prompt and never an answer (inference/answers.py); with
``posterior_prompt`` z is drawn once, with ``marginal`` K times. The seed and the prompt alone
decide every z, so that the result of a request does not depend on what it is batched with.
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, cast

import torch
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.models.utils import postprocess_generated_text
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from ftmodel.inference.answers import log_mean_exp, monte_carlo_error, score_answers
from ftmodel.inference.decoder import RoundedWeights
from ftmodel.inference.generate import generate
from ftmodel.inference.latent_source import FromPrior, Noise
from ftmodel.inference.sequence_bound import nll_bound
from ftmodel.model.free_transformer import FreeTransformer
from pipelines.artifacts.packing import Chunk, chunks, noise_of, packed
from pipelines.artifacts.tokens.byte_tokenizer import ByteTokenizer
from pipelines.common.rng_streams import Purpose
from pipelines.config.schema import Scoring, Suite, Weights
from pipelines.host.console import Bar
from pipelines.host.errors import UserError
from pipelines.suite.batching import (
    Decoding,
    Encoded,
    Ending,
    Ids,
    Opening,
    Question,
    batches_of_openings,
    batches_of_questions,
    digest,
    grouped_by_prompt,
    latent_noise,
    left_padded,
    padded,
    read_settings,
    token_generator,
)

CPU_TOKENS = 2048  # a forward pass: activations of more leave its caches (half the speed at 16384)


class FreeTransformerLM(LM):  # type: ignore[misc]
    """A trained model of either arm.

    Attributes:
        truncated: requests, since start_task, whose prompt was cut from the left to fit.
        mc_error: Monte-Carlo standard error, nats, of the log-likelihood of each (context,
            continuation) since start_task; empty for one sample and for baselines.
    """

    def __init__(
        self, model: FreeTransformer, tokenizer: ByteTokenizer, device: torch.device, suite: Suite
    ) -> None:
        """A batch has at most ``suite.batch_tokens``, padding included, and on a CPU at most 2048,
        or 4096 where it is continued.

        Raises UserError if the processor does not multiply with ``suite.weights``.
        """
        super().__init__()
        self.model = model.to(device).eval()
        self.rounded = None
        if suite.weights is Weights.bf16:
            try:
                self.rounded = RoundedWeights(self.model)
            except ValueError as error:
                raise UserError(f"suite.weights: bf16: {error}") from None
        self.tokens = tokenizer
        self._device = device
        averaged = model.noise_source is not None and suite.scoring is Scoring.marginal
        self.samples = suite.samples if averaged else 1
        most = CPU_TOKENS if device.type == "cpu" else suite.batch_tokens
        self.scored_tokens = min(suite.batch_tokens, most)
        self.continued_tokens = min(suite.batch_tokens, 2 * most)  # most passes read one a row
        self.seed = suite.seed
        self.max_length = model.config.context
        self.start_task()

    def start_task(self) -> None:
        """Reset the counts of earlier requests."""
        self.truncated = 0
        self.mc_error: dict[tuple[str, ...], float] = {}

    @property
    def eot_token_id(self) -> int:
        return self.tokens.end_of_text

    def encode(self, texts: Iterable[str]) -> dict[str, list[int]]:
        """Token ids of each of several texts, no special token among them."""
        distinct = list(dict.fromkeys(texts))
        try:
            ids = self.tokens.encode_batch([t.encode(errors="surrogatepass") for t in distinct])
        except ValueError as error:
            raise UserError(f"a text of the benchmark cannot be asked: {error}") from None
        return dict(zip(distinct, ids, strict=True))

    def tok_encode(self, text: str) -> list[int]:
        """Ids of a text as the start of a document."""
        return [self.eot_token_id, *self.encode([text])[text]]

    def encoded(self, pairs: Sequence[tuple[str, str]]) -> list[Encoded]:
        """Contexts and answers, each pair encoded as one text, as the harness does: an answer
        begins with the spaces at its context's end. One that merges into its context's last token
        is encoded alone.
        """
        contexts = [context.rstrip() for context, _ in pairs]
        wholes = ["".join(pair) for pair in pairs]
        ids = self.encode(chain(contexts, wholes, (answer for _, answer in pairs)))
        return [
            (
                pair,
                [self.eot_token_id, *ids[context]],
                ids[whole][len(ids[context]) :] or ids[pair[1]],
            )
            for pair, context, whole in zip(pairs, contexts, wholes, strict=True)
        ]

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        """log P(answer | context), nats, and whether the answer is the greedy one; raises UserError
        for an answer without tokens, or longer than the context.
        """
        return self.scored(
            self.encoded([cast(tuple[str, str], request.args) for request in requests])
        )

    def scored(self, requests: list[Encoded]) -> list[tuple[float, bool]]:
        """As `loglikelihood`, of encoded pairs."""
        questions, truncated = grouped_by_prompt(requests, self.max_length)
        self.truncated += truncated
        results: dict[int, tuple[float, bool]] = {}
        with self.progress("log-likelihoods", len(requests)) as progress:
            for batch in batches_of_questions(questions, self.scored_tokens):
                scored = zip(*self.scores(batch), strict=True)
                for indices in (i for question in batch for i in question.answers.values()):
                    log_p, error, greedy = next(scored)
                    for i in indices:
                        results[i] = log_p, greedy
                        if self.samples > 1:
                            self.mc_error[requests[i][0]] = error
                    progress.update(len(indices))
        return [results[i] for i in range(len(requests))]

    def scores(self, batch: list[Question]) -> tuple[list[float], list[float], list[bool]]:
        """For each answer: log P (nats), its Monte-Carlo error, whether it is the greedy one."""
        asked = [question.prompt for question in batch]
        prompts, padding = left_padded(asked)
        answers, lengths = padded([answer for question in batch for answer in question.answers])
        counts = torch.tensor([len(question.answers) for question in batch])
        draws = None
        source = self.model.noise_source
        if source is not None:
            new = answers.shape[1] - 1
            draws = latent_noise(asked, new, self.samples, source.width, self.seed, Purpose.ANSWERS)
            draws = draws.to(self.device)
        scores = score_answers(
            self.model,
            prompts.to(self.device),
            None if padding is None else padding.to(self.device),
            answers.to(self.device),
            lengths.to(self.device),
            torch.arange(len(batch)).repeat_interleave(counts).to(self.device),
            draws,
        )
        log_p, error = log_mean_exp(scores.log_probs), monte_carlo_error(scores.log_probs)
        return log_p.tolist(), error.tolist(), scores.greedy.tolist()

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        """log P(text), nats, read in windows of the model's context. A baseline reads as the
        harness's backends do: the last window begins before its first scored token. For a Free
        Transformer, or with a random prefix, it is minus the sum of the windows' bounds, each read
        alone, with K particles or prefixes.
        """
        texts = [text for request in requests for text in cast(tuple[str], request.args)]
        ids = self.encode(texts)
        of_text = self.bounded if self.model.noise_source else self.exact
        totals = dict(zip(ids, of_text(list(ids.values())), strict=True))
        return [totals[text] for text in texts]

    def exact(self, texts: list[list[int]]) -> list[float]:
        """log P of each text by a baseline."""
        windows: list[Encoded] = []
        counts = []
        for ids in texts:
            rolling = get_rolling_token_windows(ids, self.eot_token_id, self.max_length, 1)
            # no texts, which a message would name: a window has from 1 to as many tokens as fit
            windows += [(("", ""), *make_disjoint_window(window)) for window in rolling]
            counts.append(len(windows))
        log_p = [value for value, _ in self.scored(windows)]
        return [sum(log_p[a:b]) for a, b in zip([0, *counts], counts, strict=False)]

    def bounded(self, texts: list[list[int]]) -> list[float]:
        """A lower bound on log P of each text by a Free Transformer, or with a random prefix."""
        documents = [torch.tensor([self.eot_token_id, *ids]).numpy() for ids in texts]
        totals, owners = [0.0] * len(texts), []
        stream = []
        for chunk in chunks(documents, self.max_length):
            owners.append(chunk.document)
            # noise by its tokens, from neither of the streams of a prompt
            stream.append(Chunk(digest(tuple(chunk.tokens.tolist())), 2, chunk.tokens))
        rows, source = max(1, self.scored_tokens // self.max_length), self.model.noise_source
        assert source is not None, "a plain baseline is exact"
        scored = iter(owners)
        with self.progress("rolling log-likelihoods", len(stream)) as progress:
            for batch in packed(stream, self.max_length, rows, source.drawn_once):
                inputs, targets, segment_ids = (
                    t.to(self.device) for t in (batch.inputs, batch.targets, batch.segment_ids)
                )
                draw = noise_of(batch, source.width, self.seed, Purpose.ANSWERS, self.device)
                bounds = nll_bound(self.model, inputs, targets, self.samples, draw, segment_ids)
                for value in bounds.tolist():
                    totals[next(scored)] -= value
                progress.update(len(batch.chunks))
        return totals

    def generate_until(self, requests: list[Instance]) -> list[str]:
        """Continue each context until a stop string, an end of text, or the limit of tokens."""
        pairs = [cast(tuple[str, dict[str, Any]], request.args) for request in requests]
        ids = self.encode([context for context, _ in pairs])
        openings: dict[Opening, list[int]] = {}
        seen: dict[tuple[Ids, Decoding], int] = {}
        for i, (context, settings) in enumerate(pairs):
            prompt = [self.eot_token_id, *ids[context]]
            decoding = read_settings(settings, self.max_length)
            room = self.max_length - decoding.new
            self.truncated += len(prompt) > room
            key = tuple(prompt[-room:]), decoding
            repeat = seen.get(key, 0)
            seen[key] = repeat + 1
            if not decoding.temperature and not decoding.fresh_z:
                repeat = 0  # nothing varies: a repeat would be the same
            opening = Opening(*key, repeat)
            openings.setdefault(opening, []).append(i)
        results = [""] * len(requests)
        with self.progress("continuations", len(requests)) as progress:
            for batch in batches_of_openings(list(openings), self.continued_tokens):
                for opening, text in zip(batch, self.continued(batch), strict=True):
                    for i in openings[opening]:
                        results[i] = text
                    progress.update(len(openings[opening]))
        return results

    def continued(self, batch: list[Opening]) -> list[str]:
        """The texts that continue a batch of openings, which are decoded alike."""
        (decoding,) = {opening.decoding for opening in batch}
        if not decoding.new:
            return [""] * len(batch)
        prompts = [opening.prompt for opening in batch]
        ids, padding = left_padded(prompts)
        noise = None
        source = self.model.noise_source
        if source is not None:
            repeats = [opening.z for opening in batch]
            numbers = 1, source.width, self.seed, Purpose.GENERATION
            (noise,) = latent_noise(prompts, decoding.new, *numbers, repeats)
        ending = Ending(len(batch), decoding.until, self.eot_token_id, self.tokens.bytes_of)
        generate(
            self.model,
            ids.to(self.device),
            decoding.new,
            generator=[token_generator(opening, self.seed) for opening in batch],
            z=FromPrior() if noise is None else Noise(noise.to(self.device)),
            temperature=decoding.temperature,
            padding=None if padding is None else padding.to(self.device),
            until=ending,
            rounded=self.rounded,
        )
        texts = (text.decode(errors="replace") for text in ending.texts)
        return [postprocess_generated_text(text, list(decoding.until), None) for text in texts]

    def progress(self, name: str, total: int) -> Bar:
        return Bar(total, desc=name, leave=False, delay=1)
