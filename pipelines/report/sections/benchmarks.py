"""The benchmarks of a suite, beside the paper's tables, and during training as in Figures 5 to 7 of
the paper.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pipelines.artifacts.run_results import fraction
from pipelines.compare.arms import Arm
from pipelines.report.analysis import Analysis
from pipelines.report.benchmarks import (
    Benchmarks,
    PaperScores,
    PaperTable,
    Score,
    Scores,
    Task,
    nearest,
    read_tables,
    sampled_tasks,
    scored_alike,
    suite_of,
)
from pipelines.report.blocks import (
    MISSING,
    Block,
    Cell,
    Entries,
    Picture,
    Table,
    Text,
    Verdict,
    escaped,
    explained,
    heading,
    table,
)
from pipelines.report.sections import titled
from pipelines.report.style import (
    ANNEALING,
    GREY,
    Style,
    add_legend,
    dots,
    label_axes,
    log_places,
    millions,
    panels,
    spaced,
)
from pipelines.report.wording import between, estimate, listed, magnitude, number, signed

SMALL = 1e9  # parameters; below, accuracy is often chance
GOLD = "bits per byte of the right answer (lower is better)"
COLUMNS, TICKS = 4, 4  # of the figure: panels side by side, and labels below each
SCORING = {
    "marginal": "averaged in probability over K = {} samples of z: z for the prompt from the "
    "encoder, which reads the prompt only, z for the answer from the prior (marginal)",
    "posterior_prompt": "for a single sample of z, K = {}: z for the prompt from the encoder, "
    "which reads the prompt only, z for the answer from the prior (posterior_prompt, the paper’s "
    "literal procedure)",
}


@titled("Benchmarks")
def benchmarks(analysis: Analysis) -> Sequence[Block]:
    families = analysis.benchmarks
    if not families:
        return []
    blocks: list[Block] = [Text(suite_words(families))]
    for family in families:
        blocks += family_blocks(family, analysis)
    return [*blocks, *map(Text, scoring_words(families))]


def suite_words(families: list[Benchmarks]) -> str:
    suites = [suite_of(run) for family in families for run in family.runs]
    first, harnesses = suites[0], listed(dict.fromkeys(suite.harness for suite in suites))
    said = f"Suite {first.suite}, run by {harnesses} with seed {first.seed}"
    if first.limit:
        said += f", on at most {first.limit:,} documents a task"
        parts = [key for suite in suites for key, task in suite.tasks.items() if task.subtasks]
        said += f" (of {listed(dict.fromkeys(parts))}: of each part)" if parts else ""
    return (
        f"{said}. ± is one standard error over documents, or over clusters of them. In "
        "parentheses: the 95 % interval of a rate of documents (Wilson)."
    )


def family_blocks(family: Benchmarks, analysis: Analysis) -> list[Block]:
    name, paper = analysis.family_name(family.arms), beside(family)
    blocks: list[Block] = [heading(f"{name}: benchmarks")]
    blocks += score_table(family, family.final, paper, family.gold)
    notes = []
    if family.tasks and not family.baseline:
        notes.append(
            "No plain baseline of the same data, model and token budget was scored, so nothing is "
            "compared here."
        )
    notes += [*paper_notes(family, paper), *exceptions(family)]
    for words, reasons in (
        ("Where the data are from:", {t.name: t.sources for t in family.tasks if t.sources}),
        ("Skipped, so nothing is known about them:", family.skipped),
    ):
        if reasons:
            lines = [f"- {escaped(k)}: {escaped('; '.join(r))}" for k, r in reasons.items()]
            notes.append("\n".join((words, "", *lines)))
    blocks += map(Text, notes)
    if errors := monte_carlo(family):
        blocks += [*explained("The Monte Carlo error of K samples"), *errors]
    blocks += sampled_blocks(family, name)
    if family.last_third:
        late = beside(family, late=True)
        blocks += [
            heading(f"{name}: benchmarks, mean of the last third of training"),
            *score_table(family, family.last_third, late),
            *explained("The last third of training"),
        ]
        if late:
            blocks.append(Text(f"Beside them: {paper_words(late)}."))
    if family.tasks and with_budgets(family):
        alt = f"Score on each benchmark against tokens on {name}"
        blocks += [
            heading(f"{name}: benchmarks during training"),
            *explained("Benchmarks during training"),
            Picture(f"benchmarks_{name}", during_training(family, analysis.style), alt),
        ]
    return blocks


def kappas(family: Benchmarks) -> set[float]:
    return {arm.run.kappa_bits for arm in family.arms if arm.run.kappa_bits is not None}


def beside(family: Benchmarks, late: bool = False) -> PaperTable | None:
    """The paper's table to compare with, if one has a κ and a benchmark in common."""
    first = family.baseline or family.arms[0]
    names = [task.name for task in family.tasks]
    tokens = family.arms[0].trained_tokens
    return nearest(read_tables(), first.parameters, tokens, kappas(family), names, late)


