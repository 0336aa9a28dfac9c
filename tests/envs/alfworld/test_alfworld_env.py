"""ALFWorldText-v0 as an environment, and the lists of tasks for it."""

import itertools
import json
import os
import pickle
import subprocess
import sys
from collections import Counter
from pathlib import Path

import gymnasium
import pytest
from alfworld_triples import triple, triples
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.alfworld.games.catalogue import TASK_TYPES
from envs.alfworld.games.generator import draw_game
from envs.alfworld.games.triples import SPLITS, partition
from envs.alfworld.tasks import games

ROOT = Path(__file__).resolve().parents[3]
ENV_ID = "envs:lemur/ALFWorldText-v0"


def load_tasks(split="heldout", limit=120, seed=0, **more):
    return list(itertools.islice(games(split, seed, **more), limit))


@pytest.fixture
def env():
    made = gymnasium.make(ENV_ID)
    yield made
    made.close()


def play_expert_hints(env, options):
    """Follow the hints; returns (observations, rewards, last terminated, last truncated, last info)."""
    observation, info = env.reset(options={**options, "hints": True})
    observations, rewards = [observation], []
    while True:
        assert info["hints"]["expert"] in info["hints"]["admissible"]
        observation, reward, terminated, truncated, info = env.step(info["hints"]["expert"])
        observations.append(observation)
        rewards.append(reward)
        if terminated or truncated:
            return observations, rewards, terminated, truncated, info


def test_it_passes_gymnasiums_own_check_without_a_warning(env):
    check_env(env.unwrapped)


def test_a_fresh_process_makes_it_by_name_and_plays():
    code = (
        "import gymnasium; e = gymnasium.make('envs:lemur/ALFWorldText-v0');"
        "o, i = e.reset(seed=3, options={'index': 4}); print(e.step('look')[0]);"
        "import sys; assert not {'jax', 'ray', 'torch', 'textworld', 'alfworld'} & set(sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd="/", env=environment, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("You are in the middle of a room.")


def test_the_expert_behind_the_hints_wins_all_six_types(env):
    for task in load_tasks(limit=12):
        _, rewards, terminated, truncated, info = play_expert_hints(env, task.options)
        assert rewards == [0.0] * (len(rewards) - 1) + [1.0]
        assert (terminated, truncated, info["solved"], info["outcome"]) == (True, False, True, "solved")


def test_fifty_turns_without_a_win_are_truncated_and_then_no_step_is_taken(env):
    env.reset(options={"index": 0})
    for turn in range(50):
        _, reward, terminated, truncated, info = env.step("look")
        assert (reward, terminated, truncated) == (0.0, False, turn == 49)
    assert (info["outcome"], info["solved"], info["valid"]) == ("turn_limit", False, True)
    with pytest.raises(RuntimeError, match="call reset"):
        env.unwrapped.step("look")


@pytest.mark.parametrize("reply", ["", "\x00", "x" * 200_000, "dance", "go to moon 1", "\ud800"])
def test_a_reply_that_cannot_be_carried_out_is_invalid_and_costs_a_turn(env, reply):
    env.reset(options={"index": 1, "max_steps": 2})
    observation, reward, terminated, truncated, info = env.step(reply)
    assert (observation, reward, terminated, truncated) == ("Nothing happens.", 0.0, False, False)
    assert info["valid"] is False
    assert env.step("look")[3] is True


def test_info_says_which_command_was_understood(env):
    env.reset(options={"index": 1})
    _, _, _, _, info = env.step("Let me see.\n> look")
    assert (info["action"], info["valid"]) == ("look", True)
    _, _, _, _, info = env.step("> Look")
    assert (info["action"], info["valid"]) == ("Look", False)
    assert env.step("")[4]["action"] is None


def test_the_state_is_the_same_where_the_same_choice_lies_ahead(env):
    _, info = env.reset(options={"index": 1, "hints": True})
    start = info["state"]
    first, second = [one for one in info["hints"]["admissible"] if one.startswith("go to ")][:2]
    away = env.step(first)[4]["state"]
    assert away != start
    assert env.step("look")[4]["state"] == env.step("no command")[4]["state"] == away
    assert env.step(second)[4]["state"] not in (start, away)
    assert env.step(first)[4]["state"] == away
    assert env.reset(options={"index": 1})[1]["state"] == start


def test_the_full_prompt_explains_the_game_and_the_brief_one_is_two_lines(env):
    observation, info = env.reset(options={"index": 2, "prompt": "full", "max_steps": 33})
    assert observation.startswith("-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room.")
    assert "33 commands" in info["system"]
    for command in ("go to", "open", "close", "take", "move", "clean", "heat", "cool", "use", "examine", "look"):
        assert f"  {command}" in info["system"]
    brief, info = env.reset(options={"index": 2, "prompt": "brief"})
    assert "system" not in info
    task, room = brief.split("\n")
    assert task.startswith("Your task is to: ")
    assert room.startswith("You are in the middle of a room. ")
    assert task in observation
    assert room in observation


def test_without_asking_there_are_no_hints(env):
    _, info = env.reset(options={"index": 0})
    assert set(info) == {"action", "valid", "solved", "state", "system"}
    assert set(env.step("look")[4]) == {"action", "valid", "solved", "state"}


def test_a_whole_game_can_be_given_as_json(env):
    spec = draw_game("train", 9, 3)
    options = {"game": json.loads(json.dumps(spec.to_json())), "prompt": "brief"}
    observations, *_, info = play_expert_hints(env, options)
    assert spec.task in observations[0]
    assert info["solved"]


def test_the_environments_seed_draws_the_game_where_no_index_is_given(env):
    first = env.reset(seed=7)[0]
    assert env.reset(seed=7)[0] == first
    assert len({env.reset(seed=seed)[0] for seed in range(8)}) > 1
    assert env.reset(options={"index": 7})[0] == env.reset(options={"index": 7})[0]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"spilt": "train"}, "unknown option 'spilt': did you mean 'split'?"),
        ({"split": "test"}, "split 'test': expected one of"),
        ({"prompt": "long"}, "option prompt: 'long'"),
        ({"prompt": ["full"]}, "option prompt"),
        ({"index": "3"}, "option index: '3'"),
        ({"index": -3}, "game index -3"),
        ({"index": True}, "option index: True"),
        ({"seed": 1.5}, "option seed: 1.5"),
        ({"max_steps": 0}, "option max_steps: 0"),
        ({"hints": "yes"}, "option hints: 'yes'"),
        ({"game": "a game"}, "option game: a str"),
        ({"game": {}, "index": 1}, "option game excludes"),
        ({"game": {}}, "game spec lacks"),
    ],
)
def test_options_that_mean_nothing_are_refused_and_no_episode_runs(env, options, complaint):
    with pytest.raises(ValueError, match=complaint.replace("?", r"\?")):
        env.reset(options=options)
    with pytest.raises(RuntimeError, match="call reset"):
        env.unwrapped.step("look")


