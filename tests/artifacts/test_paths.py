"""Where stages leave what others find: DVC and .gitignore name the same places."""

from pathlib import Path

from pipelines.host import paths


def test_every_stage_has_its_folders():
    run = ("smoke", "free")
    assert [
        paths.tokens_folder("text"),
        paths.corpus_folder("text"),
        paths.checkpoint_path(*run),
        paths.checkpoint_path(*run, 520),
        paths.resume_folder(*run),
        paths.published_journal(*run),
        paths.results_folder(*run),
        paths.report_folder("smoke"),
    ] == [
        Path("data/tokens/text"),
        Path("data/corpus/text"),
        Path("checkpoints/smoke/free/last.ckpt"),
        Path("checkpoints/smoke/free/520.ckpt"),
        Path("resume/smoke/free"),
        Path("checkpoints/smoke/free/tracking.jsonl"),
        Path("results/smoke/free"),
        Path("report/smoke"),
    ]
