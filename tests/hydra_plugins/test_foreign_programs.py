"""A program that uses Hydra and is not ours does the same where Hydra finds our plugins."""

import os
import subprocess
import sys
import sysconfig

from tests import ROOT
from tests.support.mutants import rejects

PROGRAM = """
import sys
sys.path += sys.argv[1:]
from dataclasses import dataclass
from hydra import compose, initialize
from hydra.core.config_store import ConfigStore

@dataclass
class Settings:
    debug: bool = False
    rate: float = 1

ConfigStore.instance().store("settings", Settings)
with initialize(version_base=None):
    config = compose("settings", ["debug=on", "rate=2"])
print(config)
for value in ("yes", 0, 2, "maybe", 10**400):
  for key in ("debug", "rate"):
    try:
        config[key] = value
        print(config)
    except Exception as error:
        print(type(error).__name__, str(error)[:80])
print("hydra_plugins.schema" in sys.modules, file=sys.stderr)
"""


def outcome(*folders):
    """What the program prints, and whether Hydra found our plugins in these folders. Without -S it
    would find what the environment has installed in editable mode.
    """
    command = [sys.executable, "-I", "-S", "-c", PROGRAM, *folders]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=os.sep)
    return done.stdout, done.stderr.strip()


@rejects(
    "BOOLEAN = (bool",
    "__import__('omegaconf').BooleanNode._validate_and_convert_impl = lambda self, value: value\n"
    "BOOLEAN = (bool",
    "OmegaConf's conversion of booleans changed in every program",
)
def test_our_plugins_change_no_other_program():
    packages = sysconfig.get_paths()["purelib"]
    without, ours = outcome(packages), outcome(packages, str(ROOT))
    assert (without[1], ours[1]) == ("False", "True")
    assert without[0] == ours[0] and "'debug': True" in ours[0]
