"""Every wrong version, the slow ones among them, with the test that notices it; and the survivors.

    python -m tests.mutants 'KL encoder'

Exit code 1 says that some survive.
"""

import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory

from pipelines import cli
from tests.support.bench import Bench, noticed
from tests.support.warm_python import WarmPython
from tests.wrong_versions import wrong_versions

AT_ONCE = 2


def run(bench, wrong, folder):
    """A wrong version, and what its test said if it did not notice it."""
    try:
        result = bench.run_wrong(wrong, folder)
    except AssertionError as error:  # there is no such text to replace
        return wrong, str(error)
    rmtree(folder)
    return wrong, "" if noticed(result) else result.stdout


def main(parts):
    chosen = [w for w in wrong_versions() if not parts or any(part in w.name for part in parts)]
    survivors = []
    with (
        closing(WarmPython()) as warm,
        TemporaryDirectory() as folder,
        ThreadPoolExecutor(AT_ONCE) as pool,
    ):
        bench = Bench(Path(folder, "right"), warm.command)
        right = bench.run(bench.folder, sorted({wrong.noticed_by for wrong in chosen}))
        if right.returncode:
            sys.exit(f"{right.stdout}\nerror: tests fail on the right version, too")
        folders = (Path(folder, str(i)) for i in range(len(chosen)))
        for wrong, said in pool.map(partial(run, bench), chosen, folders):
            print(f"{wrong.name} → {'SURVIVED ' * bool(said)}tests/{wrong.noticed_by}", flush=True)
            if said:
                survivors.append(wrong.name)
                print(said, file=sys.stderr)
    print(f"{len(chosen)} wrong versions")
    print("\n".join(f"survivor: {name}" for name in survivors) or "survivors: none")
    sys.exit(bool(survivors))


if __name__ == "__main__":
    cli.run("mutants")
