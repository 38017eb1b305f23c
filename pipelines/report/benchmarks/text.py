"""Benchmarks in words, and the paper's tables beside them."""

from collections import defaultdict
from dataclasses import dataclass
from statistics import fmean

from pipelines.artifacts.results import Measured, fraction
from pipelines.report.arms import Arm
from pipelines.report.benchmarks.paper_tables import PaperScores, PaperTable, nearest, paper_name
from pipelines.report.benchmarks.table import Benchmarks, Task, alike, suite
from pipelines.report.verdicts import count, listed

NOTES = [
    "The percentage is the difference from the plain baseline relative to it, as the paper prints "
    "it. It is bold and coloured only where the difference counts: where it exceeds two standard "
    "errors over documents (of the differences document by document, where the score of each "
    "document is stored) and, with several seeds, what another seed may make of it. The sign is of "
    "the score; whether more of it is better depends on the metric.",
    "The paper does not state its shots and prompts, so that absolute values need not agree with "
    "its own. Those used here are in the table: the number of shots, and the harness’s version of "
    "the task, which fixes its prompt.",
]
MONTE_CARLO = (
    "What the K samples of z leave open: the mean Monte-Carlo standard error of a log-likelihood, "
    "nats, and the share of documents whose two best choices are so close that another draw of z "
    "may swap them. The errors over documents above have this noise in them already."
)
LATE = (
    "The mean of the budgets that lie in the last third of training, as in the paper’s Table 3, "
    "compared between arms that have the same ones there. Scores of single documents are kept for "
    "the final model alone: here the errors of two arms are added as if other documents had scored "
    "each, which finds fewer differences."
)
TRAINING = (
    "As the paper’s Figures 5 to 7. A dot is a seed, lines go through means, and the baseline’s is "
    "the thick one. Full marks are models whose learning rate was annealed to zero; hollow ones "
    "are snapshots of a training that went on. ↓: lower is better."
)
SCORINGS = {
    "marginal": "averaged in probability over K = {} samples of z: of the prompt from the encoder, "
    "which reads the prompt only, of the answer from the prior (marginal)",
    "posterior_prompt": "for a single sample of z, K = {}: of the prompt from the encoder, which "
    "reads the prompt only, of the answer from the prior (posterior_prompt, the paper’s literal "
    "procedure)",
}
SCORED = (
    "The log-probability of an answer, log P(answer | prompt), is exact for a baseline and, for a "
    "Free Transformer, {}. Rolling likelihoods are IWAE-K bounds; of a text longer than the "
    "context each window is read alone, where the harness lets a baseline’s last one see more "
    "before it. Generated text is greedy in its tokens, with z sampled."
)
FEW = 30  # documents, below which two standard errors are less than a test at 5 % asks for
CLOSE = 1.1  # models and trainings whose sizes differ by less are called alike


@dataclass(frozen=True)
class Beside:
    """What a table of the paper has beside a family: its baseline and the κ that both have."""

    table: PaperTable
    kappas: list[float]
    late: bool

    @property
    def name(self) -> str:
        size, tokens = magnitude(self.table.parameters), magnitude(self.table.tokens)
        late = ", mean of the last third" if self.late else ""
        return f"{self.table.name} of the paper ({size} parameters, {tokens} tokens{late})"

    @property
    def heads(self) -> list[str]:
        return ["baseline", *(f"κ = {fraction(kappa)}" for kappa in self.kappas)]

    @property
    def all_scores(self) -> dict[str, PaperScores]:
        return self.table.scores(self.late)

    def scores(self, task: Task) -> PaperScores | None:
        """None if the paper has no such benchmark, or by another metric."""
        found = self.all_scores.get(task.name)
        return found if found and found.metric == task.metric else None


@dataclass(frozen=True)
class View:
    """What a page shows of a family."""

    title: str
    figure: str  # the name of that of the training, if there is one
    found: Benchmarks
    beside: Beside | None
    late_beside: Beside | None
    sentences: list[str]
    skipped: dict[str, str]  # by task: why, and what mends it
    monte_carlo: list[list[str]]  # the head, then a row a task; empty if nothing was sampled


def views(all_found: list[Benchmarks], tables: list[PaperTable]) -> list[View]:
    return [view(found, all_found, tables) for found in all_found]


