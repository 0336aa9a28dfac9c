"""A replica of vLLM on Ray Serve, with the keys, versions, handles and weight updates of this project's replicas.

vLLM's own HTTP application answers. Imported only where vLLM is installed."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse
from ray.serve.llm.deployment import LLMServer
from ray.serve.llm.openai_api_models import ChatCompletionRequest
from safetensors import safe_open

from lemur_ray.serve.http.api_key import KeyRequired
from lemur_ray.serve.http.chat_page import ChatPage
from lemur_ray.serve.on_ray.weights_record import Choice, WeightsRecord
from lemur_ray.weights.hf_config import raw_config
from lemur_ray.weights.open_model import model_fingerprint

_Server: Any = LLMServer
"""Untyped, as are the parts of vLLM that are used here"""


class VllmModel(_Server):
    """An engine of vLLM whose replies name the version of their weights in ``system_fingerprint``."""

    async def __init__(self, llm_config: Any, folder: str, record: str, key_digest: bytes = b""):  # type: ignore[misc]
        """Start the engine. folder: exported model. record: name of the record of chosen weights, which replace the
        folder's. key_digest: SHA-256 of the key of HTTP requests; b"": none."""
        self._folder, self._record, self._choice = folder, WeightsRecord(record), Choice()
        self._key_digest, self._failure, self._update = key_digest, "", asyncio.Lock()
        self._draining, self._ended = False, threading.Event()
        await super().__init__(llm_config)
        self._set_version(model_fingerprint(Path(folder)))
        await self.commit_weights(self._record.read())
        loop = asyncio.get_running_loop()

        def switch(choice: Choice) -> str:
            return asyncio.run_coroutine_threadsafe(self.commit_weights(choice), loop).result()

        threading.Thread(target=self._record.watch, args=(switch, self._ended), name="record", daemon=True).start()

    def _set_version(self, version: str) -> None:
        self._version = version
        state = self.engine._app_state  # vLLM reads the fingerprint of its serving objects at the end of each reply
        for serving in (state.openai_serving_chat, state.openai_serving_completion):
            serving.system_fingerprint = version

    async def __serve_build_asgi_app__(self) -> FastAPI:
        app: FastAPI = await super().__serve_build_asgi_app__()

        @app.get("/ready")
        async def ready() -> JSONResponse:
            about = {"status": "ready", "model": self._llm_config.model_id, "version": self._version}
            return JSONResponse(about, status_code=503 if self._failure else 200)

        app.middleware_stack = None
        app.add_middleware(ChatPage)
        if self._key_digest:
            app.add_middleware(KeyRequired, digest=self._key_digest)
        return app

    async def about(self) -> dict[str, Any]:
        """The model's ``name`` and folder (``spec``), ``version`` and spec (``weights``) of its weights, its
        ``context`` in tokens."""
        about = {"name": self._llm_config.model_id, "spec": self._folder, "version": self._version}
        context = self.engine._engine_client.model_config.max_model_len
        return {**about, "weights": self._choice.spec or self._folder, "context": context}

    async def num_tokens(self, text: str) -> int:
        """Number of tokens of a text, without those that a chat template adds."""
        tokenizer = self.engine._engine_client.get_tokenizer()
        return len(await asyncio.to_thread(tokenizer.encode, text, add_special_tokens=False))

    async def converse(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to one request of a policy in the cluster, in the form of ``serve.token_requests``. It has no ids,
        so earlier replies come back as text; ``trace`` is refused."""
        if self._draining:
            return {"refused": "closed", "message": "the engine is draining"}
        if request.get("trace"):
            return {"refused": "invalid", "message": "vLLM returns no traces of replies: serve the model without it"}
        options = {**request["sampling"], "stop": list(request["sampling"]["stop"])}
        tools = {"tools": list(request["tools"])} if request.get("tools") else {}
        try:
            body = ChatCompletionRequest(
                model=self._llm_config.model_id, messages=list(request["turns"]), **options, **tools
            )
        except ValueError as error:
            return {"refused": "invalid", "message": str(error)}
        async for reply in await self.chat(body):
            return _answer(reply.model_dump())
        return {"refused": "closed", "message": "the engine ended without a reply"}

    async def weights_target(self, spec: str) -> tuple[str, str]:
        """(name of the record of chosen weights, ``spec`` as an absolute path)."""
        return self._record.name, str(Path(spec).expanduser().absolute())

    async def stage_weights(self, spec: str) -> str:
        """Compare an exported folder with the served one; returns the version of its weights. Raises RuntimeError if it
        is no Hugging Face folder or has other matrices."""
        try:
            return await asyncio.to_thread(checked_version, Path(self._folder), Path(spec))
        except (OSError, ValueError) as error:
            raise RuntimeError(f"{spec}: {error}") from error

    async def commit_weights(self, choice: Choice) -> str:
        """Finish replies that have begun, read the chosen weights, and drop the cache; returns the version in use,
        which may be a later choice's. New requests wait. A failure after the replies have ended also ends the replica,
        because some matrices may be overwritten. Raises RuntimeError if the weights have changed or cannot be read, or
        the engine is draining."""
        _, spec, version = choice
        async with self._update:
            if self._failure or self._draining:
                raise RuntimeError(self._failure or f"{spec}: the engine is draining")
            if choice.number <= self._choice.number:
                return self._version
            if version == self._version:
                self._choice = choice
                return version
            if (current := await self.stage_weights(spec)) != version:
                raise RuntimeError(f"these weights are {current} by now, not {version}")
            try:
                await self.pause(mode="wait", clear_cache=True)
            except BaseException:  # also if the caller gave up
                await self.resume()
                raise
            try:
                await self.collective_rpc("reload_weights", kwargs={"weights_path": str(Path(spec).absolute())})
                self._set_version(version)
                await self.resume()
            except BaseException as error:
                self._failure = f"{spec}: {error!r}"
                if isinstance(error, Exception):
                    raise RuntimeError(self._failure) from error
                raise
            self._choice = choice
            return version

    async def drop_weights(self) -> None:
        """Does nothing: staged folders are not read."""

    async def drain(self, limit_s: float) -> None:
        """Refuse requests of handles, and let replies that have begun finish, within ``limit_s`` seconds."""
        self._draining = True
        self._ended.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s), self._update:  # an update ends first
                await self.pause(mode="wait")

    async def check_health(self) -> None:
        if self._failure:
            raise RuntimeError(f"half of the weights may be new: {self._failure}")
        await super().check_health()


def _answer(reply: Mapping[str, Any]) -> dict[str, Any]:
    """vLLM's reply, or its error, in the form of ``serve.token_requests``."""
    if error := reply.get("error"):
        kind = "context" if error.get("param") == "input_tokens" else "invalid" if error["code"] < 500 else "closed"
        return {"refused": kind, "message": error["message"]}
    (choice,), usage = reply["choices"], reply["usage"]
    message, cached = choice["message"], usage.get("prompt_tokens_details") or {}
    return {
        "text": message["content"] or "",
        "ids": [],
        "finish_reason": choice["finish_reason"],
        "version": reply["system_fingerprint"],
        "prompt_tokens": usage["prompt_tokens"],
        "completion_tokens": usage["completion_tokens"],
        "cached_tokens": cached.get("cached_tokens") or 0,
        **({"tool_calls": calls} if (calls := message.get("tool_calls")) else {}),
    }


def checked_version(served: Path, other: Path) -> str:
    """The version of an exported folder. Raises ValueError if its matrices or its quantization are not those of the
    served one, OSError if it cannot be read."""
    if not (other / "config.json").is_file():
        raise ValueError("no Hugging Face folder: export it first with python jobs/convert.py")
    quantized = [raw_config(str(folder)).get("quantization_config") for folder in (served, other)]
    shapes, others = _shapes(served), _shapes(other)
    if shapes != others or quantized[0] != quantized[1]:
        different = sorted(name for name in shapes.keys() | others.keys() if shapes.get(name) != others.get(name))
        raise ValueError(f"not of the served model's shape: {', '.join(different[:3]) or 'quantization_config'}")
    return model_fingerprint(other)


def _shapes(folder: Path) -> dict[str, list[int]]:
    """Shape of each matrix in a folder's safetensors files."""
    shapes: dict[str, list[int]] = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "np") as file:
            shapes.update({name: file.get_slice(name).get_shape() for name in file.keys()})  # noqa: SIM118
    return shapes
