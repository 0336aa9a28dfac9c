"""Generated games: possible, deterministic, disjoint by their split, and true to ALFWorld's own tables."""

import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from alfworld_players import Oracle, play_expert, textworld_game
from alfworld_problem_writer import write_problem
from alfworld_triples import triple, triples
from alfworld_walkthrough import walkthrough
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.alfworld.games import catalogue
from envs.alfworld.games.catalogue import LIGHT, NOVEL_OBJECTS, ROOMS, TASK_TYPES, TWO
from envs.alfworld.games.game import Game, shown_names
from envs.alfworld.games.generator import draw_game
from envs.alfworld.games.pddl_problem import read_problem
from envs.alfworld.games.spec import GameSpec
from envs.alfworld.games.triples import SPLITS, feasible_triples, partition
from envs.alfworld.play import Play

ROOT = Path(__file__).resolve().parents[3]


def specs(split: str, seed: int, number: int) -> list[GameSpec]:
    return [draw_game(split, seed, index) for index in range(number)]


@pytest.mark.parametrize("split", SPLITS)
def test_every_generated_game_can_be_won_and_is_not_won_at_the_start(split):
    for spec in specs(split, 3, 240):
        game = Game.from_spec(spec)
        play = Play(game)
        assert not play.won
        for command in walkthrough(game):
            assert play.step(command) != "Nothing happens.", (spec.origin, command)
        assert play.won, spec.origin


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_the_splits_of_any_partition_own_all_goals_and_share_none(seed):
    parts = partition(seed)
    owned = [triples(parts, split) for split in SPLITS]
    assert sum(map(len, owned)) == len(frozenset().union(*owned)) == sum(len(feasible_triples(t)) for t in TASK_TYPES)
    assert all(parts[split][task_type] for split in SPLITS for task_type in TASK_TYPES)
    learned = {thing for _, thing, _ in triples(parts, "train")}
    assert {thing for _, thing, _ in triples(parts, "heldout")} <= learned
    assert {thing for _, thing, _ in triples(parts, "novel_object")} == NOVEL_OBJECTS
    assert not learned & NOVEL_OBJECTS


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**9), index=st.integers(0, 10**6), split=st.sampled_from(SPLITS), part=st.integers(0, 10))
def test_any_game_has_a_goal_of_its_own_split_and_the_task_type_of_its_index(seed, index, split, part):
    spec = draw_game(split, seed, index, part)
    assert triple(spec) in triples(partition(part), split)
    assert spec.task_type == TASK_TYPES[index % 6]


def test_no_goal_of_a_training_game_is_a_goal_of_an_evaluation_game_whatever_the_seeds():
    trained = {triple(spec) for seed in range(4) for spec in specs("train", seed, 600)}
    for split in ("heldout", "novel_object"):
        evaluated = {triple(spec) for seed in range(4) for spec in specs(split, seed, 300)}
        assert not trained & evaluated
    # What a held-out game shows is known apart from its goal: its objects were goals, its furniture targets.
    assert {spec.object for spec in specs("heldout", 0, 300)} <= {thing for _, thing, _ in trained}
    assert not {spec.object for spec in specs("novel_object", 0, 300)} & {thing for _, thing, _ in trained}


def test_a_hundred_and_twenty_held_out_games_are_even_over_the_types_and_hardly_repeat_a_goal():
    games = specs("heldout", 0, 120)
    assert Counter(spec.task_type for spec in games) == dict.fromkeys(TASK_TYPES, 20)
    owned = partition(0)["heldout"]
    for task_type in TASK_TYPES:
        goals = {triple(spec) for spec in games if spec.task_type == task_type}
        assert len(goals) == min(20, len(owned[task_type]))
    assert len({json.dumps(spec.to_json()) for spec in games}) == 120


def test_games_have_the_sizes_and_the_furniture_of_their_rooms():
    games = specs("train", 1, 600)
    for spec in games:
        pieces = Counter(kind for kind, _ in spec.receptacles)
        assert all(fewest <= pieces[kind] <= most for kind, (fewest, most) in ROOMS[spec.room].items())
        assert not set(pieces) - set(ROOMS[spec.room])
        kinds = {identity: kind for kind, identity in spec.receptacles}
        for thing, _, where in spec.things:
            assert thing == "DeskLamp" or thing in catalogue.FITS[kinds[where]]
            if spec.task_type != LIGHT:
                assert (thing, kinds[where]) != (spec.object, spec.target)
        assert sum(thing == spec.object for thing, _, _ in spec.things) >= (2 if spec.task_type == TWO else 1)
    assert {spec.room for spec in games} == set(ROOMS)
    assert min(len(spec.receptacles) for spec in games) >= 7
    assert max(len(spec.receptacles) for spec in games) <= 21
    assert 10 <= sum(len(spec.things) for spec in games) / len(games) <= 14


def fingerprint() -> str:
    games = [draw_game(split, 2, index).to_json() for split in SPLITS for index in range(60)]
    return hashlib.sha256(json.dumps(games).encode()).hexdigest()