def view(found: Benchmarks, all_found: list[Benchmarks], tables: list[PaperTable]) -> View:
    paper = beside(found, tables, late=False)
    sentences = [
        comparisons(found),
        paper_words(found, paper, tables),
        other_metrics(found, paper),
        truncated(found),
        unlike(found),
    ]
    run = found.arms[0].run
    alone = sum(other.arms[0].run.data == run.data for other in all_found) == 1
    return View(
        run.data if alone else f"{run.data}, {run.model}, {run.tokens:,} tokens",
        f"benchmarks_{run.data}" + ("" if alone else f"_{run.model}_{run.tokens}"),
        found,
        paper,
        beside(found, tables, late=True) if found.last_third else None,
        [sentence for sentence in sentences if sentence],
        skipped(found),
        monte_carlo(found),
    )


def suite_words(all_found: list[Benchmarks]) -> str:
    """Which suite, by which harness, with which seed, on how much of it."""
    suites = [suite(one) for found in all_found for one in found.runs]
    names = listed(dict.fromkeys(one["suite"] for one in suites))
    harness = listed(dict.fromkeys(one["harness"] for one in suites))
    seeds = listed(dict.fromkeys(str(one["seed"]) for one in suites))
    limits = {one["limit"] for one in suites}
    most = max(limits - {None}, default=0)
    some = "some runs " if None in limits else ""
    limited = f", {some}on at most {most:,} documents a task" if most else ""
    groups = [task for one in suites for task, told in one["tasks"].items() if told["subtasks"]]
    if most and groups:  # the harness counts them so
        limited += f" (of {listed(dict.fromkeys(groups))}: of each part)"
    how = f"run by {harness} with seed {seeds}{limited}"
    return f"Suite {names}, {how}. ± is one standard error over documents."


def percent(relative: float) -> str:
    """As the paper prints it: +44.44 %."""
    return f"{relative:+.2f} %".replace("-", "−")


def magnitude(number: float) -> str:
    """1.5 B."""
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if number >= size:
            return f"{number / size:.3g} {letter}"
    return f"{number:,.0f}"


def beside(found: Benchmarks, tables: list[PaperTable], late: bool) -> Beside | None:
    kappas = {arm.run.kappa_bits for arm in found.arms if arm.run.kappa_bits is not None}
    names = [task.name for task in found.tasks]
    table = nearest(tables, parameters(found), found.arms[0].trained_tokens, kappas, names, late)
    return Beside(table, sorted(table.kappas(late) & kappas), late) if table else None


def whole(views: list[View], tables: list[PaperTable]) -> list[Beside]:
    """The paper's tables from end to end, if any is put beside a family."""
    if not any(view.beside for view in views):
        return []
    return [
        Beside(table, sorted(table.kappas(late)), late)
        for table in tables
        for late in (False, True)
        if table.scores(late)
    ]


def parameters(found: Benchmarks) -> int:
    """Of the baseline, as the paper counts its models."""
    return (found.baseline or found.arms[0]).parameters


def paper_words(found: Benchmarks, paper: Beside | None, tables: list[PaperTable]) -> str:
    if not found.tasks:
        return ""
    if paper is None:
        shared = {task.name for task in found.tasks} & {name for t in tables for name in t.final}
        why = "no Free Transformer here has a κ of theirs" if shared else "none of these is in them"
        return f"The paper’s tables are not put beside these benchmarks: {why}."
    ours = parameters(found), found.arms[0].trained_tokens
    theirs = paper.table.parameters, paper.table.tokens
    said = [f"{magnitude(size)} parameters and {magnitude(tokens)} tokens"
            for size, tokens in (ours, theirs)]  # fmt: skip
    factors = [
        words.format(f"{float(f'{other / mine:.3g}'):,.10g}")
        for mine, other, words in (
            (ours[0], theirs[0], "{} times as large"),
            (ours[1], theirs[1], "trained on {} times as many tokens"),
        )
        if max(other / mine, mine / other) > CLOSE
    ]
    how = f"the paper’s models are {listed(factors)}" if factors else "about alike in both"
    return (
        f"Beside them: {paper.table.name} of the paper, the nearest in size and training. "
        f"{said[0]} here, {said[1]} there: {how}. The paper gives no errors and one model an arm: "
        "its percentages are coloured by their sign, as it prints them, and none is claimed here."
    )


def other_metrics(found: Benchmarks, paper: Beside | None) -> str:
    if paper is None:
        return ""
    there = paper.table.final
    each = [
        f"{task.name} ({task.metric} here, {there[task.name].metric} there)"
        for task in found.tasks
        if task.name in there and not paper.scores(task)
    ]
    return f"Not beside the paper’s, for another metric: {listed(each)}." if each else ""


