"""vLLM's build for CPUs behind Ray Serve, in an environment of its own (``make vllm``): what the guide's table says."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

ROOT = Path(__file__).resolve().parents[3]
PYTHON = ROOT / ".venv-vllm" / "bin" / "python"
SCRIPT = """
import json, sys, time, urllib.error, urllib.request
import psutil, ray
from ray import serve
from lemur_ray.agents.messages import ChatRequest, Message, Sampling
from lemur_ray.serve.config import ServeJob
from lemur_ray.serve.http.api_key import key_digest
from lemur_ray.serve.on_ray import attach, deployments, serve_cluster
from lemur_ray.serve.on_ray.handle import HandleSpec
from lemur_ray.serve.on_ray.weight_updates import update_all
from lemur_ray.serve.on_ray.weights_record import Choice, WeightsRecord

first, second, other = sys.argv[1:]
ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": {"PYTHONPATH": "."}})
url = deployments.serve_job(ServeJob(backend="vllm", name="tiny"), first, key_digest("secret"))

def ask(path, body=None, key="secret", root=url):
    headers = {"Content-Type": "application/json", "Authorization": "Bearer " + key, "X-Session-Id": "s"}
    request = urllib.request.Request(root + path, body and json.dumps(body).encode(), headers)
    try:
        return urllib.request.urlopen(request).read().decode()
    except urllib.error.HTTPError as error:
        return error.code if error.code == 401 else json.dumps({"error": error.read().decode()})

