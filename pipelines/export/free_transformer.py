"""A Free Transformer as a folder with its own code, for AutoModelForCausalLM with
``trust_remote_code``.

The code is the installed ftmodel/, as far as the model needs it, and two modules of this package,
with imports made relative.
"""

import re
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

from ftmodel.model.free_transformer import FreeTransformer
from pipelines.artifacts.tokens.shards import Shards
from pipelines.export.configuration_free_transformer import FreeTransformerConfig
from pipelines.export.hugging_face import special_tokens, tokenizer, write_files

AUTO = {
    "AutoConfig": "configuration_free_transformer.FreeTransformerConfig",
    "AutoModelForCausalLM": "modeling_free_transformer.FreeTransformerForCausalLM",
}
COPIED = """
'''transformers 4 copies the modules that such lines of this very file name:
{}
'''
"""
OURS = re.compile(r"^( *from )((?:ftmodel\.\w+|pipelines\.export)\.(\w+)) import", re.MULTILINE)


def configuration(model: FreeTransformer, shards: Shards) -> FreeTransformerConfig:
    return FreeTransformerConfig(
        shards.metadata.vocab_size,
        **asdict(model.config),
        **special_tokens(shards),
        architectures=["FreeTransformerForCausalLM"],
        auto_map=AUTO,
        dtype=str(model.embedding.weight.dtype).removeprefix("torch."),
    )


def modules() -> dict[str, str]:
    """Texts of the adapter and of our modules behind it, by file name, with relative imports."""
    texts: dict[str, str] = {}
    waiting = ["pipelines.export.modeling_free_transformer"]
    while waiting:
        name = waiting.pop()
        spec = find_spec(name)
        assert spec and spec.origin, name
        text = Path(spec.origin).read_text(encoding="utf-8")
        file = f"{name.rpartition('.')[2]}.py"
        texts[file] = OURS.sub(r"\1.\3 import", text)
        waiting += [other for _, other, stem in OURS.findall(text) if f"{stem}.py" not in texts]
    copied = "\n".join(f"from .{file.removesuffix('.py')} import" for file in sorted(texts))
    for reference in AUTO.values():
        texts[f"{reference.partition('.')[0]}.py"] += COPIED.format(copied)
    return texts


def write(folder: Path, model: FreeTransformer, shards: Shards, card: str) -> None:
    weights = {f"model.{name}": tensor.contiguous() for name, tensor in model.state_dict().items()}
    if model.config.tied:
        del weights["model.readout.weight"]
    words = tokenizer(shards, model.config.context)
    write_files(folder, configuration(model, shards), weights, words, card)
    for name, text in modules().items():
        (folder / name).write_text(text, encoding="utf-8")