def comparisons(found: Benchmarks) -> str:
    """How many were made and how many found a difference, and how far that goes."""
    made = [*found.compared(), *found.compared(late=True)]
    if found.tasks and not found.baseline:
        return (
            "Nothing is compared here: no plain baseline of this data, model and number of tokens "
            "was scored."
        )
    if not made or not found.baseline:
        return ""
    few = [task.name for task in found.tasks if task.documents < FEW]
    told = sum(score.counts for score in made)
    more = len(found.compared(late=True))
    return (
        f"{count(len(made), 'comparison')} with {found.baseline.name} "
        f"{'was' if len(made) == 1 else 'were'} made"
        + (f" ({more} of them over the last third of training)" if more else "")
        + f", and {told} found a difference; of those between arms without any difference, about "
        "one in twenty finds one all the same."
        + (f" With fewer than {FEW} documents ({listed(few)}) more do." if few else "")
        + (
            " With one seed an arm a difference is one of these models: another seed may undo it."
            if all(len(arm.runs) == 1 for arm in found.arms)
            else ""
        )
    )


def notes(all_found: list[Benchmarks]) -> list[str]:
    """How to read the tables; first, how Free Transformers were scored, if there are any."""
    groups: dict[tuple[str, int], list[str]] = defaultdict(list)
    for arm in (arm for found in all_found for arm in found.arms if not arm.baseline):
        groups[suite(arm.first)["scoring"], suite(arm.first)["samples"]].append(arm.name)
    ways = [
        SCORINGS[way].format(samples) + (f" ({listed(names)})" if len(groups) > 1 else "")
        for (way, samples), names in groups.items()
    ]
    return [SCORED.format(listed(ways)), *NOTES] if ways else NOTES


def truncated(found: Benchmarks) -> str:
    """Requests whose prompt did not fit the context; as many for each arm as a rule."""
    each = []
    for task in found.tasks:
        cut = [suite(one)["tasks"][task.key]["truncated"] for one in found.runs if alike(one, task)]
        if any(cut):
            few = f"{min(cut):,}" if min(cut) == max(cut) else f"{min(cut):,} to {max(cut):,}"
            each.append(f"{task.name}, {few} requests a run")
    return (
        f"Prompts longer than the context were cut from the left: {'; '.join(each)}."
        if each
        else ""
    )


def unlike(found: Benchmarks) -> str:
    """Runs left out of a row because they were scored in another way than the first."""
    each = [
        f"{task.name} of {one.name}"
        for task in found.tasks
        for one in found.runs
        if task.key in suite(one)["tasks"] and not alike(one, task)
    ]
    return (
        "Left out, since they were scored on other documents, shots, metric or version of the "
        f"task than the others: {listed(each)}. `dvc repro` makes them alike."
        if each
        else ""
    )


def skipped(found: Benchmarks) -> dict[str, str]:
    """By the paper's name of the task; where only some runs skipped it, with their names."""
    reasons: dict[tuple[str, str], list[Measured]] = defaultdict(list)
    for one in found.runs:
        for key, reason in suite(one)["skipped"].items():
            reasons[key, reason].append(one)
    said: dict[str, list[str]] = defaultdict(list)
    for (key, reason), runs in reasons.items():
        only = "" if len(runs) == len(found.runs) else f" ({listed(one.name for one in runs)})"
        said[paper_name(key)].append(reason + only)
    return {name: "; ".join(each) for name, each in said.items()}


def monte_carlo(found: Benchmarks) -> list[list[str]]:
    """Mean error of a log-likelihood that K samples leave, nats, and share left undecided."""
    free = [arm for arm in found.arms if not arm.baseline]
    rows = []
    for task in found.tasks:
        cells = [monte_carlo_cell(arm, task) for arm in free]
        if any(cell != "–" for cell in cells):
            rows.append([task.name, *cells])
    return [["benchmark", *(arm.name for arm in free)], *rows] if rows else []


def monte_carlo_cell(arm: Arm, task: Task) -> str:
    entries = [suite(one)["tasks"][task.key] for one in arm.runs if alike(one, task)]
    errors = [entry["mc_error"] for entry in entries if entry["mc_error"] is not None]
    shares = [entry["undecided"] for entry in entries if entry["undecided"] is not None]
    parts = [f"± {fmean(errors):.3f}"] if errors else []
    parts += [f"{100 * fmean(shares):.1f} %"] if shares else []
    return ", ".join(parts) or "–"
