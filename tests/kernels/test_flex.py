"""FlexAttention against the dense mask. On a CPU it computes all scores, without its kernels."""

from types import SimpleNamespace

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, create_mask

from ftmodel.kernels import attention
from ftmodel.model.objective import training_loss
from tests.support.mutants import rejects

LAYOUTS = [(16,), (5, 1, 7, 3), (4, 4, 8), (1,) * 6, (9, 2, 7, 1)]
TENSORS = [
    *("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices"),
    *("q_num_blocks", "q_indices", "full_q_num_blocks", "full_q_indices"),
]


def numbered(lengths):
    """Documents (2, T) of these lengths, and one document alone."""
    documents = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
    return torch.stack([documents, torch.zeros_like(documents)])


def dense(documents, causal):
    same = documents[:, None, :, None] == documents[:, None, None, :]
    return same.tril() if causal else same


@pytest.fixture
def on_cpu(monkeypatch):
    """Use FlexAttention on a CPU, with gradients, which only its kernels lack there."""
    monkeypatch.setattr("ftmodel.positions.flex_works", lambda *_: True)
    monkeypatch.setattr("torch.nn.attention.flex_attention._validate_device", lambda *_: None)


@rejects("attention.document_blocks: «high→low»)[queries", "mixed queries read without the mask")
@pytest.mark.parametrize("causal", [False, True], ids=["encoder", "decoder"])
@pytest.mark.parametrize("lengths", LAYOUTS, ids=str)
def test_a_block_mask_is_that_of_torch_from_the_dense_one(monkeypatch, lengths, causal):
    monkeypatch.setattr(attention, "BLOCK", 4)
    documents = numbered(lengths)
    found, length = attention.document_blocks(documents, causal), documents.shape[1]
    size = 2, 1, length, length, "cpu"
    expected = create_block_mask(found.mask_mod, *size, BLOCK_SIZE=4)
    assert torch.equal(create_mask(found.mask_mod, *size), dense(documents, causal))
    for name in TENSORS:
        assert torch.equal(getattr(found, name), getattr(expected, name)), name


def test_documents_may_be_numbered_in_any_order(monkeypatch):
    """Then more blocks than needed are read, each with its mask."""
    monkeypatch.setattr(attention, "BLOCK", 2)
    documents = torch.tensor([[3, 3, 1, 1, 3, 2, 3, 3]])
    found = attention.document_blocks(documents, False)
    some = dense(documents, False).unflatten(2, (4, 2)).unflatten(4, (4, 2))
    some = some.any(-1).any(-2)[0, 0]
    assert (found.to_dense()[0, 0].bool() | ~some).all()
    assert found.full_kv_num_blocks.flatten().tolist() == [2, 1, 0, 2]


@rejects("MemoryAttention.forward: dense(«→not »", "memory not causal on a GPU")
@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_loss_and_gradients_are_those_of_the_dense_mask(
    make_model, make_tokens, rng, monkeypatch, on_cpu
):
    """Of grouped queries, in the decoder's blocks, one of which reads z as memory, and in the
    encoder's.
    """
    model, tokens = make_model(n_layers=2, latent={"inject": "memory"}), make_tokens(2, 17)
    given = tokens[:, :-1], tokens[:, 1:], torch.rand(2, 16, 3, generator=rng), 0.5
    results = []
    for works in (True, False):
        monkeypatch.setattr("ftmodel.positions.flex_works", lambda *_, works=works: works)
        model.zero_grad()
        loss = training_loss(model, *given, numbered(LAYOUTS[1])).total
        loss.backward()
        results.append([loss, {name: p.grad for name, p in model.named_parameters()}])
    torch.testing.assert_close(*results, atol=1e-5, rtol=1e-5)


def test_one_position_has_a_row_of_the_dense_mask(make_model, on_cpu):
    documents = numbered(LAYOUTS[1])
    at = make_model().positions(documents, documents=documents)
    for t in (0, 5, 15):
        assert torch.equal(at.one(t, 16).causal, dense(documents, True)[..., t : t + 1, :])


def test_where_flex_attention_fails_the_mask_stays_dense():
    assert not attention.flex_works(torch.device("cpu"), 16)
    with pytest.warns(UserWarning, match="grow as T²: FlexAttention fails"):
        assert not attention.flex_works(torch.device("cuda:99"), 16)


@pytest.mark.parametrize("compiling", [False, True])
def test_on_a_gpu_flex_attention_is_compiled_once(monkeypatch, compiling):
    """By itself, unless the block around it is."""
    called = []
    monkeypatch.setattr(attention, "flex_attention", lambda *_, **__: called.append("plain"))
    monkeypatch.setattr(attention, "compiled", lambda: lambda *_, **__: called.append("compiled"))
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: compiling)
    for on_gpu in (True, False):
        attention.flex_attend(SimpleNamespace(is_cuda=on_gpu), None, None, None, True)
    assert called == (["plain", "plain"] if compiling else ["compiled", "plain"])
