"""Resume checkpoints of another version of a run: set aside, found again, never deleted.

resume/<experiment>/<run>/aside/<spec hash>/… is what another specification (code, settings, data or
version of torch) has left, laid out as in resume/<experiment>/<run>/ itself.
"""

from contextlib import suppress
from pathlib import Path

from pipelines.artifacts.checkpoint import Manifest, peek, resume_checkpoints
from pipelines.train.core.manifest import differences

ASIDE = "aside"


def sort_out(root: Path, manifest: Manifest) -> None:
    """Set checkpoints of other specifications aside in a run's folder of resume/, and bring back
    those of this one. Damaged checkpoints stay where they are.
    """
    others: dict[str, list[tuple[Path, Manifest]]] = {}
    for path in resume_checkpoints(root):
        other = peek(path)
        if other and other.spec_hash != manifest.spec_hash:
            others.setdefault(other.spec_hash, []).append((path, other))
    for spec_hash, checkpoints in others.items():
        paths = [path for path, _ in checkpoints]
        folder = free_folder(root, spec_hash, paths)
        for path in paths:
            move(path, folder / path.relative_to(root))
        theirs = checkpoints[0][1]
        what = ", ".join(differences(theirs, manifest))
        revision = f" (git revision {theirs.git_revision})" if theirs.git_revision else ""
        print(
            f"{manifest.run_name}: {len(paths)} checkpoints belong to another specification: "
            f"{what}. Set aside, not removed: training continues from them once that is "
            f"restored{revision}; by hand: mv {folder}/* {root}/",
            flush=True,
        )
    bring_back(root, manifest)


def free_folder(root: Path, spec_hash: str, paths: list[Path]) -> Path:
    """A folder for these checkpoints of a specification in which they overwrite nothing."""
    folder, n = root / ASIDE / spec_hash, 1
    while any((folder / path.relative_to(root)).exists() for path in paths):
        n += 1
        folder = root / ASIDE / f"{spec_hash}-{n}"
    return folder


def bring_back(root: Path, manifest: Manifest) -> None:
    for folder in sorted(root.glob(f"{ASIDE}/{manifest.spec_hash}*")):
        targets = {path: root / path.relative_to(folder) for path in resume_checkpoints(folder)}
        missing = [path for path, target in targets.items() if not target.exists()]
        for path in missing:
            move(path, targets[path])
        for empty in (folder, folder.parent):
            with suppress(OSError):  # it is not
                empty.rmdir()
        if missing:
            print(
                f"{manifest.run_name}: {len(missing)} checkpoints are of this specification again: "
                f"brought back from {folder}",
                flush=True,
            )


def move(path: Path, target: Path) -> None:
    """Move a checkpoint to another folder, and remove the old folder if that is empty then."""
    target.parent.mkdir(parents=True, exist_ok=True)
    path.rename(target)
    if not any(path.parent.iterdir()):
        path.parent.rmdir()
