"""Which weights are chosen if updates of several replicas meet, without a cluster: handles and the store are fakes."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from lemur_ray.serve import loading
from lemur_ray.serve.config import EngineOptions
from lemur_ray.serve.engine.compute_protocol import CacheSizes
from lemur_ray.serve.engine.engine import Engine
from lemur_ray.serve.on_ray import weight_updates
from lemur_ray.serve.on_ray.replica import ChatModel
from lemur_ray.serve.on_ray.weight_updates import update_all
from lemur_ray.serve.on_ray.weights_record import Choice, WeightsRecord, internal_kv
from lemur_ray.storage.retry_policy import BucketError
from tests.serve.tiny import TINY, TOKENIZER

SIZES = CacheSizes(context=128, num_blocks=2, table_width=1, block=128, tile=32)


@pytest.fixture(autouse=True)
def store(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The key-value store of a cluster's head."""
    kept: dict[str, str] = {}

    def put(key: str, value: str, overwrite: bool, namespace: str) -> bool:
        return kept.setdefault(key, value) is not value

    def keys(prefix: str, namespace: str) -> list[bytes]:
        return [key.encode() for key in kept if key.startswith(prefix)]

    monkeypatch.setattr(internal_kv, "_internal_kv_put", put)
    monkeypatch.setattr(internal_kv, "_internal_kv_list", keys)
    monkeypatch.setattr(internal_kv, "_internal_kv_get", lambda key, namespace: kept.get(key.decode()))
    monkeypatch.setattr(internal_kv, "_internal_kv_del", lambda key, namespace: kept.pop(key, None))
    return kept


def test_of_two_updates_with_one_number_the_first_is_recorded() -> None:
    record, other = WeightsRecord("a"), WeightsRecord("b")
    assert record.read() == Choice()
    assert record.add(Choice(1, "first", "v1"))
    assert not record.add(Choice(1, "second", "v2"))
    assert record.read() == Choice(1, "first", "v1")
    assert other.read() == Choice()
    for number in range(2, 13):
        assert record.add(Choice(number, "next", f"v{number}"))
    assert record.read() == Choice(12, "next", "v12")


def test_an_update_that_two_others_overtook_is_not_recorded(store: dict[str, str]) -> None:
    record = WeightsRecord("a")
    assert record.add(Choice(1, "first", "v1"))
    assert record.add(Choice(2, "second", "v2"))
    assert not record.add(Choice(1, "late", "v9")), "its number is free again"
    assert record.read() == Choice(2, "second", "v2")
    assert len(store) == 1


class FakeReplica:
    """A replica whose engine has weights by name; their version is "v-" and the name."""

    weights_target, commit_weights, _switch = ChatModel.weights_target, ChatModel.commit_weights, ChatModel._switch

    def __init__(self) -> None:
        self._record, self._choice, self._switching = WeightsRecord("app"), Choice(), threading.Lock()
        self._served: Any = SimpleNamespace(engine=self, version="v-old")

    async def stage_weights(self, spec: str) -> str:
        return "v-" + spec.rpartition(":")[2]

    async def drop_weights(self) -> None:
        pass


class Handle:
    """A handle that calls each replica. meanwhile: called before the method of that name."""

    def __init__(self, replicas: list[FakeReplica], meanwhile: dict[str, Callable[[], object]]):
        self._replicas, self._meanwhile = replicas, meanwhile
        self.weights_target = SimpleNamespace(remote=lambda spec: self._one("weights_target", spec))

    def broadcast(self, name: str, *arguments: Any) -> Any:
        if name in self._meanwhile:
            self._meanwhile.pop(name)()
        import asyncio

        answers = [asyncio.run(getattr(replica, name)(*arguments)) for replica in self._replicas]
        return SimpleNamespace(results=lambda timeout_s, return_exceptions=False: answers)

    def _one(self, name: str, *arguments: Any) -> Any:
        (answer,) = Handle(self._replicas[:1], {}).broadcast(name, *arguments).results(1)
        return SimpleNamespace(result=lambda timeout_s: answer)


@pytest.fixture
def replicas(monkeypatch: pytest.MonkeyPatch) -> list[FakeReplica]:
    def commit(replica: FakeReplica, spec: str, version: str) -> str:
        replica._served.version = version
        return version

    monkeypatch.setattr("lemur_ray.serve.on_ray.replica.commit_weights", commit)
    return [FakeReplica(), FakeReplica()]


def handles(monkeypatch: pytest.MonkeyPatch, **by_name: Handle) -> None:
    monkeypatch.setattr(weight_updates.serve, "get_app_handle", by_name.get)


def versions(replicas: list[FakeReplica]) -> list[str]:
    return [replica._served.version for replica in replicas]


