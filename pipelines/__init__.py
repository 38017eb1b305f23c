import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]  # the checkout
if not (ROOT / "dvc.yaml").exists():  # a wheel was installed
    words = "`pipelines` works in a checkout of the project alone: clone it, and type `make` there"
    if Path(sys.argv[0]).name in ("-m", "ftlab"):  # one of its commands
        print(f"error: {words}", file=sys.stderr)
        raise SystemExit(2)
    raise ImportError(words)
