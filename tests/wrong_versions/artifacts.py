"""Wrong versions of pipelines/artifacts."""

from tests.wrong_versions import Wrong

WRONG = [
    Wrong(
        "windows off by one after the first token file",
        "artifacts/tokens/shards.py",
        "first = offset - self.starts[file]",
        "first = max(0, offset - self.starts[file] - (file > 0))",
        "artifacts/test_shards.py::test_a_window_that_crosses_files_has_the_tokens_of_both",
        "pipelines",
    ),
    Wrong(
        "bytes that are not UTF-8 as ids",
        "artifacts/tokens/byte_tokenizer.py",
        "[self.byte_ids[byte] for byte in segment]",
        "list(segment)",
        "artifacts/test_byte_tokenizer.py::test_any_bytes_come_back",
        "pipelines",
    ),
    Wrong(
        "reconstruction cross-entropy as the bound of a Free Transformer",
        "artifacts/results.py",
        "bound = self.nll or self.iwae",
        "bound = self.nll or self.ce",
        "report/test_verdicts.py::test_verdict_from_bounds_and_errors",
        "pipelines",
    ),
    Wrong(
        "the same noise for all chunks of a document",
        "artifacts/packing.py",
        "p.document, p.index)",
        "p.document, 0)",
        "artifacts/test_packing.py::test_noise_of_a_chunk_does_not_depend_on_its_company",
        "pipelines",
    ),
]
