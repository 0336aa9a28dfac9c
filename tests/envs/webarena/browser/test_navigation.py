"""Pages that ask whether they may be left, pages that never come: for actions, and for evaluators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from envs.webarena.browser import last_page, play, session
from envs.webarena.browser.login_steps import LOGIN_S
from envs.webarena.env import WebEnv
from envs.webarena.fixed_sites import FixedSites, SitesConfig, answers
from envs.webarena.site_set import Account, Chain, Lease, Record, SitesLost
from lemur_ray.agents.task_leases import FileLeases
from tests.envs.webarena.small_site import SmallSite, SmallSites, record
from tests.envs.webarena.test_env import began, did, id_of


def looks_at(path: str, *held: str) -> dict[str, Any]:
    target = {"url": f"__SHOPPING__{path}", "locator": "", "required_contents": {"must_include": list(held)}}
    return {"eval_types": ["program_html"], "program_html": [target]}


@pytest.mark.slow
def test_a_page_that_asks_whether_it_may_be_left_is_left(env: WebEnv) -> None:
    shown = began(env, start="/unsaved", rubric=looks_at("/basket", "Basket"))
    typed = f"type [{id_of(shown, 'Letter')}] [a letter] [0]"
    did(env, typed)
    shown, _, _, info = did(env, "goto [http://onestopmarket.com/]")
    assert info["valid"]
    assert "URL: http://onestopmarket.com/\n" in shown
    did(env, "goto [http://onestopmarket.com/unsaved]")
    did(env, typed)
    shown, _, _, info = did(env, "go_back")
    assert info["valid"]
    assert "URL: http://onestopmarket.com/\n" in shown
    shown = did(env, "goto [http://onestopmarket.com/unsaved]")[0]
    did(env, f"type [{id_of(shown, 'Letter')}] [another] [0]")
    _, reward, _, info = did(env, "stop []")
    assert reward == 1, "evaluators leave it, too"
    assert '"dialogs": 0' in info["note"]


def test_what_was_typed_and_never_saved_is_not_found_where_it_should_be(env: WebEnv) -> None:
    shown = began(env, start="/unsaved", rubric=looks_at("/basket", "my new post"))
    did(env, f"type [{id_of(shown, 'Letter')}] [my new post] [0]")
    assert did(env, "stop []")[1] == 0


@pytest.mark.parametrize("locator", ["", "document.body.innerText"])
def test_a_target_that_no_page_comes_of_holds_nothing_of_the_tab_before_it(env: WebEnv, locator: str) -> None:
    rubric = looks_at("/nothing", "ink")
    rubric["program_html"][0]["locator"] = locator
    assert "Add ink" in began(env, rubric=rubric)
    assert did(env, "stop []")[1] == 0


@pytest.mark.slow
def test_a_page_that_never_comes_is_an_action_in_vain_and_blamed_on_its_site_where_that_hangs(
    env: WebEnv, sites: SmallSites, monkeypatch: pytest.MonkeyPatch
) -> None:
    began(env)
    for module in (session, last_page, play):
        monkeypatch.setattr(module, "LOAD_S", 1.0)
    shown, _, _, info = did(env, "goto [http://onestopmarket.com/hanging]")
    assert not info["valid"]
    assert "link 'Add ink'" in shown, "what was there is still there, and can be read"
    sites.alive = False
    with pytest.raises(SitesLost, match="SHOPPING"):
        did(env, "goto [http://onestopmarket.com/hanging]")
    with pytest.raises(SitesLost):
        began(env, start="/hanging")


class ToldOfTwo:
    """Configured sites of which the map is gone."""

    def __init__(self, site: SmallSite, folder: Path) -> None:
        gone = SmallSite()
        gone.close()
        urls = {"SHOPPING": site.url, "MAP": gone.url}
        self.sites = FixedSites(SitesConfig.from_json({"sets": [{"urls": urls}]}), FileLeases(folder), wait_s=0.0)


@pytest.mark.parametrize("answer", ["$7.25", "no idea"])
def test_a_site_that_a_task_does_not_name_is_not_asked(
    browser: None, site: SmallSite, tmp_path: Path, answer: str
) -> None:
    env = WebEnv(ToldOfTwo(site, tmp_path).sites)
    try:
        began(env)
        assert did(env, f"stop [{answer}]")[1] == (answer == "$7.25")
    finally:
        env.close()


@pytest.mark.parametrize("answer", ["$7.25", "no idea"])
def test_a_site_of_the_task_that_is_gone_at_the_end_is_nobodys_fault_whatever_the_answer(
    env: WebEnv, sites: SmallSites, answer: str
) -> None:
    began(env)
    sites.alive = False
    with pytest.raises(SitesLost):
        did(env, f"stop [{answer}]")


def test_who_is_there_is_told_from_who_is_not() -> None:
    site = SmallSite()
    assert answers(site.url)
    assert answers(f"{site.url}/error")
    assert answers(f"{site.url}/away"), "it sends its visitors elsewhere, where nobody has to be"
    assert not answers(f"{site.url}/starting")
    assert not answers(f"{site.url}/babble")
    site.close()
    assert not answers(site.url)
    assert not answers("http://x:port")


class LoggedInAtAHangingShop:
    """A site set whose shop takes a login and says nothing."""

    def __init__(self, site: SmallSite) -> None:
        self.urls = {"SHOPPING": f"{site.url}/hanging?"}

    def lease(self, record: Record, chain: Chain | None = None) -> Lease:
        return Lease(self.urls, accounts={"shopping": Account("u", "p")}, name="hanging")

    def release(self, lease: Lease) -> None:
        pass

    def close(self) -> None:
        pass


def test_a_login_that_hangs_is_nobodys_fault(browser: None, site: SmallSite, monkeypatch: pytest.MonkeyPatch) -> None:
    assert LOGIN_S > 1
    monkeypatch.setattr("envs.webarena.browser.login_steps.LOGIN_S", 1.0)
    env = WebEnv(LoggedInAtAHangingShop(site))
    with pytest.raises(SitesLost, match="shopping of hanging"):
        env.reset(options={"record": {**record(), "storage_state": "./.auth/shopping_state.json"}})
