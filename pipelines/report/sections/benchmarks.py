"""The benchmarks of a suite, beside the paper's tables."""

from collections import defaultdict
from statistics import fmean

from pipelines.artifacts.run_results import fraction
from pipelines.compare.arms import Arm
from pipelines.report.analysis import Analysis
from pipelines.report.benchmarks.paper_tables import PaperScores, PaperTable, nearest, read_tables
from pipelines.report.benchmarks.pass_at_k import SampledTask, sampled_tasks
from pipelines.report.benchmarks.plot import during_training, with_budgets
from pipelines.report.benchmarks.table import Benchmarks, Score, Scores, Task, alike, suite_of
from pipelines.report.blocks import Block, Fold, Picture, Section, Table, Text, heading, prose
from pipelines.report.markdown import escaped
from pipelines.report.wording import count, estimate, listed, magnitude, percent

CLOSE = 1.1  # models and trainings whose sizes differ by less are called alike
MONTE_CARLO = """\
What the K samples of z leave open: the mean Monte-Carlo standard error of a log-likelihood,
nats, and the share of documents whose two best choices are so close that another draw of z may
swap them. The errors over documents above have this noise in them already."""
LATE = """\
The mean of the budgets that lie in the last third of training, as in the paper’s Table 3,
compared between arms that have the same ones there. Scores of single documents are kept for the
final model alone: here the errors of two arms are added as if other documents had scored each,
which finds fewer differences."""
DURING = """\
As the paper’s Figures 5 to 7. A dot is a seed, lines go through means, and the baseline’s is the
thick one. Full markers are models whose learning rate was annealed to zero. Hollow markers are
snapshots taken before it decayed. ↓: lower is better."""
SAMPLED = """\
pass@k is the probability that one of k answers is right. What varies between them: “tokens”,
temperature alone, all answers of a Free Transformer having the same z; “z”, each answer with a z
of its own and the likeliest tokens (temperature 0); “z and tokens”, both. It is set against that
of the plain baseline at the same temperature, whose tokens alone vary. Shares of distinct
answers are not judged, nor is z alone, for which the baseline has no counterpart, nor are the
ways of one arm among themselves. ± is one standard error over prompts.
[pass@k](../../docs/benchmarks.md#passk)"""
CLOSING = """\
The percentage is the difference from the plain baseline relative to it, as the paper prints it.
It is bold and coloured only where the difference counts, by [the rule for
differences](../../docs/measurement.md#the-rule-for-differences), over documents (of the
differences document by document, where the score of each document is stored) and, with several
seeds, over seeds. The sign is of the score; whether more of it is better depends on the metric.
The paper does not state its shots and prompts, so that absolute values need not agree with its
own; those used here are in the table, the harness’s version of a task fixing its prompt."""
SCORING = {
    "marginal": "averaged in probability over K = {} samples of z: z for the prompt from the "
    "encoder, which reads the prompt only, z for the answer from the prior (marginal)",
    "posterior_prompt": "for a single sample of z, K = {}: z for the prompt from the encoder, "
    "which reads the prompt only, z for the answer from the prior (posterior_prompt, the paper’s "
    "literal procedure)",
}


def section(analysis: Analysis) -> Section | None:
    families, tables = analysis.benchmarks, read_tables()
    if not families:
        return None
    blocks: list[Block] = [Text(suite_words(families))]
    for family in families:
        blocks += family_blocks(family, title(family, families), tables, analysis)
    blocks += [*scoring_words(families), prose(CLOSING)]
    if any(beside(family, tables, late=False) for family in families):
        blocks += [
            Fold(f"{paper_words(table, late)}, whole", [whole_table(table, late)])
            for table in tables
            for late in (False, True)
            if table.scores(late)
        ]
    return Section("benchmarks", "Benchmarks", blocks)


def title(family: Benchmarks, families: list[Benchmarks]) -> str:
    run = family.arms[0].run
    alone = sum(other.arms[0].run.data == run.data for other in families) == 1
    return run.data if alone else f"{run.data}, {run.model}, {run.tokens:,} tokens"


