"""The engine says what textworld says: every text, the won flag and the possible commands, on the same commands."""

import json

import pytest
from alfworld_players import Meddler

from envs.alfworld.engine import Play
from envs.alfworld.games.catalogue import TASK_TYPES
from envs.alfworld.games.game import Game
from envs.alfworld.games.generator import draw_game
from envs.alfworld.games.pddl import write_problem
from envs.alfworld.games.pddl_reader import read_problem
from envs.alfworld.games.textworld_files import textworld_game
from envs.alfworld.games.walkthrough import walkthrough


def assert_same_game(oracle, game: Game, problem: str, *, seed: int, num_steps: int, where: str) -> set[str]:
    """Play both until ``num_steps`` mixed commands and then the expert's are through; returns the texts heard."""
    ours, theirs = Play(game), oracle(textworld_game(problem, game.task, []))
    meddler, texts = Meddler(ours, seed), set()
    assert ours.opening == theirs.text, where
    assert (ours.won, ours.admissible()) == (theirs.won, theirs.admissible()), where
    try:
        for turn in range(num_steps):
            command = meddler.choose()
            answer = ours.step(command)
            meddler.expert.observe(command, answer)
            assert answer == theirs.step(command), f"{where}: turn {turn}, {command!r}"
            assert ours.won == theirs.won, f"{where}: turn {turn}, {command!r}"
            assert ours.admissible() == theirs.admissible(), f"{where}: turn {turn}, {command!r}"
            texts.add(answer)
    finally:
        theirs.close()
    return texts


def assert_walkthrough_wins_both(
    oracle, game: Game, problem: str, commands: list[str], *, seed: int, where: str
) -> None:
    """Follow the walkthrough, with an impossible command before each of its own."""
    ours, theirs = Play(game), oracle(textworld_game(problem, game.task, commands))
    meddler = Meddler(ours, seed)
    assert ours.opening == theirs.text, where
    try:
        for command in commands:
            assert command in theirs.admissible(), f"{where}: {command!r}"
            for said in (meddler.choose_impossible(), command):
                assert ours.step(said) == theirs.step(said), f"{where}: {said!r}"
                assert ours.won == theirs.won, f"{where}: {said!r}"
                assert ours.admissible() == theirs.admissible(), f"{where}: {said!r}"
    finally:
        theirs.close()
    assert ours.won, where


def compare(oracle, split: str, index: int, num_steps: int) -> set[str]:
    spec = draw_game(split, 11, index)
    return assert_same_game(
        oracle,
        Game.from_spec(spec),
        write_problem(spec),
        seed=index,
        num_steps=num_steps,
        where=f"{split} {index} {spec.task_type}",
    )


def test_a_dozen_games_of_all_six_types_play_like_textworld(oracle):
    texts = set().union(*(compare(oracle, "train", index, 22) for index in range(2 * len(TASK_TYPES))))
    assert "Nothing happens." in texts
    assert any(text.startswith("You pick up") for text in texts)


def test_help_and_every_look_at_a_treated_thing_read_like_textworld(oracle):
    """One game that brings out the rare texts: help, inventory, and an apple that is hot, cool, clean and all of it."""
    spec = draw_game("train", 11, TASK_TYPES.index("pick_heat_then_place_in_recep"))
    game = Game.from_spec(spec)
    ours, theirs = Play(game), oracle(textworld_game(write_problem(spec), spec.task, []))
    commands = walkthrough(game)
    taken = next(i for i, command in enumerate(commands) if command.startswith("take "))
    thing = commands[taken].removeprefix("take ").partition(" from ")[0]
    sink, microwave, fridge = "sinkbasin 1", "microwave 1", "fridge 1"
    rounds = [
        *commands[: taken + 1],
        *("help", "inventory", "look", f"examine {thing}"),
        *(f"go to {microwave}", f"heat {thing} with {microwave}", f"examine {thing}"),
        *(f"go to {fridge}", f"cool {thing} with {fridge}", f"examine {thing}"),
        *(f"go to {sink}", f"clean {thing} with {sink}", f"examine {thing}", "look"),
        *(f"go to {microwave}", f"heat {thing} with {microwave}", f"examine {thing}", f"examine {microwave}"),
    ]
    texts = []
    try:
        for command in rounds:
            texts.append(ours.step(command))
            assert texts[-1] == theirs.step(command), command
            assert ours.admissible() == theirs.admissible(), command
    finally:
        theirs.close()
    heard = "\n".join(texts)
    for words in (
        "Available commands",
        "a hot ",
        "a cold ",
        "a cool and clean ",
        "a hot and clean ",
        "nothing special",
    ):
        assert words in heard


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_three_dozen_generated_games_play_like_textworld(oracle):
    for number, split in enumerate(("train", "heldout", "novel_object")):
        for index in range(100 * (number + 1), 100 * (number + 1) + 12):
            compare(oracle, split, index, 30)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_sixty_games_of_the_test_data_play_like_textworld(oracle, data_dir):
    folders = sorted(path.parent for path in (data_dir / "alfworld/games").rglob("initial_state.pddl"))
    assert len(folders) == 60
    for number, folder in enumerate(folders):
        problem, meta = (folder / "initial_state.pddl").read_text(), json.loads((folder / "meta.json").read_text())
        game = read_problem(problem, meta["task"])
        assert_walkthrough_wins_both(oracle, game, problem, meta["walkthrough"], seed=number, where=folder.name)
