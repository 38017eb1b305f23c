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
    Wrong(
        "n-grams over the border of two chunks lost",
        "tokenize/overlap.py",
        "ids[start : start + CHUNK + self.n - 1]",
        "ids[start : start + CHUNK]",
        "tokenize/test_overlap.py::test_it_finds_what_sets_of_tuples_find",
        "pipelines",
    ),
    Wrong(
        "the training part looked up in the held-out part",
        "tokenize/build.py",
        'for split in ("validation", "train")',
        'for split in ("train", "validation")',
        "tokenize/test_build.py::test_overlap_with_the_training_part_is_written_and_said",
        "pipelines",
    ),
    Wrong(
        "a tokenizer trained on the first part alone",
        "tokenize/vocabulary.py",
        "share = left // (len(parts) - number)",
        "share = left",
        "tokenize/test_build.py::test_a_tokenizer_is_trained_on_the_start_of_every_part",
        "pipelines",
    ),
    Wrong(
        "a tokenizer trained on held-out text, too",
        "tokenize/build.py",
        '{part: sha256s[part] for part in parts["train"]}',
        "sha256s",
        "tokenize/test_build.py::test_a_tokenizer_is_not_trained_on_held_out_text",
        "pipelines",
    ),
    Wrong(
        "an id of any size",
        "tokenize/vocabulary.py",
        "if max(ids, default=0) >= LARGEST_VOCABULARY:",
        "if False:",
        "tokenize/test_vocabulary.py::test_an_id_beyond_any_vocabulary_is_refused",
        "pipelines",
    ),
]