def score_cell(score: Score | None, adjusted_level: float = -1.0) -> Cell:
    """A cell such as 0.400 (0.308 to 0.498) or 0.400 ± 0.020; **+33.33 % better**, or +33.33 %
    (better, one seed), or +3.33 % (not decided, up to 0.05). A star marks what counts with a
    p-value of at most ``adjusted_level``.
    """
    if score is None:
        return MISSING
    cell = estimate(score.value, 3)
    if score.interval:
        cell = replace(cell, error=f"({between(score.interval, 3)})")
    if not score.verdict:
        return cell
    relative = "–" if score.relative is None else f"{signed(score.relative, 2)} %"
    word = score.verdict
    if score.differs and not score.counts:
        word += ", one seed"
    elif score.difference and word == "not decided":
        word += f", up to {score.difference.furthest:.2g}"
    star = score.counts and score.difference and score.difference.p_value <= adjusted_level
    return replace(cell, verdict=Verdict(word, score.counts, relative, star=bool(star)))


def paper_cells(family: Benchmarks, paper: PaperTable, task: Task) -> Entries:
    """Cells of the paper's baseline and Free Transformers with a κ that arms here have, by head."""
    scores = paper_scores(paper, task)
    cells = {"baseline": Cell(number(scores.baseline, 3)) if scores else MISSING}
    for kappa in sorted(paper.kappas & kappas(family)):
        cell = MISSING
        if scores:
            change = Verdict("", change=f"{signed(scores.relative[kappa], 2)} %")
            cell = Cell(number(scores.free[kappa], 3), verdict=change)
        cells[f"κ = {fraction(kappa)}"] = cell
    return {f"paper, {paper.name}: {head}": cell for head, cell in cells.items()}


def score_table(
    family: Benchmarks, scores: Scores, paper: PaperTable | None, gold: Scores | None = None
) -> list[Table]:
    """Rows of each task: its own metric, and the bits of its right answers, which come first for
    models whose accuracy is near chance.
    """
    rows = list[Entries]()
    for task in (task for task in family.tasks if task.key in scores):
        lower = "" if task.higher_is_better else " (lower is better)"
        of_paper = paper_cells(family, paper, task) if paper else {}
        found = [task_row(family, task, task.metric + lower, scores) | of_paper]
        if gold and task.key in gold:
            missing = dict.fromkeys(of_paper, MISSING)  # the paper has no bits of answers
            found.append(task_row(family, task, GOLD, gold) | missing)
        rows += reversed(found) if family.arms[0].parameters < SMALL else found
    return table(rows)


def task_row(family: Benchmarks, task: Task, metric: str, scores: Scores) -> Entries:
    return {
        "benchmark": task.name,
        "metric": metric,
        "shots": Cell(str(task.shots)),
        "documents": Cell(
            f"{task.documents:,}" + (f" in {task.clusters:,} clusters" if task.clusters else "")
        ),
        "version": Cell(task.version),
        **{
            arm_head(arm): score_cell(scores[task.key].get(arm.name), family.adjusted_level)
            for arm in family.arms
        },
    }


