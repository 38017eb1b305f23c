"""Wrong versions of pipelines/tokenize."""

from tests.wrong_versions import Wrong

WRONG = [
    Wrong(
        "end of text after a document",
        "tokenize/encode.py",
        "flat += [tokens.end_of_text, *ids] if first else ids",
        "flat += [*ids, tokens.end_of_text] if first else ids",
        "tokenize/test_build.py::test_shards_give_the_corpus_back_and_count_it",
        "pipelines",
    ),
    Wrong(
        "the version of the code in every token file",
        "tokenize/build.py",
        "[*vocabulary, *layout, part_sha256]",
        '[*vocabulary, *layout, part_sha256, code_version("tokenize")]',
        "tokenize/test_build.py::test_the_version_of_the_code_is_in_no_byte_of_what_it_makes",
        "pipelines",
    ),
    Wrong(
        "n-grams across documents",
        "tokenize/overlap.py",
        "inside[at[(at >= 0) & (at < len(inside))]] = False",
        "pass",
        "tokenize/test_overlap.py::test_an_ngram_over_the_border_of_two_documents_is_none",
        "pipelines",
    ),
    Wrong(
        "characters of a document counted for its bytes",
        "tokenize/encode.py",
        "return chunk, starts, size",
        'return chunk, starts, sum(len(text.decode(errors="replace")) for _, text, _ in batch)',
        "tokenize/test_build.py::test_shards_give_the_corpus_back_and_count_it",
        "pipelines",
    ),
]
