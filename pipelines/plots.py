"""Draw what `dvc plots show` draws, on a page that needs no network.

python -m pipelines.plots

`dvc plots show` alone writes a page that loads Vega, which draws it, from the network. Here Vega is
in the page, by the package vl-convert-python, which brings it along. Writes dvc_plots/index.html;
further arguments go to `dvc plots show`.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from pipelines.common import errors
from pipelines.common.errors import UserError

VEGA_LITE = "5.20"  # of the major version that .dvc/plots/ is written for
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Training curves</title>
<script>{vega}</script>
</head>
<body>
<main>
{{plot_divs}}
</main>
</body>
</html>
"""


def main() -> None:
    summary, _, details = str(__doc__).partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="python -m pipelines.plots", description=summary, epilog=details
    )
    _, arguments = parser.parse_known_args()
    try:
        import vl_convert
    except ImportError:
        raise UserError(
            "vl-convert-python is not installed: `pip install -c constraints.txt "
            "vl-convert-python`; or see the curves in the report"
        ) from None
    vega = vl_convert.javascript_bundle(vl_version=VEGA_LITE)  # type: ignore[call-arg]
    with tempfile.TemporaryDirectory() as folder:
        template = Path(folder) / "plots.html"
        template.write_text(PAGE.format(vega=vega))
        command = ["dvc", "plots", "show", "--html-template", str(template), *arguments]
        sys.exit(subprocess.run(command).returncode)


if __name__ == "__main__":
    errors.run(main)