def paper_scores(paper: PaperTable, task: Task) -> PaperScores | None:
    """The paper's scores on a task; None if it has none, or by another metric."""
    scores = paper.scores.get(task.name)
    return scores if scores and scores.metric == task.metric else None


def arm_head(arm: Arm) -> str:
    return arm.name + ("" if arm.baseline else f", κ = {arm.first.kappa}")


def paper_notes(family: Benchmarks, paper: PaperTable | None) -> list[str]:
    """How far the paper's models are from these, and what is not put beside them."""
    if not paper:
        common = {task.name for task in family.tasks} & {n for t in read_tables() for n in t.scores}
        why = "no Free Transformer has one of their κ" if common else "they lack these benchmarks"
        alone = f"The paper’s tables are not put beside these benchmarks: {why}."
        return [alone] if family.tasks else []
    ours = family.baseline or family.arms[0]
    said = [
        f"Beside them: {paper_words(paper)}, the nearest in size and training. Here: "
        f"{magnitude(ours.parameters)} parameters, {magnitude(ours.trained_tokens)} tokens. The "
        "paper gives no errors and one model per arm, so none of its differences is claimed here. "
        "[Its tables](../../docs/paper/README.md)"
    ]
    others = [
        f"{task.name} ({task.metric} here, {paper.scores[task.name].metric} there)"
        for task in family.tasks
        if task.name in paper.scores and not paper_scores(paper, task)
    ]
    if others:
        said.append(f"Not compared with the paper, because the metric differs: {listed(others)}.")
    return said


def paper_words(paper: PaperTable) -> str:
    late = ", mean of the last third" if paper.late else ""
    sizes = f"{magnitude(paper.parameters)} parameters, {magnitude(paper.tokens)} tokens"
    return f"{paper.name} of the paper ({sizes}{late})"


def exceptions(family: Benchmarks) -> list[str]:
    """Prompts that were cut, and runs that were scored in another way than the first."""
    cuts, others = [], []
    for task in family.tasks:
        cut = []
        for run in (run for run in family.runs if task.key in suite_of(run).tasks):
            if scored_alike(run, task):
                cut.append(suite_of(run).tasks[task.key].truncated)
            else:
                others.append(f"{task.name} of {run.name}")
        if any(cut):
            ends = dict.fromkeys(f"{number:,}" for number in (min(cut), max(cut)))
            cuts.append(f"{task.name}, {' to '.join(ends)} requests a run")
    said = []
    if cuts:
        said.append(f"Prompts longer than the context were cut from the left: {'; '.join(cuts)}.")
    if others:
        said.append(
            "Left out, because their data, documents, shots, metric or version of the task differ "
            f"from the others: {listed(others)}. `dvc repro` scores all alike."
        )
    return said


def monte_carlo(family: Benchmarks) -> list[Table]:
    """Mean error (nats) of K samples and share of undecided documents, by task, if known."""
    free = [arm for arm in family.arms if arm.samples_noise]
    rows = list[Entries]()
    for task in family.tasks:
        cells: Entries = {arm.name: monte_carlo_cell(arm, task) for arm in free}
        if any(cell != MISSING for cell in cells.values()):
            rows.append({"benchmark": task.name, **cells})
    return table(rows)


def monte_carlo_cell(arm: Arm, task: Task) -> Cell:
    results = [suite_of(run).tasks[task.key] for run in arm.runs if scored_alike(run, task)]
    errors = [result.mc_error for result in results if result.mc_error is not None]
    shares = [result.undecided for result in results if result.undecided is not None]
    parts = []
    if errors:
        parts.append(f"± {fmean(errors):.3f}")
    if shares:
        parts.append(f"{100 * fmean(shares):.1f} %")
    return Cell(", ".join(parts)) if parts else MISSING


def sampled_blocks(family: Benchmarks, name: str) -> list[Block]:
    blocks: list[Block] = []
    for each in sampled_tasks(family):
        first = not blocks
        blocks.append(heading(f"{name}: {each.samples} answers to each prompt of {each.task.name}"))
        if first:
            blocks += explained("Several answers to a prompt")
        blocks += table(
            {
                "arm": arm_head(row.arm),
                "what varies": row.varies,
                "temperature": Cell(f"{row.sampling.temperature:g}"),
                **{
                    f"pass@{k}": score_cell(score, family.adjusted_level)
                    for k, score in row.pass_at.items()
                },
                "distinct answers": estimate(row.distinct, 3),
            }
            for row in each.rows
        )
    return blocks


