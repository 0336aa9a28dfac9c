"""The searching expert: wins within the limit, never tries in vain, sees only the texts, and recovers from others."""

import random
import re

import pytest
from alfworld_players import play_expert

from envs.alfworld.demonstrations import demonstrations
from envs.alfworld.expert import Expert
from envs.alfworld.games.catalogue import TASK_LINES, TASK_TYPES
from envs.alfworld.games.game import Game
from envs.alfworld.games.generator import draw_game
from envs.alfworld.games.triples import SPLITS
from envs.alfworld.knowledge import Knowledge, read_goal
from envs.alfworld.play import Play
from envs.alfworld.reply import read_command
from envs.alfworld.sentences import NOTHING_HAPPENS


def replay(game: Game, turns) -> bool:
    play = Play(game)
    for command, answer in turns:
        assert command in play.admissible(), command
        assert play.step(command) == answer
    return play.won


@pytest.mark.parametrize("split", SPLITS)
def test_it_wins_at_least_99_of_100_games_of_every_type_and_is_never_refused(split):
    won = {task_type: [] for task_type in TASK_TYPES}
    for index in range(1200):
        spec = draw_game(split, 21, index)
        game = Game.from_spec(spec)
        turns = play_expert(game)
        assert len(turns) <= 50
        assert all(answer != "Nothing happens." for _, answer in turns)
        won[spec.task_type].append(replay(game, turns))
    for task_type, results in won.items():
        assert sum(results) >= 0.99 * len(results), task_type


def test_it_looks_in_the_order_of_the_room_line_until_it_has_seen_what_it_needs():
    for index in range(60):
        game = Game.from_spec(draw_game("train", 4, index))
        order = [receptacle.name for receptacle in game.receptacles]
        visited = []
        for command, _ in play_expert(game):
            if command.startswith("take "):
                break
            if command.startswith("go to "):
                visited.append(command.removeprefix("go to "))
        assert visited == order[: len(visited)]


def test_the_brief_opening_tells_it_as_much_as_the_full_one():
    play = Play(Game.from_spec(draw_game("train", 6, 1)))
    _, room, task = play.opening.split("\n\n")
    assert Knowledge.from_opening(f"{task}\n{room}") == Knowledge.from_opening(play.opening)


def test_it_recovers_from_whatever_another_player_did_before():
    won = 0
    for index in range(300):
        game = Game.from_spec(draw_game("train", 31, index))
        play, rng = Play(game), random.Random(index)
        expert = Expert(play.opening)
        for _ in range(25):
            command = rng.choice([*play.admissible(), "go nowhere"])
            expert.observe(command, play.step(command))
        for _ in range(50):
            if play.won:
                break
            command = expert.advice()
            assert command in play.admissible()
            expert.observe(command, play.step(command))
        won += play.won
    assert won >= 297


def test_asking_for_advice_twice_changes_nothing():
    play = Play(Game.from_spec(draw_game("train", 31, 2)))
    expert = Expert(play.opening)
    assert expert.advice() == expert.advice()


def test_demonstrations_are_the_expert_s_won_games_in_the_words_of_the_environment():
    talks = list(demonstrations(60))
    assert [name for name, _ in talks] == [f"train-0-{index:05d}" for index in range(60)]
    for index, (_, messages) in enumerate(talks):
        play = Play(Game.from_spec(draw_game("train", 0, index)))
        assert [message.role for message in messages] == ["user", "assistant"] * (len(messages) // 2)
        for said, answered in zip(messages[1::2], [*messages[2::2], None], strict=True):
            answer = play.step(read_command(said.content))
            assert answered is None or answer == answered.content
        assert play.won


def test_slips_are_refused_untrained_and_the_expert_goes_on_to_win():
    count, kinds = 0, {"take": 0, "absent": 0, "here": 0}
    talks = dict(demonstrations(80, slips=0.15))
    assert len(talks) >= 78
    for name, messages in talks.items():
        play = Play(Game.from_spec(draw_game("train", 0, int(name[-5:]))))
        expert = Expert(play.opening)
        for said, answered in zip(messages[1::2], [*messages[2::2], None], strict=True):
            command = read_command(said.content)
            if not said.weight:
                count += 1
                walks = command.startswith("go to ")
                here = walks and command == f"go to {expert.knowledge.here}"
                kinds["here" if here else "absent" if walks else "take"] += 1
                assert answered is not None
                assert answered.content == NOTHING_HAPPENS
            else:
                assert command == expert.advice()
            answer = play.step(command)
            expert.observe(command, answer)
        assert play.won
    turns = sum(len(messages) // 2 for messages in talks.values())
    assert 0.08 < count / turns < 0.16
    assert min(kinds.values()) > 5
    assert talks == dict(demonstrations(80, slips=0.15))
    untrained = [
        message for messages in dict(demonstrations(80)).values() for message in messages if not message.weight
    ]
    assert untrained == []


def test_a_demonstration_says_what_it_looks_for_and_where_it_knows_one():
    seen = 0
    for _, messages in demonstrations(200):
        task, replies = messages[0].content, [message.content for message in messages[1::2]]
        if not (match := re.search(r"put a (\w+) in|examine the (\w+) with the desklamp", task)):
            continue
        seen += 1
        wanted = match[1] or match[2]
        found = next(i for i, reply in enumerate(replies) if "\ntake " in reply)
        for reply in replies[:found]:
            assert reply.startswith((f"find: {wanted}? no\n", f"find: {wanted} ", "open "))
        assert re.fullmatch(rf"find: ({wanted} \d+), (\w+ \d+)\ntake \1 from \2", replies[found])
        if match[2]:
            assert re.fullmatch(r"find: (desklamp \d+), \w+ \d+\nuse \1", replies[-1])
        else:
            assert not any("find" in reply for reply in replies[found + 1 :])
    assert seen > 20


def test_at_shut_furniture_it_says_only_the_command():
    shut = [
        said.content
        for _, messages in demonstrations(30)
        for told, said in zip(messages[::2], messages[1::2], strict=True)
        if told.content.endswith(" is closed.")
    ]
    assert len(shut) > 30
    assert not any("\n" in reply for reply in shut)


def test_every_wording_of_a_task_is_read_back():
    for task_type, lines in TASK_LINES.items():
        for line in lines:
            goal = read_goal(line.format(object="mug", target="sinkbasin"))
            assert (goal.object, goal.target) == ("mug", "sinkbasin")
            assert goal.two == (task_type == "pick_two_obj_and_place")
            assert goal.light == (task_type == "look_at_obj_in_light")


@pytest.mark.parametrize(
    ("opening", "complaint"),
    [
        ("hello", "opening without a task line"),
        ("Your task is to: put a mug in shelf.", "opening without a room line"),
        (
            "Your task is to: sing.\nYou are in the middle of a room. Looking quickly around you, you see a bed 1.",
            "task 'sing' follows none of the known wordings",
        ),
    ],
)
def test_an_opening_that_is_none_is_refused(opening, complaint):
    with pytest.raises(ValueError, match=complaint):
        Expert(opening)