chat = {"model": "tiny", "messages": [{"role": "user", "content": "a b"}], "max_tokens": 5, "temperature": 0}
out = {"wrong_key": ask("/chat/completions", chat, "other")}
out["before"] = json.loads(ask("/chat/completions", {**chat, "return_token_ids": True}))
out["streamed"] = ask("/chat/completions", {**chat, "stream": True})
out["metrics"] = ask("/metrics", root=url[:-3])
(running,) = attach.served()
out["attached"] = [running.name, running.context, attach.num_tokens(running.application, "a b")]
policy = HandleSpec(running.application, "x")()
look = {"name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}}
tool = {"type": "function", "function": look}
call = '<tool_call>\\n{"name": "look", "arguments": {"at": "b"}}\\n</tool_call>'
forced = {"max_tokens": 200, "structured_outputs": {"choice": [call]}}
out["called"] = json.loads(ask("/chat/completions", {**chat, **forced, "tools": [tool]}))
reply = policy.reply(ChatRequest((Message("user", "a b"),), Sampling(max_tokens=5), "t", tools=(tool,)))
out["tools_by_handle"] = reply.usage.prompt_tokens
sampling = Sampling(max_tokens=5)
reply = policy.reply(ChatRequest((Message("user", "a b"),), sampling, "e"))
out["by_handle"] = [reply.text, reply.version, reply.usage.completion_tokens]
try:
    update_all(running.application, other)
except RuntimeError as error:
    out["refused"] = str(error)
out["versions"] = [running.version, *update_all(running.application, second)]
out["after"] = json.loads(ask("/chat/completions", {**chat, "return_token_ids": True}))
for process in psutil.Process().children(recursive=True):
    if any("ServeReplica" in word for word in process.cmdline()):
        process.kill()
deadline = time.monotonic() + 200
while time.monotonic() < deadline and "choices" not in out.get("restarted", {}):
    time.sleep(1)
    out["restarted"] = json.loads(ask("/chat/completions", {**chat, "return_token_ids": True}))
handle = serve.get_app_handle(running.application)
record = WeightsRecord(handle.weights_target.remote(first).result()[0])
assert record.add(Choice(record.read().number + 1, first, running.version))  # an update that reaches no replica
while time.monotonic() < deadline and (noticed := handle.about.remote().result())["version"] != running.version:
    time.sleep(1)
out["noticed"] = noticed["version"]
serve_cluster.shutdown()
print("RESULT" + json.dumps(out))
"""


FAULTS = """
import asyncio, json, sys
from pathlib import Path
from lemur_ray.serve.on_ray.vllm_replica import VllmModel, model_fingerprint
from lemur_ray.serve.on_ray.weights_record import Choice

async def ended(call):
    try:
        return await asyncio.wait_for(call, 1)
    except (RuntimeError, TimeoutError) as error:
        return type(error).__name__

async def faulty(fault, new, version):
    calls, replica = [], object.__new__(VllmModel)
    replica._folder, replica._choice = sys.argv[1], Choice()
    replica._version, replica._failure, replica._draining, replica._update = "old", "", False, asyncio.Lock()
    def call(name):
        async def called(*_, **__):
            calls.append(name)
            if fault == name:
                raise OSError("the disk is gone")
            if fault == name + " hangs":
                await asyncio.sleep(60)
        return called
    replica.pause, replica.resume, replica.collective_rpc = call("pause"), call("resume"), call("reload")
    replica._set_version = lambda version: setattr(replica, "_version", version)
    outcome = await ended(replica.commit_weights(Choice(1, new, version)))
    back = await ended(replica.commit_weights(Choice(2, sys.argv[1], "old")))
    return [outcome, calls, back, bool(replica._failure)]

async def main():
    new = sys.argv[2]
    version = model_fingerprint(Path(new))
    faults = ("reload", "reload hangs", "pause hangs", "resume")
    return {fault: await faulty(fault, new, version) for fault in faults}

print("RESULT" + json.dumps(asyncio.run(main())))
"""


TEMPLATE = """{%- if tools %}<|im_start|>system
{{ tools | tojson }}
Answer with <tool_call> and </tool_call> around a call.<|im_end|>
{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


@pytest.fixture
def folders(tmp_path: Path) -> tuple[str, str]:
    """An exported model, and another of its shape."""
    if not PYTHON.is_file():
        pytest.skip("vLLM's build for CPUs is not there: make vllm")
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    convert = [sys.executable, str(ROOT / "jobs" / "convert.py"), "--model", "random:nano", "--out", first]
    subprocess.run([*convert, "--dtype", "bfloat16"], check=True, timeout=300)
    (Path(first) / "chat_template.jinja").write_text(TEMPLATE)
    shutil.copytree(first, second)
    for path in Path(second).glob("*.safetensors"):
        moved = {name: x.roll(1, 0) if x.dim() == 2 else x for name, x in load_file(path).items()}
        save_file(moved, path, {"format": "pt"})
    return first, second


def run(script: str, *arguments: str) -> dict[str, Any]:
    """What a script prints after RESULT, in vLLM's environment."""
    env = {**os.environ, "RAY_AUTH_MODE": "disabled", "VLLM_CPU_KVCACHE_SPACE": "1", "JAX_PLATFORMS": "cpu"}
    command = [str(PYTHON), "-c", script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, cwd=ROOT, env=env)
    assert "RESULT" in done.stdout, done.stderr[-3000:]
    out: dict[str, Any] = json.loads(done.stdout.partition("RESULT")[2].splitlines()[0])
    return out


@pytest.mark.sweep  # an environment of 5 GB that only `make vllm` builds
def test_a_swap_that_fails_leaves_the_old_weights_or_an_unhealthy_replica(folders: tuple[str, str]) -> None:
    out = run(FAULTS, *folders)
    swapping = ["pause", "reload"]
    assert out == {
        "reload": ["RuntimeError", swapping, "RuntimeError", True],
        "reload hangs": ["TimeoutError", swapping, "RuntimeError", True],
        "pause hangs": ["TimeoutError", ["pause", "resume"], "old", False],
        "resume": ["RuntimeError", [*swapping, "resume"], "RuntimeError", True],
    }


@pytest.mark.sweep  # a minute, and an environment of 5 GB that only `make vllm` builds
def test_keys_ids_versions_metrics_handles_and_new_weights(folders: tuple[str, str]) -> None:
    out = run(SCRIPT, *folders, "random:nano")
    before, after = out["before"], out["after"]
    old, new = out["versions"]
    assert out["wrong_key"] == 401
    assert len(before["choices"][0]["token_ids"]) == before["usage"]["completion_tokens"]
    assert len(before["prompt_token_ids"]) == before["usage"]["prompt_tokens"]
    assert "data: [DONE]" in out["streamed"]
    assert "vllm:generation_tokens_total" in out["metrics"]
    assert out["attached"][:2] == ["tiny", 1024]
    assert out["attached"][2] > 0
    assert out["by_handle"] == [before["choices"][0]["message"]["content"], old, before["usage"]["completion_tokens"]]
    (call,) = out["called"]["choices"][0]["message"]["tool_calls"]
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("look", {"at": "b"})
    assert out["tools_by_handle"] > before["usage"]["prompt_tokens"] + 20, "the tools are not in the prompt"
    assert "no Hugging Face folder" in out["refused"]
    assert old != new
    assert (before["system_fingerprint"], after["system_fingerprint"]) == (old, new)
    assert after["choices"][0]["token_ids"] != before["choices"][0]["token_ids"]
    assert out["restarted"]["system_fingerprint"] == new
    assert out["restarted"]["choices"][0]["token_ids"] == after["choices"][0]["token_ids"]
    assert out["noticed"] == old
