"""llama.cpp as a peer of benchmarks: a Hugging Face folder of a Llama as GGUF, and greedy replies to token ids.

Needs numpy, ``gguf`` and ``llama-cpp-python``, in a Python of its own if need be; knows nothing of our engine. Of the
library it takes the C functions: the Python class generates for one sequence only.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import gguf
import llama_cpp
import numpy as np

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
ERROR = 4
"""GGML_LOG_LEVEL_ERROR."""
BATCH = 2048
"""Tokens handed over at once, as llama.cpp's own server does."""


@llama_cpp.llama_log_callback
def _log(level: int, text: bytes, _: ctypes.c_void_p) -> None:
    if level == ERROR:
        print(text.decode(errors="replace"), end="", file=sys.stderr)


def write_gguf(folder: str, path: str, dtype: str = "float32") -> None:
    """A float32 folder of safetensors as one GGUF file without a tokenizer; matrices in ``dtype``, norms in float32."""
    config = json.loads(Path(folder, "config.json").read_text())
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    theta = config.get("rope_theta") or config["rope_parameters"]["rope_theta"]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_vocab_size(config["vocab_size"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(theta)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_tokenizer_model("no_vocab")
    for name, array in _safetensors(folder):
        inner = name.removesuffix(".weight")
        prefix = ""
        if inner.startswith("model.layers."):
            _, _, layer, inner = inner.split(".", 3)
            prefix = f"blk.{layer}."
        if inner in ("self_attn.q_proj", "self_attn.k_proj"):
            array = _beside(array, heads if inner == "self_attn.q_proj" else kv_heads)
        name = f"{prefix}{NAMES[inner]}.weight"
        if dtype == "bfloat16" and array.ndim == 2:
            rounded = gguf.quants.quantize(array, gguf.GGMLQuantizationType.BF16)
            writer.add_tensor(name, rounded, raw_dtype=gguf.GGMLQuantizationType.BF16)
        else:
            writer.add_tensor(name, np.ascontiguousarray(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _safetensors(folder: str) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    for path in sorted(Path(folder).glob("*.safetensors")):
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(size))
        header.pop("__metadata__", None)
        data = np.memmap(path, np.uint8, "r", offset=8 + size)
        for name, entry in header.items():
            assert entry["dtype"] == "F32", f"{name} is {entry['dtype']}"
            begin, end = entry["data_offsets"]
            yield name, data[begin:end].view(np.float32).reshape(entry["shape"])


def _beside(array: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """[heads * head_dim, dim]: GGUF's Llama rotates neighbouring rows, Hugging Face's the two halves of a head."""
    rows, dim = array.shape
    return array.reshape(heads, 2, rows // heads // 2, dim).transpose(0, 2, 1, 3).reshape(rows, dim)


def _alike(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens both begin with."""
    return next((k for k, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


class LlamaCpp:
    """Greedy replies of one model on one thread; a sequence keeps what it computed, like a slot of llama.cpp's server.

    A prompt is computed from where it differs from what its sequence holds. ``copies``: what all prompts of a call
    begin with is computed once and copied, which the server does for the choices of one request but not between
    requests. By default keys and values are float16 with flash attention, the library's own choice and its fastest;
    ``float32_cache`` makes them float32, without flash attention, which is slower with that.
    """

    def __init__(
        self, path: str, sequences: int, context: int, *, float32_cache: bool = False, copies: bool = False
    ) -> None:
        llama_cpp.llama_log_set(_log, None)
        llama_cpp.llama_backend_init()
        loading = llama_cpp.llama_model_default_params()
        loading.n_gpu_layers, loading.load_mode = 0, llama_cpp.LLAMA_LOAD_MODE_NONE  # faster than from a mapped file
        model = llama_cpp.llama_model_load_from_file(path.encode(), loading)
        assert model, f"llama.cpp cannot load {path}"
        options = llama_cpp.llama_context_default_params()
        options.n_ctx, options.n_seq_max = context * sequences, sequences
        options.n_batch, options.n_threads, options.n_threads_batch = BATCH, 1, 1
        if float32_cache:
            options.type_k = options.type_v = 0  # GGML_TYPE_F32
            options.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
        self._context = llama_cpp.llama_init_from_model(model, options)
        assert self._context, "llama.cpp cannot make a context of this size"
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._vocab_size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
        self._batch = llama_cpp.llama_batch_init(BATCH, 0, 1)
        self._copies = copies
        self._held: list[list[int]] = [[] for _ in range(sequences)]
        self.prefilled = 0
        """Prompt tokens computed so far."""

    def generate(self, prompts: Sequence[Sequence[int]], new: int) -> list[list[int]]:
        """``new`` ids for each prompt, prompt i in sequence i."""
        if self._copies and len(prompts) > 1:
            self._share(prompts[0][: min(_alike(prompts[0], p) for p in prompts)], len(prompts))
        fed = []
        for i, prompt in enumerate(prompts):
            kept = min(_alike(self._held[i], prompt), len(prompt) - 1)
            self._keep(i, kept)
            fed.append(list(prompt[kept:]))
        self.prefilled += sum(map(len, fed))
        replies = [[token] for token in self._decode(fed)]
        for _ in range(new - 1):
            for reply, token in zip(replies, self._decode([reply[-1:] for reply in replies]), strict=True):
                reply.append(token)
        return replies

    def _share(self, header: Sequence[int], count: int) -> None:
        if not header or all(_alike(held, header) == len(header) for held in self._held[:count]):
            return
        self._keep(0, _alike(self._held[0], header))
        rest = list(header[len(self._held[0]) :])
        if rest:
            self.prefilled += len(rest)
            self._decode([rest])
        for i in range(1, count):
            self._keep(i, 0)
            llama_cpp.llama_memory_seq_cp(self._memory, 0, i, -1, -1)
            self._held[i] = list(header)

    def _keep(self, i: int, length: int) -> None:
        assert llama_cpp.llama_memory_seq_rm(self._memory, i, length, -1)
        del self._held[i][length:]

    def _decode(self, fed: list[list[int]]) -> list[int]:
        """Compute the tokens of each sequence behind what it holds; the likeliest id after the last one of each."""
        rows = [
            (token, len(self._held[i]) + k, i, k == len(tokens) - 1)
            for i, tokens in enumerate(fed)
            for k, token in enumerate(tokens)
        ]
        found = [0] * len(fed)
        batch = self._batch
        for begin in range(0, len(rows), BATCH):
            part = rows[begin : begin + BATCH]
            batch.n_tokens = len(part)
            for j, (token, position, i, last) in enumerate(part):
                batch.token[j], batch.pos[j], batch.logits[j] = token, position, last
                batch.n_seq_id[j], batch.seq_id[j][0] = 1, i
            status = llama_cpp.llama_decode(self._context, batch)
            assert status == 0, f"llama_decode: {status}"
            for j, (_, _, i, last) in enumerate(part):
                if last:
                    logits = llama_cpp.llama_get_logits_ith(self._context, j)
                    pointer = ctypes.cast(logits, ctypes.POINTER(ctypes.c_float))
                    found[i] = int(np.argmax(np.ctypeslib.as_array(pointer, (self._vocab_size,))))
        for held, tokens in zip(self._held, fed, strict=False):
            held += tokens
        return found
