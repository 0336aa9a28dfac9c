"""Judges whether an answer means the same as a reference: no judge, or a model whose answers are stored and replayed.

Rules never imitate a judge: with ``NoJudge`` an answer that needs one raises ``NoVerdict``, and the caller reports the
bounds of the score. The wording of the questions is the project's own, the parsing of replies is upstream's
(libwebarena 0.0.4): "partially correct" and "incorrect" score 0, otherwise "correct" must occur; "different" scores 0,
otherwise "same" must occur."""

import hashlib
import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lemur_ray.host.json_files import toml_beside

Record = Mapping[str, Any]
_QUESTIONS = toml_beside(__file__)


class NoVerdict(Exception):
    """Raised if the score of an answer depends on a judge, and there is none or its reply cannot be parsed."""


class NoJudge:
    """Stands for a missing judge: every question raises NoVerdict."""

    def equivalent(self, record: Record, reference: str, answer: str) -> float:
        raise NoVerdict(f"task {record.get('task_id')}: whether the answer means {reference[:80]!r} needs a judge")

    def same_reason(self, record: Record, answer: str) -> float:
        raise NoVerdict(f"task {record.get('task_id')}: whether the reason is the right one needs a judge")


class StoredAnswers:
    """Answers of judges to questions, in memory or in a file of JSON lines that a later run replays. The newest line
    for a question and judge counts. Lines without a judge belong to the judge named ""."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._answers: dict[tuple[str, str], str] = {}
        if file is not None and file.is_file():
            for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
                try:
                    row = json.loads(line)
                    self._answers[str(row.get("judge", "")), str(row["question_sha256"])] = str(row["answer"])
                except (ValueError, KeyError, TypeError, AttributeError) as error:
                    if number == 1:
                        raise ValueError(f"{file}:{number}: no recorded answer of a judge: {error}") from error

    def only_judge(self) -> str:
        """Return the name of the only judge with answers; empty if there is none. ValueError for several."""
        judges = sorted({who for who, _ in self._answers})
        if len(judges) > 1:
            raise ValueError(f"{self._file}: answers of several judges ({', '.join(judges)}); expected those of one")
        return judges[0] if judges else ""

    def of(self, question: str, who: str) -> str | None:
        """Return the stored answer of judge ``who`` to a question, or None."""
        with self._lock:
            return self._answers.get((who, _digest(question)))

    def keep(self, question: str, who: str, answer: str) -> None:
        key = who, _digest(question)
        with self._lock:
            if self._answers.get(key) == answer:
                return
            self._answers[key] = answer
            if self._file is not None:
                self._file.parent.mkdir(parents=True, exist_ok=True)
                row = {"judge": who, "question_sha256": key[1], "answer": answer, "question": question}
                with self._file.open("a", encoding="utf-8") as out:
                    out.write(json.dumps(row) + "\n")


def _digest(question: str) -> str:
    return hashlib.sha256(question.encode("utf-8", "replace")).hexdigest()


MOST_CHARS = 8000
"""Maximum characters of an answer that a judge is shown. References are single sentences."""
Ask = Callable[[str], str]
"""Sends a question to a model and returns its reply. ExternalCallError without one, NoVerdict due to the question."""


class AskingJudge:
    """Judge that asks a model by ``ask``, each question once. Replies that can be parsed are stored in ``kept``.
    ``who``: name of the model, whose stored answers alone are used; empty: that of the only judge in ``kept``."""

    def __init__(self, ask: Ask, kept: StoredAnswers | None = None, who: str = "") -> None:
        """Raise ValueError if ``who`` is empty and ``kept`` has answers of several judges."""
        self._ask = ask
        self._kept = kept or StoredAnswers(None)
        self._who = who or self._kept.only_judge()

    def equivalent(self, record: Record, reference: str, answer: str) -> float:
        """Return 1 if the answer means the same as the reference, else 0."""
        reply = self._answer("equivalent", record, reference, answer, "correct")
        return 0.0 if "partially correct" in reply or "incorrect" in reply else 1.0

    def same_reason(self, record: Record, answer: str) -> float:
        """Return 1 if the answer names the reason why the task cannot be done, else 0."""
        note = record["eval"].get("string_note", "")
        reply = self._answer("same_reason", record, note, answer, "same", "different")
        return 0.0 if "different" in reply else 1.0

    def _answer(self, name: str, record: Record, reference: str, answer: str, *readable: str) -> str:
        """Return the judge's reply, stored or new, in lower case. Raises NoVerdict if it has none of ``readable``."""
        question = _QUESTIONS[name].format(intent=record["intent"], reference=reference, answer=answer[:MOST_CHARS])
        reply = self._kept.of(question, self._who)
        if reply is None or not any(word in reply.lower() for word in readable):
            reply = self._ask(question)
            if not any(word in reply.lower() for word in readable):
                raise NoVerdict(f"the judge said neither {readable[0]!r} nor its opposite: {reply[:200]!r}")
            self._kept.keep(question, self._who, reply)
        return reply.lower()


Judge = NoJudge | AskingJudge
"""Scores answers that rules cannot score. Raises NoVerdict if undecided, ExternalCallError without a reply."""
