"""Where stages leave what others find: DVC and .gitignore name the same places."""

from pathlib import Path

from pipelines.host import files


def test_every_stage_has_its_folders():
    run = ("smoke", "free")
    assert [
        files.tokens_folder("text"),
        files.corpus_folder("text"),
        files.checkpoint_path(*run),
        files.checkpoint_path(*run, 520),
        files.resume_folder(*run),
        files.published_journal(*run),
        files.results_folder(*run),
        files.report_folder("smoke"),
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