def test_an_episode_can_be_pickled_in_the_middle(env):
    env.reset(options={"index": 3, "hints": True})
    for _ in range(4):
        _, _, _, _, info = env.step("look")
        env = pickle.loads(pickle.dumps(env))
    terminated = truncated = False
    while not (terminated or truncated):
        _, _, terminated, truncated, info = env.step(info["hints"]["expert"])
    assert info["solved"]


@settings(max_examples=200, deadline=None)
@given(replies=st.lists(st.text(alphabet=st.characters(codec=None), max_size=60), max_size=8))
def test_no_reply_breaks_an_episode(replies):
    env = gymnasium.make(ENV_ID).unwrapped
    env.reset(options={"index": 5, "hints": True})
    for reply in replies:
        observation, _, _, _, info = env.step(reply)
        assert observation in env.observation_space
        json.dumps(info)


def test_tasks_are_even_over_the_types_and_their_ids_stay(env):
    tasks = load_tasks()
    assert len(tasks) == 120
    assert Counter(task.category for task in tasks) == dict.fromkeys(TASK_TYPES, 20)
    assert tasks == load_tasks(limit=200)[:120]
    assert [task.id for task in tasks] == [task.id for task in load_tasks(prompt="brief", hints=True)]
    assert tasks[7].id == "heldout-0-00007"
    assert len({task.id for split in SPLITS for seed in (0, 1) for task in load_tasks(split, 30, seed)}) == 180
    assert {task.benchmark for task in tasks} == {"alfworld/text"}
    for task in tasks[:6]:
        json.dumps(dict(task.options))
        observation, _ = env.reset(options=dict(task.options))
        assert draw_game("heldout", 0, tasks.index(task)).task in observation


def test_held_out_tasks_have_goals_that_training_never_poses():
    trained = triples(partition(), "train")
    for split in ("heldout", "novel_object"):
        drawn = [
            draw_game(task.options["split"], task.options["seed"], task.options["index"])
            for task in load_tasks(split, 240)
        ]
        assert not {triple(game) for game in drawn} & trained


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [({"split": "x"}, "split 'x'"), ({"prompt": "x"}, "prompt 'x'")],
)
def test_an_unknown_split_or_prompt_is_an_error(arguments, complaint):
    with pytest.raises(ValueError, match=complaint):
        load_tasks(**arguments)
