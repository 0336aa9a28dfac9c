"""The engine alone: what a play keeps to itself, what it refuses, and how fast it is."""

import pickle
import random
import time
from concurrent.futures import ThreadPoolExecutor

from alfworld_players import Meddler, play_expert
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.alfworld.games.catalogue import TASK_TYPES
from envs.alfworld.games.game import Game
from envs.alfworld.games.generator import draw_game
from envs.alfworld.play import Play

GAMES = [Game.from_spec(draw_game("train", 5, index)) for index in range(2 * len(TASK_TYPES))]


def test_every_admissible_command_does_something_and_every_other_changes_nothing():
    for seed, game in enumerate(GAMES):
        play = Play(game)
        meddler = Meddler(play, seed)
        for _ in range(60):
            command, before = meddler.choose(), pickle.dumps(play.world)
            possible = command.strip() in play.admissible()
            answer = play.step(command)
            meddler.observe(command, answer)
            assert (answer != "Nothing happens.") == possible, command
            if not possible:
                assert pickle.dumps(play.world) == before, command


@settings(max_examples=300, deadline=None)
@given(command=st.text(max_size=80), index=st.integers(0, len(GAMES) - 1))
def test_no_text_breaks_a_game(command, index):
    play = Play(GAMES[index])
    play.step(f"go to {play.game.receptacles[0].name}")
    assert isinstance(play.step(command), str)
    assert not play.won


@settings(max_examples=200, deadline=None)
@given(
    verb=st.sampled_from(["go to", "open", "close", "take", "move", "clean", "heat", "cool", "use", "examine"]),
    names=st.lists(st.sampled_from(["mug 1", "mug", "1", "from", "to", "with", "desk 1", "", "agent1"]), max_size=5),
)
def test_half_formed_commands_are_answered(verb, names):
    play = Play(GAMES[0])
    assert play.step(" ".join([verb, *names])) != ""


def test_two_plays_of_one_game_share_nothing():
    game = GAMES[3]
    fresh, played = Play(game), Play(game)
    for command, _ in play_expert(game):
        played.step(command)
    assert played.won
    assert not fresh.won
    assert pickle.dumps(fresh.world) == pickle.dumps(Play(game).world)


def test_a_play_can_be_pickled_in_the_middle_and_goes_on_the_same():
    for game in GAMES:
        play, turns = Play(game), play_expert(game)
        for command, _ in turns[: len(turns) // 2]:
            play.step(command)
        copied = pickle.loads(pickle.dumps(play))
        for command, answer in turns[len(turns) // 2 :]:
            assert copied.admissible() == play.admissible()
            assert copied.step(command) == play.step(command) == answer
        assert copied.won
        assert copied.game == game


def test_six_threads_play_six_games_of_six_types_and_all_win():
    def play_often(index: int) -> list[bool]:
        rng, won = random.Random(index), []
        for _ in range(20):
            game = GAMES[(index + 6 * rng.randrange(2)) % len(GAMES)]
            play = Play(game)
            for command, answer in play_expert(game):
                assert play.step(command) == answer
            won.append(play.won)
        return won

    with ThreadPoolExecutor(6) as pool:
        assert all(all(won) for won in pool.map(play_often, range(6)))


def test_a_step_costs_less_than_fifty_microseconds():
    """20,000 steps a second without admissible commands; the best of three, in CPU time. Measured: 250,000."""
    scripts = [(game, [command for command, _ in play_expert(game)]) for game in GAMES]
    seconds = []
    for _ in range(3):
        started = time.process_time()
        for _ in range(10):
            for game, commands in scripts:
                play = Play(game)
                for command in commands:
                    play.step(command)
        seconds.append(time.process_time() - started)
    assert 10 * sum(len(commands) for _, commands in scripts) / min(seconds) >= 20_000