def suite_words(families: list[Benchmarks]) -> str:
    suites = [suite_of(run) for family in families for run in family.runs]
    names, harnesses, seeds = (
        listed(dict.fromkeys(map(str, each)))
        for each in zip(*((s.suite, s.harness, s.seed) for s in suites), strict=True)
    )
    said = f"Suite {names}, run by {harnesses} with seed {seeds}"
    limits = {suite.limit for suite in suites}
    if limit := max((limit for limit in limits if limit is not None), default=0):
        some = "some runs " if None in limits else ""
        said += f", {some}on at most {limit:,} documents a task"
        parts = [key for suite in suites for key, task in suite.tasks.items() if task.subtasks]
        said += f" (of {listed(dict.fromkeys(parts))}: of each part)" if parts else ""
    return f"{said}. ± is one standard error over documents."


def family_blocks(
    family: Benchmarks, name: str, tables: list[PaperTable], analysis: Analysis
) -> list[Block]:
    paper = beside(family, tables, late=False)
    blocks: list[Block] = [heading(f"{name}: benchmarks")]
    if family.final:
        blocks.append(score_table(family, family.final, paper, late=False))
    notes = [*comparison_words(family), *paper_notes(family, paper, tables), *left_out(family)]
    blocks += map(Text, notes)
    for words, reasons in (
        ("Where the data are from:", {t.name: t.sources for t in family.tasks if t.sources}),
        ("Skipped, so that nothing is known of them:", family.skipped),
    ):
        if reasons:
            lines = (f"- {escaped(k)}: {escaped('; '.join(r))}" for k, r in reasons.items())
            blocks.append(Text("\n".join((words, "", *lines))))
    if rows := monte_carlo(family):
        free = [arm.name for arm in family.arms if not arm.baseline]
        blocks += [prose(MONTE_CARLO), Table(["benchmark", *free], rows)]
    blocks += sampled_blocks(family, name)
    if family.last_third:
        late = beside(family, tables, late=True)
        blocks += [
            heading(f"{name}: benchmarks, mean of the last third of training"),
            score_table(family, family.last_third, late, late=True),
            prose(LATE + (f" Beside them: {paper_words(late, True)}." if late else "")),
        ]
    if family.tasks and with_budgets(family):
        run = family.arms[0].run
        file = run.data if name == run.data else f"{run.data}_{run.model}_{run.tokens}"
        alt = f"Score on each benchmark against tokens on {name}"
        blocks += [
            heading(f"{name}: benchmarks during training"),
            prose(DURING),
            Picture(f"benchmarks_{file}", during_training(family, analysis.style), alt),
        ]
    return blocks


def kappas(family: Benchmarks) -> set[float]:
    return {arm.run.kappa_bits for arm in family.arms if arm.run.kappa_bits is not None}


def beside(family: Benchmarks, tables: list[PaperTable], late: bool) -> PaperTable | None:
    """The paper's table to compare with, if one has a κ and a benchmark in common."""
    first = family.baseline or family.arms[0]
    names = [task.name for task in family.tasks]
    tokens = family.arms[0].trained_tokens
    return nearest(tables, first.parameters, tokens, kappas(family), names, late)


def score_cell(score: Score | None) -> str:
    """0.400 ± 0.020; **+33.33 % better**, bold where the difference counts."""
    if score is None:
        return "–"
    value = estimate(score.value, 3)
    if not score.verdict:
        return value
    relative = "–" if score.relative is None else percent(score.relative)
    said = f"**{relative} {score.verdict}**" if score.counts else f"{relative} ({score.verdict})"
    return f"{value}; {said}"


def paper_cells(scores: PaperScores | None, shown: list[float]) -> list[str]:
    if scores is None:
        return ["–"] * (1 + len(shown))
    free = (f"{scores.free[k]:.3f}; {percent(scores.relative[k])}" for k in shown)
    return [f"{scores.baseline:.3f}", *free]


def paper_heads(shown: list[float]) -> list[str]:
    return ["baseline", *(f"κ = {fraction(kappa)}" for kappa in shown)]


