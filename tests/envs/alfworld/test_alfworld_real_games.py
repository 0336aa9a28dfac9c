"""The 134 real games of valid_unseen on the engine: read from their files, played in the old grammar, and won."""

from __future__ import annotations

import io
import json
import tarfile
from collections import Counter
from pathlib import Path

import pytest
from alfworld_players import Meddler
from alfworld_walkthrough import walkthrough

from envs.alfworld.games.catalogue import TASK_TYPES
from envs.alfworld.games.game import Game
from envs.alfworld.games.game_file import read_game, read_with_digests
from envs.alfworld.play import Play


@pytest.fixture(scope="module")
def games(real_archive: Path) -> dict[str, Game]:
    return {name: game for name, (game, _) in read_with_digests(real_archive).items()}


def test_all_are_read_and_won_by_commands_that_are_admissible(games: dict[str, Game]) -> None:
    assert Counter(name.split("-")[0] for name in games) == dict(zip(TASK_TYPES, (24, 18, 31, 23, 21, 17), strict=True))
    for name, game in games.items():
        play = Play(game)
        assert game.grammar == "old"
        assert not play.won
        for command in walkthrough(game):
            assert command in play.admissible(), (name, command)
            play.step(command)
        assert play.won, name


def test_what_is_admissible_does_something_and_nothing_else_does(games: dict[str, Game]) -> None:
    for seed, game in enumerate(list(games.values())[::12]):
        play = Play(game)
        meddler = Meddler(play, seed)
        for _ in range(60):
            command = meddler.choose()
            possible = command.strip() in play.admissible()
            answer = play.step(command)
            meddler.observe(command, answer)
            assert (answer != "Nothing happens.") == possible, command


def test_one_arrives_at_locations_that_furniture_shares(games: dict[str, Game]) -> None:
    game = next(game for game in games.values() if max(map(len, game.at.values())) > 1)
    location, (first, second, *_) = next((at, there) for at, there in game.at.items() if len(there) > 1)
    play = Play(game)
    assert play.step(f"go to {second.name}").startswith(f"You arrive at {location}. ")
    assert play.step(f"go to {first.name}") == "Nothing happens."
    assert f"{first.name}" in play.step("look")
    assert play.step(f"examine {first.name}") != "Nothing happens."


def test_impossible_commands_change_nothing(games: dict[str, Game]) -> None:
    play = Play(next(iter(games.values())))
    for command in (
        *("toggle x", "go to nowhere 1", "take a from b", "put a in/on b", "move a to b", "open", "", "use"),
        *("help", "GO TO", "inventory x", "slice a with b", "examine a"),
    ):
        assert play.step(command) == "Nothing happens."


def test_a_knife_slices_what_lies_where_one_stands(games: dict[str, Game]) -> None:
    for game in games.values():
        knife = next((t.name for t in game.things if t.kind in ("knife", "butterknife")), "")
        places, lying = dict(game.start.inside), dict(game.start.lying)
        spots = {r.location: r.name for r in game.receptacles}
        for thing in game.things:
            if knife not in places or not thing.sliceable or lying.get(thing.name) not in spots:
                continue
            play = Play(game)
            play.step(f"go to {places[knife]}")
            play.step(f"open {places[knife]}")
            play.step(f"take {knife} from {places[knife]}")
            play.step(f"go to {spots[lying[thing.name]]}")
            assert f"slice {thing.name} with {knife}" in play.admissible()
            assert play.step(f"slice {thing.name} with {knife}") == f"You sliced the {thing.name} with the {knife}."
            return
    pytest.fail("no game with a knife and something to slice")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"pddl_problem": "(define"}, "brackets do not match"),
        ({"pddl_domain": "(define (domain alfred))"}, "PDDL domain without the actions that clean, cool, heat"),
        ({"grammar": "none"}, "without the line 'Your task is to: ...'"),
        ({"grammar": 'Your task is to: sing."'}, "0 of the known commands"),
        ({"pddl_problem": 7}, "not a game of ALFWorld"),
    ],
)
def test_a_file_that_is_no_game_is_refused_with_what_is_wrong(real_games, change, complaint) -> None:
    with pytest.raises(ValueError, match=complaint):
        read_game({**next(iter(real_games.values())), **change})


def test_an_archive_with_a_file_that_is_no_game_or_with_none_is_named(tmp_path: Path) -> None:
    path = tmp_path / "games.tar"
    for name, complaint in (("a/b/game.tw-pddl", "games.tar, a/b/game.tw-pddl: not a game"), ("x", "no game.tw-pddl")):
        content = json.dumps({"pddl_problem": "(define"}).encode()
        with tarfile.open(path, "w") as tar:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        with pytest.raises(ValueError, match=complaint):
            read_with_digests(path)