def test_of_two_updates_at_once_one_reaches_all_replicas_and_the_other_is_refused(
    monkeypatch: pytest.MonkeyPatch, replicas: list[FakeReplica]
) -> None:
    def other() -> None:
        assert update_all("plain", "random:first") == ["v-first"] * 2

    handles(monkeypatch, plain=Handle(replicas, {}), slow=Handle(replicas, {"stage_weights": other}))
    with pytest.raises(RuntimeError, match="random:second: another update to random:first was faster: update again"):
        update_all("slow", "random:second")
    assert versions(replicas) == ["v-first"] * 2
    assert update_all("plain", "random:second") == ["v-second"] * 2


def test_a_commit_that_arrives_after_a_later_one_changes_nothing_and_is_refused(
    monkeypatch: pytest.MonkeyPatch, replicas: list[FakeReplica]
) -> None:
    def other() -> None:
        assert update_all("plain", "random:second") == ["v-second"] * 2

    handles(monkeypatch, plain=Handle(replicas, {}), slow=Handle(replicas, {"commit_weights": other}))
    with pytest.raises(RuntimeError, match="random:first was replaced by an update to random:second"):
        update_all("slow", "random:first")
    assert versions(replicas) == ["v-second"] * 2


def test_a_model_whose_chosen_weights_have_changed_since_is_not_served(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = SimpleNamespace(source=SimpleNamespace(config=TINY), tokenizer=TOKENIZER, version="8-def")
    monkeypatch.setattr(loading, "open_chat_model", lambda spec: opened)
    with pytest.raises(RuntimeError, match="run has the weights 8-def by now, not 7-abc: put those"):
        loading.load_text_engine("run", EngineOptions(max_slots=2), weights=("run", "7-abc"))


def test_a_failed_switch_is_attempted_again_until_it_succeeds_or_three_have_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replica, ended, attempts = FakeReplica(), threading.Event(), list[str]()

    def commit(engine: object, spec: str, version: str) -> None:
        attempts.append(spec)
        if spec == "away" and len(attempts) == 3:
            assert replica._record.add(Choice(2, "slow", "v-slow"))
        if spec == "away" or len(attempts) < 5:
            raise (ValueError if len(attempts) == 2 else BucketError)("the bucket does not answer")
        ended.set()

    monkeypatch.setattr("lemur_ray.serve.on_ray.replica.commit_weights", commit)
    monkeypatch.setattr("lemur_ray.serve.on_ray.weights_record.CHECK_S", 0.01)
    assert replica._record.add(Choice(1, "away", "v-away"))
    replica._record.watch(replica._switch, ended)  # type: ignore[arg-type, misc]
    assert attempts == ["away"] * 3 + ["slow"] * 2
    assert replica._choice == Choice(2, "slow", "v-slow")


def test_what_is_staged_for_a_switch_is_not_dropped_by_an_update_that_was_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replica, dropped, dropping = FakeReplica(), list[str](), list[threading.Thread]()
    replica._served.engine = SimpleNamespace(drop=lambda: dropped.append(replica._choice.version))

    def commit(engine: object, spec: str, version: str) -> None:
        dropping.append(threading.Thread(target=ChatModel._drop, args=(replica,)))
        dropping[0].start()
        dropping[0].join(0.1)
        assert not dropped

    monkeypatch.setattr("lemur_ray.serve.on_ray.replica.commit_weights", commit)
    replica._switch(Choice(1, "winner", "v-winner"))  # type: ignore[misc]
    dropping[0].join()
    assert dropped == ["v-winner"]


@pytest.mark.parametrize("others", ["dropped", "v-other"])
def test_weights_that_another_update_replaces_before_they_are_committed_are_staged_again(
    monkeypatch: pytest.MonkeyPatch, others: str
) -> None:
    """Between the look at what is staged and the commit."""
    engine = Engine(SimpleNamespace(options=EngineOptions(), config=TINY, sizes=SIZES, num_devices=1), "v-old")  # type: ignore[arg-type]
    staged = list[str]()

    def stage(engine: Engine, spec: str) -> str:
        staged.append(spec)
        engine._staged = "v-new", object()
        return "v-new"

    plain = engine.commit

    def commit(version: str) -> Future[None]:
        if len(staged) == 1:
            engine._staged = None if others == "dropped" else (others, object())
        done = plain(version)
        done.set_result(None)
        return done

    monkeypatch.setattr(loading, "stage_weights", stage)
    engine.commit = commit  # type: ignore[assignment, method-assign]
    assert loading.commit_weights(engine, "new", "v-new") == "v-new"
    assert staged == ["new", "new"]
