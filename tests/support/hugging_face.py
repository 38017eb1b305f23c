"""Our baseline as Hugging Face's Llama, an outside reference for it."""

from transformers import LlamaConfig, LlamaForCausalLM

from ftmodel.conversion.llama import llama_config, llama_weights


def to_hugging_face(model):
    entries = llama_config(model.config, model.embedding.num_embeddings)
    llama = LlamaForCausalLM(LlamaConfig(**entries, attn_implementation="eager"))
    llama.load_state_dict(llama_weights(model), strict=False)  # without lm_head if it is tied
    return llama.eval()