def scoring_words(families: list[Benchmarks]) -> list[str]:
    """How Free Transformers were scored, and baselines with a random prefix, if there are any."""
    arms = [arm for family in families for arm in family.arms]
    suites = [suite_of(arm.first) for arm in arms if not arm.baseline]
    ways = [SCORING[suite.scoring].format(suite.samples) for suite in suites[:1]]
    if any(arm.run.random_prefix for arm in arms):
        ways.append("with a random prefix, averaged in probability over as many prefixes")
    if not ways:
        return []
    return [
        "The log-probability of an answer, log P(answer | prompt), is exact for a baseline and, "
        f"for a Free Transformer, {listed(ways)}. Rolling likelihoods are filtering bounds."
    ]


def during_training(benchmarks: Benchmarks, style: Mapping[str, Style]) -> Figure:
    """Plot score against tokens: a dot per seed, a line through means; hollow if not annealed."""
    arms, tasks = with_budgets(benchmarks), benchmarks.tasks
    columns = min(COLUMNS, len(tasks))
    width = 11 / columns if columns > 2 else 4.4
    figure, grid = panels(len(tasks), columns, (width, 2.3), 0.9)
    runs = [run for arm in arms for run in arm.runs]
    tokens = sorted({budget.tokens for run in runs for budget in suite_of(run).budgets})
    ticks = spaced(log_places(tokens))
    ticks = ticks[::-1][:: -(-len(ticks) // TICKS)][::-1]  # with the last
    for i, (axes, task) in enumerate(zip(grid, tasks, strict=True)):
        for arm in arms:
            draw_scores(axes, arm, task, style[arm.name])
        last = i + columns >= len(tasks)  # of its column
        label_axes(axes, "", "tokens (million)" if last else "", "")
        axes.set_title(task.name, loc="left", fontsize=10, fontweight="bold")
        lower = "" if task.higher_is_better else " ↓"
        axes.set_title(f"{task.metric}{lower}", loc="right", fontsize=8, color=GREY)
        millions(axes, ticks)
        axes.set_xlim(0.9 * tokens[0], 1.1 * tokens[-1])
        axes.yaxis.set_major_locator(MaxNLocator(4))
        axes.tick_params(labelsize=8)
    looks = {arm.name: line(arm, style[arm.name]) | dots(style[arm.name], 3.2) for arm in arms}
    add_legend(figure, looks | ANNEALING, COLUMNS if columns > 2 else 2)
    return figure


def draw_scores(axes: Axes, arm: Arm, task: Task, style: Style) -> None:
    for annealed, kind, face in ((False, ":", "white"), (True, "-", style["color"])):
        scores: dict[float, list[float]] = defaultdict(list)
        for budget in (budget for run in arm.runs for budget in suite_of(run).budgets):
            if budget.annealed == annealed and task.key in budget.tasks:
                scores[budget.tokens].append(budget.tasks[task.key].value)
        tokens, look = sorted(scores), line(arm, style)
        axes.plot(tokens, [fmean(scores[x]) for x in tokens], kind, **look)
        each = [(x, score) for x in tokens for score in scores[x]]
        seeds = look | dots(style, 3.2) | {"mew": 0.8, "mfc": face, "ls": ""}
        axes.plot([x for x, _ in each], [score for _, score in each], **seeds)


def with_budgets(benchmarks: Benchmarks) -> list[Arm]:
    return [arm for arm in benchmarks.arms if all(suite_of(run).budgets for run in arm.runs)]


def line(arm: Arm, style: Style) -> Style:
    """An arm's line: the plain baseline's is thicker, and over the others."""
    width, order = (2.4, 3) if arm.plain else (1.1, 2)
    return {"color": style["color"], "lw": width, "zorder": order}
