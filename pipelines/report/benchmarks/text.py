"""What the pages show of benchmarks, and the paper's tables beside them; the sentences are in
templates/benchmarks.prose.jinja.
"""

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean

from pipelines.artifacts.run_results import RunResults, fraction
from pipelines.compare.arms import Arm
from pipelines.report.benchmarks.paper_tables import PaperScores, PaperTable, nearest, paper_name
from pipelines.report.benchmarks.pass_at_k import SampledTask, sampled_tasks
from pipelines.report.benchmarks.table import Benchmarks, Task, alike, suite_of
from pipelines.report.wording import listed

CLOSE = 1.1  # models and trainings whose sizes differ by less are called alike


def magnitude(number: float) -> str:
    """1.5 B."""
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if number >= size:
            return f"{number / size:.3g} {letter}"
    return f"{number:,.0f}"


def factor(theirs: float, ours: float) -> str:
    """How many times larger theirs is, 1,500,000; empty where they are about alike."""
    if max(theirs / ours, ours / theirs) <= CLOSE:
        return ""
    return f"{float(f'{theirs / ours:.3g}'):,.10g}"


@dataclass(frozen=True)
class Beside:
    """A table of the paper beside a family: its baseline and the κ that both have."""

    table: PaperTable
    kappas: list[float]
    late: bool

    @property
    def size(self) -> str:
        return model_size(self.table.parameters, self.table.tokens)

    @property
    def heads(self) -> list[str]:
        return ["baseline", *(f"κ = {fraction(kappa)}" for kappa in self.kappas)]

    @property
    def all_scores(self) -> dict[str, PaperScores]:
        return self.table.scores(self.late)

    def scores(self, task: Task) -> PaperScores | None:
        """None if the paper has no such benchmark, or by another metric."""
        scores = self.all_scores.get(task.name)
        return scores if scores and scores.metric == task.metric else None


def model_size(parameters: float, tokens: float) -> str:
    return f"{magnitude(parameters)} parameters and {magnitude(tokens)} tokens"


@dataclass(frozen=True)
class View:
    """What a page shows of a family."""

    title: str
    figure: str  # name of the figure of scores during training, if there is one
    family: Benchmarks
    beside: Beside | None
    late_beside: Beside | None
    in_the_paper: bool  # whether its tables have any of these benchmarks

    @cached_property
    def sampled(self) -> list[SampledTask]:
        """pass@k of the tasks that several answers were drawn to."""
        return sampled_tasks(self.family)

    @property
    def parameters(self) -> int:
        """Of the baseline, as the paper counts its models."""
        return (self.family.baseline or self.family.arms[0]).parameters

    @property
    def tokens(self) -> int:
        return self.family.arms[0].trained_tokens

    @property
    def size(self) -> str:
        return model_size(self.parameters, self.tokens)

    @property
    def times_larger(self) -> str:
        """The paper's models; see factor()."""
        return factor(self.beside.table.parameters, self.parameters) if self.beside else ""

    @property
    def times_longer(self) -> str:
        """The paper's training; see factor()."""
        return factor(self.beside.table.tokens, self.tokens) if self.beside else ""

    @property
    def single_seeds(self) -> bool:
        return all(len(arm.runs) == 1 for arm in self.family.arms)

    @property
    def other_metrics(self) -> list[tuple[str, str, str]]:
        """Benchmarks that the paper scores by another metric: name, metric here, metric there."""
        theirs = self.beside.table.final if self.beside else {}
        return [
            (task.name, task.metric, theirs[task.name].metric)
            for task in self.family.tasks
            if self.beside and task.name in theirs and not self.beside.scores(task)
        ]

    @property
    def truncated(self) -> list[tuple[str, str]]:
        """Benchmarks with prompts that did not fit the context, and how many requests a run."""
        cuts = [(task.name, truncations(self.family, task)) for task in self.family.tasks]
        return [(name, number_range(cut)) for name, cut in cuts if any(cut)]

    @property
    def other_data(self) -> dict[str, str]:
        """Benchmarks whose data are not as the hub has them, in what, and where they are from."""
        return {
            task.name: "; ".join([*task.notes, *task.sources])
            for task in self.family.tasks
            if task.notes
        }

    @property
    def sources(self) -> dict[str, str]:
        """Where the data of the other benchmarks are from."""
        return {
            task.name: "; ".join(task.sources)
            for task in self.family.tasks
            if task.sources and not task.notes
        }

    @property
    def unlike(self) -> list[str]:
        """Runs left out of a row because they were scored in another way than the first."""
        return [
            f"{task.name} of {run.name}"
            for task in self.family.tasks
            for run in self.family.runs
            if task.key in suite_of(run).tasks and not alike(run, task)
        ]

    @property
    def skipped(self) -> dict[str, str]:
        return skipped(self.family)

    @property
    def monte_carlo(self) -> list[list[str]]:
        """Mean error of a log-likelihood that K samples leave, nats, and the share of undecided
        documents: a head, then a row a task; empty if nothing was sampled.
        """
        free = [arm for arm in self.family.arms if not arm.baseline]
        rows = []
        for task in self.family.tasks:
            cells = [monte_carlo_cell(arm, task) for arm in free]
            if any(cell != "–" for cell in cells):
                rows.append([task.name, *cells])
        return [["benchmark", *(arm.name for arm in free)], *rows] if rows else []


