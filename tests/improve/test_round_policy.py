"""Who plays a turn, and what is trained of it."""

import itertools
from dataclasses import dataclass, replace

import pytest

from envs.alfworld.demonstrations import demonstrations
from envs.alfworld.tasks import games
from lemur_ray.agents.baselines.scripted import HintsMissing
from lemur_ray.agents.messages import ChatReply, ChatRequest, Message, PolicyUnreachable, Sampling, Trace
from lemur_ray.agents.trajectory import Episode, EpisodeKey, Outcome
from lemur_ray.improve.outcome import round_numbers
from lemur_ray.improve.round_policy import RoundPolicy, RoundPolicySpec, means, model_plays
from lemur_ray.improve.training_rows import examples_of, rows_of
from lemur_ray.rollout.attempt import EpisodeSpec
from lemur_ray.rollout.episode import run_episode
from lemur_ray.text.tokenizer import Tokenizer

HINTS = {"expert": "go to desk 1", "reply": "find: mug? no\ngo to desk 1"}
QUESTION = ChatRequest((Message("user", "?"),), episode="a|b|c|d|0", hints=HINTS, turn=0)


class Model:
    """A policy that always gives one reply."""

    name, wants_hints = "model", False

    def __init__(self, text: str, version: str = "3-ab") -> None:
        self.text, self.version, self.episodes = text, version, list[str]()

    def reply(self, request: ChatRequest) -> ChatReply:
        self.episodes.append(request.episode)
        return ChatReply(self.text, version=self.version, token_ids=(1, 2))


def policy(model: Model | None, share: float) -> RoundPolicy:
    return RoundPolicySpec((lambda: model) if model else None, "3-ab", share)()


@pytest.mark.parametrize(
    ("reply", "same"),
    [
        ("go to desk 1", True),
        ("I look.\n> Go to  desk 1.", True),
        ("```\n'go to desk 1'\n```", True),
        ("go to desk 2", False),
        ("go to desk 1\nlook", False),
        ("", False),
        (" \n.\n", False),
    ],
)
def test_a_reply_means_the_teacher_s_command_in_other_words(reply: str, same: bool) -> None:
    assert means(reply, "go to desk 1") is same


def test_a_reply_that_agrees_is_replaced_by_the_teacher_s_wording_and_trained() -> None:
    reply = policy(Model("go to desk 1"), 0.999999).reply(QUESTION)
    assert (reply.text, reply.instead, reply.weight, reply.token_ids) == (HINTS["reply"], "go to desk 1", 1, ())


def test_without_a_wording_of_the_teacher_the_whole_text_decides() -> None:
    program = replace(QUESTION, hints={"expert": "def f(x):\n    y = x + 1\n    return y"})
    for text, weight in (("def f(x):\n    y = x - 1\n    return y", 0), (program.hints["expert"] + "\n", 1)):
        assert policy(Model(text), 0.999999).reply(program).weight == weight


def test_another_reply_is_played_and_not_trained() -> None:
    reply = policy(Model("look"), 0.999999).reply(QUESTION)
    assert (reply.text, reply.instead, reply.weight) == ("look", "", 0)


def test_the_model_is_not_asked_in_a_turn_of_the_teacher() -> None:
    model = Model("look")
    reply = policy(model, 0.0).reply(QUESTION)
    assert (reply.text, reply.weight, model.episodes) == (HINTS["reply"], 1, [])


def test_without_a_teacher_the_model_gets_no_hints_and_its_own_episode() -> None:
    model = Model("look")
    alone = policy(model, 1.0)
    assert not alone.wants_hints
    assert alone.reply(QUESTION).text == "look"
    assert model.episodes == [QUESTION.episode]


def test_a_silent_teacher_and_another_version_of_the_weights_are_errors() -> None:
    with pytest.raises(HintsMissing, match="no reply of an expert"):
        policy(None, 0.0).reply(ChatRequest((Message("user", "?"),), hints={"admissible": ["look"]}))
    with pytest.raises(PolicyUnreachable, match="version '4-cd', expected '3-ab'"):
        policy(Model("look", "4-cd"), 1.0).reply(QUESTION)


def test_the_coin_depends_on_seed_episode_and_turn_alone_and_has_its_share() -> None:
    flips = [model_plays(0, "a", turn, 0.3) for turn in range(4000)]
    assert flips == [model_plays(0, "a", turn, 0.3) for turn in range(4000)]
    assert flips != [model_plays(1, "a", turn, 0.3) for turn in range(4000)]
    assert sum(flips) / 4000 == pytest.approx(0.3, abs=0.03)


def played(share: float, model: Model | None, count: int = 6) -> list[Episode]:
    """ALFWorld's first training games, played with their expert."""
    episodes = []
    for task in itertools.islice(games("train", prompt="brief"), count):
        key = EpisodeKey(task.benchmark, task.id, "p", "r")
        attempt = run_episode(EpisodeSpec(key, task), policy(model, share), clock=lambda: 0.0)
        episodes.append(Episode(key, "", attempt.outcome, attempt.score, 1, attempt.trajectory))
    return episodes


def test_a_teacher_that_plays_every_turn_gives_the_demonstrations_byte_for_byte() -> None:
    episodes = played(0.0, None)
    expected = [messages for _, messages in demonstrations(6)]
    examples = examples_of(episodes, "teacher", [episode.key.task for episode in episodes])
    assert [example.messages for example in examples] == expected
    assert all(episode.outcome is Outcome.SOLVED for episode in episodes)
    assert rows_of(examples, Tokenizer.bytes_only(), 4096) is not None


def test_the_teacher_leads_on_from_wherever_the_model_has_gone() -> None:
    episodes = played(0.5, Model("go to nowhere 7"))
    assert all(episode.outcome is Outcome.SOLVED for episode in episodes)
    steps = [step for episode in episodes for step in episode.trajectory.steps]
    assert {step.valid for step in steps if not step.weight} == {False}
    numbers = round_numbers(episodes, teaches=True)
    assert (numbers["agreed"], numbers["refused"]) == (0, numbers["own_turns"])
    again = [Episode.from_json(episode.to_json()) for episode in episodes]
    assert [episode.trajectory for episode in again] == [episode.trajectory for episode in episodes]


@dataclass
class Tracing(Model):
    """A model that traces a reply if it is asked to."""

    traced: bool = True

    def __post_init__(self) -> None:
        Model.__init__(self, "go")

    def reply(self, request: ChatRequest) -> ChatReply:
        trace = Trace((1,), (2,), (-1.0,)) if request.trace and self.traced else None
        return replace(super().reply(request), trace=trace)


def test_traced_replies_are_drawn_from_the_model_s_own_distribution() -> None:
    traced = RoundPolicySpec(Tracing, "3-ab", traces=True)()
    question = replace(QUESTION, sampling=Sampling(temperature=1.0))
    assert traced.reply(question).trace == Trace((1,), (2,), (-1.0,))
    assert RoundPolicySpec(Tracing, "3-ab")().reply(question).trace is None
    for other in (Sampling(), Sampling(temperature=1.0, top_p=0.9), Sampling(temperature=1.0, top_k=4)):
        with pytest.raises(ValueError, match=r"expected \(1, 1, 0\)"):
            traced.reply(replace(QUESTION, sampling=other))
    with pytest.raises(PolicyUnreachable, match="returns no ids and log-probabilities"):
        RoundPolicySpec(lambda: Tracing(traced=False), "3-ab", traces=True)().reply(question)
