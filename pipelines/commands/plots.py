"""Draw the training curves with DVC, without a network.

    ftlab plots

`dvc plots show` alone writes a page that loads Vega, the drawing library, from the network. Here
Vega is in the page (from the package vl-convert-python). Writes dvc_plots/index.html.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from pipelines.host.command_line import command
from pipelines.host.dvc import dvc_command

PLOTS_PAGE = """<!doctype html>
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


@command(__doc__)
def main() -> None:
    import vl_convert  # not above: cli says which extra to install

    vega = vl_convert.javascript_bundle()  # type: ignore[call-arg]
    with tempfile.TemporaryDirectory() as folder:
        template = Path(folder) / "plots.html"
        template.write_text(PLOTS_PAGE.format(vega=vega), encoding="utf-8")
        command = dvc_command("plots", "show", "--html-template", str(template))
        sys.exit(subprocess.run(command).returncode)