def score_table(family: Benchmarks, scores: Scores, paper: PaperTable | None, late: bool) -> Table:
    shown = sorted(paper.kappas(late) & kappas(family)) if paper else []
    head = ["benchmark", "metric", "shots", "documents", "version", *map(arm_head, family.arms)]
    head += [f"paper, {paper.name}: {each}" for each in paper_heads(shown)] if paper else []
    rows = []
    for task in (task for task in family.tasks if task.key in scores):
        cells = [
            task.name,
            task.metric + ("" if task.higher_is_better else " (lower is better)"),
            str(task.shots),
            f"{task.documents:,}",
            task.version,
            *(score_cell(scores[task.key].get(arm.name)) for arm in family.arms),
        ]
        if paper:
            theirs = paper_scores(paper, task, late)
            cells += paper_cells(theirs, shown)
        rows.append(cells)
    return Table(head, rows)


def paper_scores(paper: PaperTable, task: Task, late: bool) -> PaperScores | None:
    """None if the paper has no such benchmark, or by another metric."""
    scores = paper.scores(late).get(task.name)
    return scores if scores and scores.metric == task.metric else None


def whole_table(paper: PaperTable, late: bool) -> Table:
    shown = sorted(paper.kappas(late))
    rows = [
        [name, scores.metric, *paper_cells(scores, shown)]
        for name, scores in paper.scores(late).items()
    ]
    return Table(["benchmark", "metric", *paper_heads(shown)], rows)


def arm_head(arm: Arm) -> str:
    return arm.name + ("" if arm.baseline else f", κ = {arm.first.kappa}")


def comparison_words(family: Benchmarks) -> list[str]:
    number, late = len(family.comparisons), len(family.compared(late=True))
    if family.tasks and not family.baseline:
        return ["Nothing is compared here: no plain baseline of this data, model and number of "
                "tokens was scored."]  # fmt: skip
    if not number or not family.baseline:
        return []
    of_them = f" ({late} of them over the last third of training)" if late else ""
    found = sum(score.counts for score in family.comparisons)
    said = (
        f"{count(number, 'comparison')} with {family.baseline.name} "
        f"{'was' if number == 1 else 'were'} made{of_them}, and {found} found a difference; of "
        "those between arms without any difference, about one in twenty finds one all the same."
    )
    if all(len(arm.runs) == 1 for arm in family.arms):
        said += (
            " With one seed an arm a difference is one of these models: another seed may undo it."
        )
    return [said]


def paper_notes(
    family: Benchmarks, paper: PaperTable | None, tables: list[PaperTable]
) -> list[str]:
    """How far the paper's models are from these, and what is not put beside them."""
    if not paper:
        common = {task.name for task in family.tasks} & {n for t in tables for n in t.final}
        why = "no Free Transformer here has a κ of theirs" if common else "none of these is in them"
        alone = f"The paper’s tables are not put beside these benchmarks: {why}."
        return [alone] if family.tasks else []
    ours = (family.baseline or family.arms[0]).parameters, family.arms[0].trained_tokens
    larger, longer = factor(paper.parameters, ours[0]), factor(paper.tokens, ours[1])
    apart = [f"{larger} times as large"] * bool(larger)
    apart += [f"trained on {longer} times as many tokens"] * bool(longer)
    how = f"the paper’s models are {' and '.join(apart)}" if apart else "about alike in both"
    said = [
        f"Beside them: {paper.name} of the paper, the nearest in size and training. {size(*ours)} "
        f"here, {size(paper.parameters, paper.tokens)} there: {how}. The paper gives no errors and "
        "one model an arm: none of its differences is claimed here."
    ]
    others = [
        f"{task.name} ({task.metric} here, {paper.final[task.name].metric} there)"
        for task in family.tasks
        if task.name in paper.final and not paper_scores(paper, task, late=False)
    ]
    if others:
        said.append(f"Not beside the paper’s, for another metric: {listed(others)}.")
    return said


def size(parameters: float, tokens: float) -> str:
    return f"{magnitude(parameters)} parameters and {magnitude(tokens)} tokens"


def factor(theirs: float, ours: float) -> str:
    """How many times larger theirs is, 1,500,000; empty where they are about alike."""
    if max(theirs / ours, ours / theirs) <= CLOSE:
        return ""
    return f"{float(f'{theirs / ours:.3g}'):,.10g}"


def paper_words(paper: PaperTable, late: bool) -> str:
    return (
        f"{paper.name} of the paper ({magnitude(paper.parameters)} parameters, "
        f"{magnitude(paper.tokens)} tokens{', mean of the last third' if late else ''})"
    )


