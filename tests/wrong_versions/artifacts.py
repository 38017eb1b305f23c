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
    Wrong(
        "tied weights untied when a model is read",
        "artifacts/checkpoint.py",
        "model.load_state_dict(weights)",
        "model.load_state_dict(weights, assign=True)",
        "artifacts/test_checkpoint.py::test_a_model_is_read_back_whole_and_tied_as_it_was",
        "pipelines",
    ),
    Wrong(
        "a model read in training mode",
        "artifacts/checkpoint.py",
        "return model.eval(), manifest",
        "return model, manifest",
        "artifacts/test_checkpoint.py::test_a_model_is_read_back_whole_and_tied_as_it_was",
        "pipelines",
    ),
    Wrong(
        "a threshold of 0 reported as a baseline",
        "artifacts/run_results.py",
        "return self.run.kappa_bits is None",
        "return not self.run.kappa_bits",
        "artifacts/test_run_results.py::test_a_run_without_a_threshold_is_a_baseline_and_one_of_0_is_not",
        "pipelines",
    ),
    Wrong(
        "a threshold of 0 written as none",
        "artifacts/run_results.py",
        '"–" if self.run.kappa_bits is None else',
        '"–" if not self.run.kappa_bits else',
        "artifacts/test_run_results.py::test_a_run_without_a_threshold_is_a_baseline_and_one_of_0_is_not",
        "pipelines",
    ),
    Wrong(
        "characters of a token counted for its bytes",
        "artifacts/tokens/byte_tokenizer.py",
        "np.array([len(text) for text in self.bytes_of], np.int64)",
        'np.array([len(text.decode(errors="replace")) for text in self.bytes_of], np.int64)',
        "artifacts/test_byte_tokenizer.py::test_any_bytes_come_back",
        "pipelines",
    ),
]
