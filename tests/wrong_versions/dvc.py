"""Wrong versions of dvc.yaml: what a stage depends on left out, so that stale results stay."""

from tests.wrong_versions import Wrong

CODE = "test_layers.py::test_all_code_of_a_stage_is_among_what_dvc_runs_it_again_for"
READS = "test_layers.py::test_dvc_runs_a_stage_again_for_all_that_it_reads"

WRONG = [
    Wrong(
        "data made without its code in DVC",
        "dvc.yaml",
        "        - data/inputs/code/pipelines/data\n",
        "",
        CODE,
        "",
    ),
    Wrong(
        "tokens made without the code of overlap in DVC",
        "dvc.yaml",
        "        - data/inputs/code/pipelines/tokenize\n",
        "",
        CODE,
        "",
    ),
    Wrong(
        "token shards tokenized by code that DVC does not know",
        "dvc.yaml",
        "        - data/inputs/code/pipelines/artifacts/tokens\n"
        "        - data/inputs/code/pipelines/common/splitmix64.py\n"
        "        - data/inputs/code/ftmodel/synthetic\n",
        "        - data/inputs/code/pipelines/common/splitmix64.py\n"
        "        - data/inputs/code/ftmodel/synthetic\n",
        CODE,
        "",
    ),
    Wrong(
        "training without its tokens in DVC",
        "dvc.yaml",
        "        - data/tokens/${item.data}\n        - ${item.parent} # the model",
        "        # the model",
        READS,
        "",
    ),
    Wrong(
        "training without its parent in DVC",
        "dvc.yaml",
        "        - ${item.parent} # the model",
        "        # the model",
        "config/test_parents.py::test_dvc_knows_the_path_of_every_parent",
        "",
    ),
    Wrong(
        "training without the order of its windows in DVC",
        "dvc.yaml",
        "        - data/inputs/code/pipelines/common/splitmix64.py\n"
        "        - data/inputs/code/ftmodel/model\n",
        "        - data/inputs/code/ftmodel/model\n",
        CODE,
        "",
    ),
    Wrong(
        "training without its precision in DVC",
        "dvc.yaml",
        "compute.precision, ",
        "",
        READS,
        "",
    ),
    Wrong(
        "evaluation without the training curve in DVC",
        "dvc.yaml",
        "        - results/${name}/${key}/curve.csv\n        - data/tokens/${item.data}\n",
        "        - data/tokens/${item.data}\n",
        READS,
        "",
    ),
    Wrong(
        "evaluation without its tokens in DVC",
        "dvc.yaml",
        "        - data/tokens/${item.data}\n        - data/inputs/code/pipelines/evaluate\n",
        "        - data/inputs/code/pipelines/evaluate\n",
        READS,
        "",
    ),
    Wrong(
        "evaluation without how documents are packed in DVC",
        "dvc.yaml",
        "        - data/inputs/code/pipelines/evaluate\n"
        "        - data/inputs/code/pipelines/artifacts\n",
        "        - data/inputs/code/pipelines/evaluate\n",
        CODE,
        "",
    ),
    Wrong(
        "evaluation without the target task in DVC",
        "dvc.yaml",
        "        - data/inputs/code/ftmodel/synthetic\n      params: [name, evaluation]\n",
        "      params: [name, evaluation]\n",
        CODE,
        "",
    ),
    Wrong(
        "benchmarks without how they are scored in DVC",
        "dvc.yaml",
        "        - data/inputs/code/ftmodel/inference\n"
        "        - data/inputs/code/ftmodel/analysis/statistics.py\n",
        "        - data/inputs/code/ftmodel/analysis/statistics.py\n",
        CODE,
        "",
    ),
    Wrong(
        "benchmarks without their tokens in DVC",
        "dvc.yaml",
        "        - data/tokens/${item}\n",
        "",
        READS,
        "",
    ),
    Wrong(
        "benchmarks without the definitions of tasks in DVC",
        "dvc.yaml",
        "        - tasks\n",
        "",
        READS,
        "",
    ),
    Wrong(
        "the report without the settings of evaluation in DVC",
        "dvc.yaml",
        "evaluation, ",
        "",
        READS,
        "",
    ),
    Wrong(
        "the report without the metadata of tokens in DVC",
        "dvc.yaml",
        "      - data/tokens # metadata and overlap of texts\n",
        "",
        READS,
        "",
    ),
    Wrong(
        "files of locks, which no remote has, among what the report depends on",
        ".dvcignore",
        "/data/**/*.lock\n",
        "",
        "test_reruns.py::test_what_a_stage_leaves_beside_its_outputs_runs_nothing_again",
        "",
    ),
]