def left_out(family: Benchmarks) -> list[str]:
    """Prompts that were cut, and runs that were scored in another way than the first."""
    cuts = []
    for task in family.tasks:
        cut = [suite_of(run).tasks[task.key].truncated for run in family.runs if alike(run, task)]
        if any(cut):
            ends = dict.fromkeys(f"{number:,}" for number in (min(cut), max(cut)))
            cuts.append(f"{task.name}, {' to '.join(ends)} requests a run")
    unlike = [
        f"{task.name} of {run.name}"
        for task in family.tasks
        for run in family.runs
        if task.key in suite_of(run).tasks and not alike(run, task)
    ]
    cut_words = [f"Prompts longer than the context were cut from the left: {'; '.join(cuts)}."]
    other = [
        "Left out, since they were scored on other data, documents, shots, metric or version of "
        f"the task than the others: {listed(unlike or ['none'])}. `dvc repro` makes them alike."
    ]
    return cut_words * bool(cuts) + other * bool(unlike)


def monte_carlo(family: Benchmarks) -> list[list[str]]:
    """Mean error of a log-likelihood that K samples leave, nats, and the share of undecided
    documents, a row a task; empty if nothing was sampled.
    """
    free = [arm for arm in family.arms if not arm.baseline]
    rows = [[task.name, *(monte_carlo_cell(arm, task) for arm in free)] for task in family.tasks]
    return [row for row in rows if any(cell != "–" for cell in row[1:])]


def monte_carlo_cell(arm: Arm, task: Task) -> str:
    results = [suite_of(run).tasks[task.key] for run in arm.runs if alike(run, task)]
    errors = [result.mc_error for result in results if result.mc_error is not None]
    shares = [result.undecided for result in results if result.undecided is not None]
    parts = [f"± {fmean(errors):.3f}"] if errors else []
    parts += [f"{100 * fmean(shares):.1f} %"] if shares else []
    return ", ".join(parts) or "–"


def sampled_blocks(family: Benchmarks, name: str) -> list[Block]:
    tasks = sampled_tasks(family)
    compared = [score for each in tasks for score in each.compared]
    blocks: list[Block] = []
    for each in tasks:
        blocks.append(heading(f"{name}: {each.samples} answers to each prompt of {each.task.name}"))
        blocks += [prose(SAMPLED)] * (each is tasks[0])
        if compared and each is tasks[0]:
            number, found = len(compared), sum(score.counts for score in compared)
            blocks.append(Text(
                f"{count(number, 'comparison')} of this kind {'was' if number == 1 else 'were'} "
                f"made, and {found} found a difference; many of them share their models and "
                "prompts, so that they agree more often than chance."
            ))  # fmt: skip
        blocks.append(sampled_table(each))
    return blocks


def sampled_table(sampled: SampledTask) -> Table:
    head = ["arm", "what varies", "temperature", *(f"pass@{k}" for k in sampled.ks),
            "distinct answers"]  # fmt: skip
    rows = [
        [arm_head(row.arm), row.varies, f"{row.sampling.temperature:g}",
         *map(score_cell, (*row.pass_at, row.distinct))]
        for row in sampled.rows
    ]  # fmt: skip
    return Table(head, rows)


def scoring_words(families: list[Benchmarks]) -> list[Text]:
    """How Free Transformers were scored, if there are any; of which arms, if in several ways."""
    groups: dict[tuple[str, int], list[str]] = defaultdict(list)
    for arm in (arm for family in families for arm in family.arms if not arm.baseline):
        suite = suite_of(arm.first)
        groups[suite.scoring, suite.samples].append(arm.name)
    ways = [
        SCORING[method].format(samples) + (f" ({listed(arms)})" if len(groups) > 1 else "")
        for (method, samples), arms in groups.items()
    ]
    if not ways:
        return []
    return [
        Text(
            "The log-probability of an answer, log P(answer | prompt), is exact for a baseline "
            f"and, for a Free Transformer, {listed(ways)}. Rolling likelihoods are filtering "
            "bounds (K particles); of a text longer than the context each window is read alone, "
            "where the harness lets a baseline’s last one see more before it. Generated text is "
            "greedy in its tokens, with z sampled. "
            "[Answers of benchmarks](../../docs/measurement.md#answers-of-benchmarks)"
        )
    ]
