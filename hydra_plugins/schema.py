"""The types of conf/, so that composition fills in every default and refuses what no type has.

Hydra imports what lies in this folder, in pipelines.compose as in `dvc exp run`: both write the same
params.yaml, and a changed default reaches DVC through it. The nodes:

    /schema        the whole experiment; conf/config.yaml starts from it
    /source/<name> a data entry of that source (conf/data/*.yaml)
    /part/<name>   a part of a text (conf/data/*.yaml, conf/text/*.yaml)
"""

from hydra.core.config_store import ConfigStore

from pipelines.config.data import KINDS, SOURCES
from pipelines.config.schema import Experiment

store = ConfigStore.instance()
store.store("schema", Experiment)
for name, data in SOURCES.items():
    store.store(name, data(source=name), group="source")
for name, part in KINDS.items():
    store.store(name, part, group="part")