@dataclass(frozen=True)
class SuiteSettings:
    """Which suites were run, and how; each value once."""

    names: list[str]
    harnesses: list[str]
    seeds: list[str]
    limit: int  # the most documents a task; 0: all of them
    unlimited: bool  # whether some runs were scored on all documents
    groups: list[str]  # tasks of several parts, each of which has this limit


@dataclass(frozen=True)
class Scoring:
    """How Free Transformers were scored; ``arms`` are empty if all in the same way."""

    method: str
    samples: int
    arms: list[str]


@dataclass(frozen=True)
class BenchmarkPage:
    """All that the pages show of benchmarks."""

    views: list[View]
    suite: SuiteSettings
    scorings: list[Scoring]
    paper_tables: list[Beside]  # whole, if any is put beside a family


def benchmark_page(families: list[Benchmarks], tables: list[PaperTable]) -> BenchmarkPage | None:
    """None where no benchmarks were run."""
    if not families:
        return None
    views = [view(family, families, tables) for family in families]
    return BenchmarkPage(views, suite_settings(families), scorings(families), whole(views, tables))


def view(family: Benchmarks, families: list[Benchmarks], tables: list[PaperTable]) -> View:
    run = family.arms[0].run
    alone = sum(other.arms[0].run.data == run.data for other in families) == 1
    names = {task.name for task in family.tasks}
    return View(
        run.data if alone else f"{run.data}, {run.model}, {run.tokens:,} tokens",
        f"benchmarks_{run.data}" + ("" if alone else f"_{run.model}_{run.tokens}"),
        family,
        beside(family, tables, late=False),
        beside(family, tables, late=True) if family.last_third else None,
        any(names & table.final.keys() for table in tables),
    )


def suite_settings(families: list[Benchmarks]) -> SuiteSettings:
    suites = [suite_of(run) for family in families for run in family.runs]
    limits = {suite.limit for suite in suites}
    parts = [key for suite in suites for key, task in suite.tasks.items() if task.subtasks]
    return SuiteSettings(
        names=list(dict.fromkeys(suite.suite for suite in suites)),
        harnesses=list(dict.fromkeys(suite.harness for suite in suites)),
        seeds=list(dict.fromkeys(str(suite.seed) for suite in suites)),
        limit=max((limit for limit in limits if limit is not None), default=0),
        unlimited=None in limits,
        groups=list(dict.fromkeys(parts)),
    )


def beside(family: Benchmarks, tables: list[PaperTable], late: bool) -> Beside | None:
    """The paper's table to compare with, if one has a κ and a benchmark in common."""
    kappas = {arm.run.kappa_bits for arm in family.arms if arm.run.kappa_bits is not None}
    names = [task.name for task in family.tasks]
    first = family.baseline or family.arms[0]
    tokens = family.arms[0].trained_tokens
    table = nearest(tables, first.parameters, tokens, kappas, names, late)
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


def scorings(families: list[Benchmarks]) -> list[Scoring]:
    """Of the Free Transformers; empty if there are none."""
    groups: dict[tuple[str, int], list[str]] = defaultdict(list)
    for arm in (arm for family in families for arm in family.arms if not arm.baseline):
        suite = suite_of(arm.first)
        groups[suite.scoring, suite.samples].append(arm.name)
    several = len(groups) > 1
    return [Scoring(*key, arms if several else []) for key, arms in groups.items()]


def truncations(family: Benchmarks, task: Task) -> list[int]:
    """Requests of each run whose prompt did not fit the context."""
    return [suite_of(run).tasks[task.key].truncated for run in family.runs if alike(run, task)]


def number_range(numbers: list[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def skipped(family: Benchmarks) -> dict[str, str]:
    """The reason by the paper's name of the task; where only some runs skipped it, with their
    names.
    """
    reasons: dict[tuple[str, str], list[RunResults]] = defaultdict(list)
    for run in family.runs:
        for key, reason in suite_of(run).skipped.items():
            reasons[key, reason].append(run)
    by_name: dict[str, list[str]] = defaultdict(list)
    for (key, reason), runs in reasons.items():
        only = "" if len(runs) == len(family.runs) else f" ({listed(run.name for run in runs)})"
        by_name[paper_name(key)].append(reason + only)
    return {name: "; ".join(each) for name, each in by_name.items()}


def monte_carlo_cell(arm: Arm, task: Task) -> str:
    results = [suite_of(run).tasks[task.key] for run in arm.runs if alike(run, task)]
    errors = [result.mc_error for result in results if result.mc_error is not None]
    shares = [result.undecided for result in results if result.undecided is not None]
    parts = [f"± {fmean(errors):.3f}"] if errors else []
    parts += [f"{100 * fmean(shares):.1f} %"] if shares else []
    return ", ".join(parts) or "–"
