"""Texts: what is said of their data, and samples of what models write."""

from pipelines.report.sections.what_z_does import corpora, text_samples
from tests.support.results import analysis_of, change, in_folder, run, write_experiment


def test_data_and_samples_are_those_of_texts(tmp_path):
    runs = {"sums": run(), "base": run("text"), "none": run("text", kappa=0.5)}
    write_experiment(tmp_path, runs, {})
    change(tmp_path, "none", "details.json", generations=[])
    analysis = analysis_of(tmp_path)
    with in_folder(tmp_path):
        head, words = corpora(analysis)
    assert head.markdown == "### text"
    train = "- train: 1,200 documents, 34,567 tokens, 1 byte\n- validation: "
    assert words.markdown.startswith(train)
    head, *samples = text_samples(analysis)
    written = "\n\x04 end ``` of</script><img src=x onerror=alert(1)>a"
    assert head.markdown == "### base"
    assert [each.text for each in samples] == ["if a <b> &", written, "for", written]