@pytest.mark.parametrize("hash_seed", ["1", "77"])
def test_another_process_with_another_hash_seed_draws_the_same_games_and_plays_them_the_same(hash_seed):
    code = (
        "import hashlib, json, sys; sys.path.insert(0, 'tests/envs/alfworld');"
        "from test_alfworld_games import fingerprint, plays; print(fingerprint(), plays())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == [fingerprint(), plays()]


def plays() -> str:
    """Everything said and possible in games full of noise."""
    said = []
    for index in range(12):
        game = Game.from_spec(draw_game("heldout", 2, index))
        play = Play(game)
        for command, answer in play_expert(game, index, noise=0.3):
            play.step(command)
            said.append([command, answer, play.admissible()])
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()


def test_a_game_survives_json_and_a_pddl_problem_unchanged():
    for split in SPLITS:
        for spec in specs(split, 8, 60):
            assert GameSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec
            assert read_problem(write_problem(spec), spec.task) == Game.from_spec(spec)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"task_type": "pick_nothing"}, "task type 'pick_nothing': expected one of"),
        ({"receptacles": [["Throne", "Throne_bar_00"]]}, r"unknown furniture \['Throne'\]"),
        ({"things": [["Mug", "Mug_bar_00_bar_o", "Moon_bar_00"]]}, "start in a receptacle that the game does not have"),
        ({"things": [["Mug", "Mug_bar_00_bar_o"]]}, "expected 3 strings"),
        ({"things": "mugs"}, "expected a list of 3-tuples"),
        ({"colour": "red"}, r"unknown fields \['colour'\]"),
        ({"task": 7}, "must be strings"),
    ],
)
def test_a_wrong_game_spec_is_refused_with_what_is_wrong(change, complaint):
    value = draw_game("train", 0, 0).to_json() | change
    with pytest.raises(ValueError, match=complaint):
        Game.from_spec(GameSpec.from_json(value))


def test_a_doubled_id_is_refused():
    with pytest.raises(ValueError, match="mug_bar_00_bar_o is used twice"):
        shown_names(["Mug_bar_00_bar_o", "mug_bar_00_bar_o"])


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("(:goal", "(:aim", "without"),
        ("(:init", "(:init (sliceable x)", "sliceable of x: without a type"),
        ("(:init", "(:init (holds agent1 x)", r"\['holds'\]: not played here"),
        ("(:init", "(:init (atLocation agent1 loc_bar_01)", "must be at one location"),
        ("(objectType ?", "(objectKind ?", "none of the six task types"),
        ("(define", "((define", "brackets"),
    ],
)
def test_a_problem_that_the_engine_cannot_play_is_an_error(old, new, complaint):
    spec = draw_game("train", 0, 0)
    with pytest.raises(ValueError, match=complaint):
        read_problem(write_problem(spec).replace(old, new), spec.task)


@settings(max_examples=100, deadline=None)
@given(cut=st.integers(0, 4000))
def test_a_cut_off_problem_is_a_value_error(cut):
    spec = draw_game("train", 0, 0)
    problem = write_problem(spec)
    with pytest.raises(ValueError):  # noqa: PT011 - any of several messages
        read_problem(problem[: min(cut, len(problem.rstrip()) - 1)], spec.task)


def test_unknown_splits_and_negative_numbers_are_refused():
    with pytest.raises(ValueError, match="split 'test': expected one of train, heldout, novel_object"):
        draw_game("test", 0, 0)
    with pytest.raises(ValueError, match="game index -1"):
        draw_game("train", 0, -1)


def test_an_unsolvable_game_has_no_walkthrough_and_says_why():
    spec = draw_game("train", 0, 0)
    value = spec.to_json() | {"target": "Safe", "task": "put it away"}
    with pytest.raises(ValueError, match="no safe in the game"):
        walkthrough(Game.from_spec(GameSpec.from_json(value)))


def test_the_sixty_games_of_the_test_data_are_read_and_won_by_their_walkthroughs(data_dir):
    folders = sorted(path.parent for path in (data_dir / "alfworld/games").rglob("initial_state.pddl"))
    assert len(folders) == 60
    for folder in folders:
        meta = json.loads((folder / "meta.json").read_text())
        play = Play(read_problem((folder / "initial_state.pddl").read_text(), meta["task"]))
        for command in meta["walkthrough"]:
            assert command in play.admissible()
            play.step(command)
        assert play.won, folder.name


def test_our_tables_are_those_of_the_alfworld_package(oracle):
    from alfworld.gen import constants

    ours = {thing for things in catalogue.STOCK.values() for thing in things}
    for furniture, things in catalogue.FITS.items():
        assert things == set(constants.VAL_RECEPTACLE_OBJECTS.get(furniture, ())) & ours, furniture
    for verb, key in (("clean", "Cleanable"), ("heat", "Heatable"), ("cool", "Coolable")):
        assert catalogue.TREATABLE[verb] == set(constants.VAL_ACTION_OBJECTS[key]) & ours
    assert set(constants.OPENABLE_CLASS_LIST) & set(catalogue.FITS) == catalogue.OPENABLE
    assert {room_kind for room in ROOMS.values() for room_kind in room} == set(catalogue.FITS)


def test_a_written_game_is_won_in_textworld_by_its_walkthrough(oracle: type[Oracle]) -> None:
    spec = draw_game("novel_object", 0, 4)
    theirs = oracle(textworld_game(write_problem(spec), spec.task))
    for command in walkthrough(Game.from_spec(spec)):
        theirs.step(command)
    assert theirs.won
    theirs.close()
