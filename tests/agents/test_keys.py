"""Keys: where they are found, where they go, and that nobody ever sees one."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from lemur_ray.agents.api_keys import Key
from lemur_ray.agents.endpoint import EndpointOptions, checked_url
from lemur_ray.agents.policy_spec import PolicySpec
from tests.conftest import ROOT

SECRET = "sk-test-4711-sesame"


def test_a_key_is_named_by_its_variable_or_by_that_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{SECRET}\n")
    for environment in ({"MINE": f" {SECRET} "}, {"MINE_FILE": str(tmp_path / "key")}):
        assert Key.named("MINE", "--policy-key-env", environment).headers == {"Authorization": f"Bearer {SECRET}"}
    assert Key().headers == {}


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({}, "--policy-key-env MINE: there is no such environment variable"),
        ({"MINE": " "}, "MINE: it is empty"),
        ({"MINE_FILE": "/nowhere/at/all"}, "MINE_FILE names /nowhere/at/all, which cannot be read"),
        ({"MINE": "two words"}, "no header can carry"),
        ({"MINE": "schl\u00fcssel-4711"}, "no header can carry"),
        ({"MINE": "line\nline"}, "no header can carry"),
    ],
)
def test_a_variable_without_a_key_is_said_and_a_bad_key_is_not_shown(environment: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said.replace("(", "\\(")) as error:
        Key.named("MINE", "--policy-key-env", environment)
    assert "\n" not in str(error.value)
    if bad := environment.get("MINE", "").strip():
        assert bad not in str(error.value)


@pytest.mark.parametrize(
    ("url", "base", "sent"),
    [
        ("https://api.openai.com/v1", "", True),
        ("https://eu.api.openai.com/v1", "", True),
        ("http://api.openai.com/v1", "", False),
        ("https://api.openai.com.evil.example/v1", "", False),
        ("https://api.openai.com@evil.example/v1", "", False),
        ("http://127.0.0.1:8000/v1", "", False),
        ("https://gateway.example/v1", "https://gateway.example/openai", True),
        ("https://gateway.example:444/v1", "https://gateway.example/openai", False),
    ],
)
def test_the_usual_key_goes_to_its_own_endpoint_alone(url: str, base: str, sent: bool) -> None:
    environment = {"OPENAI_API_KEY": SECRET, "OPENAI_BASE_URL": base}
    assert bool(Key.of("", "--policy-key-env", url, environment)) is sent
    assert Key.of("OPENAI_API_KEY", "--policy-key-env", url, environment), "named, it goes where it is told"


def test_a_key_is_in_no_text_of_what_holds_it() -> None:
    key = Key(SECRET, name="MINE")
    spec = replace(PolicySpec.parse("openai:http://h:1/v1", "m"), options=EndpointOptions(key))
    for text in (repr(key), str(key), f"{key}", repr(spec), repr(EndpointOptions(key)), f"{vars(spec)}"):
        assert SECRET not in text
    assert key.hidden_in(f"Incorrect API key provided: {SECRET}.") == "Incorrect API key provided: <key>."
    assert Key("abc").hidden_in("abc") == "abc"


def test_a_policy_brings_its_key_to_a_process_that_does_not_have_the_variable() -> None:
    spec = replace(
        PolicySpec.parse("openai:http://127.0.0.1:9/v1", "m"), options=EndpointOptions(Key(SECRET, name="MINE"))
    )
    code = (
        "import pickle, sys, os; spec = pickle.loads(sys.stdin.buffer.read()); policy = spec();"
        "assert 'MINE' not in os.environ; print(policy.options.key.headers['Authorization'])"
    )
    environment = {name: value for name, value in os.environ.items() if name != "MINE"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, input=pickle.dumps(spec), capture_output=True
    )
    assert done.stdout.decode().strip() == f"Bearer {SECRET}", done.stderr.decode()


def test_a_key_that_was_changed_in_its_file_is_found(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("first-key-0001")
    key = Key.named("MINE", "--policy-key-env", {"MINE_FILE": str(file)})
    assert key.renewed() is None
    file.write_text("second-key-0002\n")
    assert (newer := key.renewed()) is not None
    assert newer.headers == {"Authorization": "Bearer second-key-0002"}
    file.unlink()
    assert key.renewed() is None
    assert Key(SECRET).renewed() is None


@pytest.mark.parametrize("url", ["https://a.b/v1?key=sk-sesame", "https://a.b/v1/?v=1#sk-sesame", "http://a.b/v1#x"])
def test_an_address_with_a_query_is_refused_without_showing_what_stands_there(url: str) -> None:
    with pytest.raises(ValueError, match=r"must hold neither \? nor #: give what stands before") as error:
        PolicySpec.parse(f"openai:{url}", "m")
    assert "sesame" not in str(error.value)
    assert "here http" in str(error.value)
    assert "--policy-key-env" in str(error.value)
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="expected one of openai:URL") as error:
        PolicySpec.parse(url)
    assert "key=" not in str(error.value)


@pytest.mark.parametrize("url", ["http://h:secret/v1", "http://me:secret/v1@h", "http://[secret/v1"])
def test_what_stands_where_a_port_belongs_is_not_shown(url: str) -> None:
    with pytest.raises(ValueError, match=r"expected one like http://host:8000/v1") as error:
        checked_url(url, "--policy")
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("url", ["me:secret@h/v1", "http:/secret@h/v1", r"http:\\me:secret@h"])
def test_a_password_is_found_in_what_is_hardly_an_address(url: str) -> None:
    with pytest.raises(ValueError, match="must hold no password") as error:
        checked_url(url, "--teacher")
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        "openai:me:secret@h",
        "openai:me:secret@h:8000/v1",
        "me:secret@h",
        "openai:me:se?cret@h",
        "openai:me@x:secret@h",
        "OPENAI:http://me:secret@h/v1",
        "openai:h/v1?user=me@x&key=secret",
        "openai:h/v1#me@secret",
    ],
)
def test_what_stands_before_a_host_is_never_repeated_where_a_scheme_is_missing(text: str) -> None:
    with pytest.raises(ValueError, match=r"--policy '\.\.\.(@h.*)?': expected one of openai:URL") as error:
        PolicySpec.parse(text, "m")
    assert not re.search("secret|cret@|se.cret", str(error.value).partition(": expected")[0])


@pytest.mark.parametrize("url", ["http://me:secret@h/v1", "https://token@h/v1"])
def test_an_address_with_a_password_is_refused_because_addresses_are_kept(url: str) -> None:
    with pytest.raises(ValueError, match="must hold no password") as error:
        checked_url(url, "--policy")
    assert "secret" not in str(error.value)
    with pytest.raises(ValueError, match="must hold no password"):
        PolicySpec.parse(f"openai:{url}")
