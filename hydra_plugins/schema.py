"""The types of conf/: composition fills in all their defaults and refuses keys they do not have.

Hydra imports what lies in this folder, in `ftlab compose` as in `dvc exp run`, and in no other
program: it is not installed. So both write the same params.yaml, with every setting in it, and DVC
notices a changed default. Structured configs are the simplest way to do that: defaults are there
before overrides, which need no `+`; entries of typed dictionaries (`models`, `arms`, `runs`,
`suite.tasks`) get theirs from Hydra; the dataclasses stay what Python builds. Entries of `data` and
parts of texts have several types, so each file names its own in its defaults list.

    schema           the whole experiment, from which conf/config.yaml starts
    /source/<name>   an entry of `data` with this source
    /part/<name>     a part of a text of this kind
"""

from hydra.core.config_store import ConfigStore

from pipelines.config.data import KINDS, sources
from pipelines.config.schema import Experiment

store = ConfigStore.instance()
store.store("schema", Experiment)
for name, data in sources().items():
    store.store(name, data(source=name), group="source")
for name, part in KINDS.items():
    store.store(name, part, group="part")
