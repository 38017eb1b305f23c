"""docs/settings.md has every setting, as the schema has it."""

import re

from pipelines.config import data, schema
from tests.docs.settings_page import GROUPS, PAGE, groups_within, page
from tests.support.mutants import rejects

# of groups; by Hydra; null
WITHOUT_A_TABLE = {schema.Preset, schema.Training, schema.DesignChanges}


@rejects("Optim.beta2: 95, «at_least→above»", "a limit that no page states")
def test_the_page_is_what_the_schema_says():
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m tests.docs.settings_page"


def test_every_group_has_a_table():
    kinds = {*groups_within(schema.Experiment), *data.sources().values(), *data.KINDS.values()}
    assert kinds - WITHOUT_A_TABLE <= {*GROUPS.values()}


def test_every_setting_has_a_meaning():
    assert not re.search(r"`: (<br>|\|$)| \|  \|$", page(), re.MULTILINE)
