"""Pages whose scripts replace what a browser has, pages too large to be read, tabs that crash."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from envs.webarena.browser.host import shared_host
from envs.webarena.env import WebEnv
from tests.envs.webarena.browser.test_navigation import looks_at
from tests.envs.webarena.processes import family
from tests.envs.webarena.small_site import PAGES
from tests.envs.webarena.test_env import began, did


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("/strange/")])
def test_a_page_is_read_whatever_its_scripts_put_in_the_place_of_the_browsers(env: WebEnv, page: str) -> None:
    shown = began(env, start=page)
    assert "button 'Here'" in shown
    if page.endswith("boxes"):
        assert "StaticText 'Text'" in shown


def test_half_an_emoji_is_cut_by_a_tokenizer_as_any_text(env: WebEnv, tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    shown = began(env, start="/strange/halves", tokenizer=str(tmp_path / "tokenizer.json"))
    assert "cut \ufffd" in shown
    shown.encode("utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("page", ["/shadow", "/texts"])
def test_a_page_of_200_000_nodes_is_not_read_wherever_they_are(env: WebEnv, page: str) -> None:
    shown = began(env, start=page, wait_s=1.0)
    assert "at most" in shown
    assert "link 'Add ink'" in did(env, "goto [http://onestopmarket.com/]")[0]


def test_a_start_page_that_asks_for_ever_is_given_up_and_the_episode_begins(env: WebEnv) -> None:
    assert "URL: about:blank" in began(env, start="/prompts")
    shown, _, _, info = did(env, "goto [http://onestopmarket.com/]")
    assert info["valid"]
    assert "link 'Add ink'" in shown


def test_a_tab_that_crashes_is_replaced_and_the_episode_goes_on(env: WebEnv) -> None:
    began(env, rubric=looks_at("/basket", "Basket"))
    for pid in family(shared_host().pid()):
        if b"--type=renderer" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
    began_at = time.monotonic()
    shown = did(env, "scroll [down]")[0]
    assert "Tab 0 (current)" in shown
    assert "Tab 1" not in shown
    shown, _, _, info = did(env, "goto [http://onestopmarket.com/]")
    assert info["valid"]
    assert "link 'Add ink'" in shown
    assert did(env, "stop []")[1] == 1
    assert time.monotonic() - began_at < 20
