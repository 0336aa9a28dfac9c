"""Configuration of an instruction table: files of the public sets and all options of their processing.

Defaults follow the paper where it states them (2.2, A.2); docs/guides/instruct.md gives the reasons for the others."""

import dataclasses
import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import tyro

from lemur_ray.config.ranges import FROM_ZERO, check_ranges
from lemur_ray.host.home import resolve_input

Packing = Literal["best_fit", "lemur", "none"]


@dataclass(frozen=True)
class SetsConfig:
    """Files of the instruction sets (several each, .jsonl, .json, .gz or .parquet) and options of their processing."""

    oasst1: tuple[str, ...] = ()
    """Open Assistant 1: trees (*_ready.trees.jsonl.gz) or one message a row."""
    openorca: tuple[str, ...] = ()
    """OpenOrca: the GPT-4 file (1M-GPT4-Augmented.parquet)."""
    sharegpt: tuple[str, ...] = ()
    """ShareGPT and chat logs: lists of {id, conversations}."""
    evol: tuple[str, ...] = ()
    """Evol-CodeAlpaca, Evol-Instruct-Code: rows {instruction, output}."""
    verified: tuple[str, ...] = ()
    """Your own set of verified programs, rows {instruction, output}; the paper's is unreleased."""

    truncate_prompter_leaf: bool = False
    """Open Assistant: cut a path that ends in a question after its last answer, instead of dropping it."""
    top_k_reply: int = 0
    """Open Assistant: number of replies per message to use, best rank first. 0: all."""
    lang: str = ""
    """Open Assistant: only messages of this language code (for example en). Empty: all."""
    openorca_rows: int = 200_000
    """OpenOrca: rows drawn with the seed. 0: all."""
    openorca_system: Literal["omit_empty", "lemur"] = "omit_empty"
    """OpenOrca, empty system prompt: omit_empty makes no system turn; lemur an empty one, as the public converter."""
    sharegpt_html: Literal["auto", "always", "never"] = "auto"
    """ShareGPT: which turns are converted from HTML to Markdown; auto: those that begin and end with a tag."""

    language: str = "en"
    """ShareGPT: language code of the first user turn (needs the extra [instruct]). Empty: no filter."""
    language_probability: float = 0.0
    """ShareGPT: probability below which no language is detected and the row is kept: detection errs on short turns."""
    character_run: int = 3
    """ShareGPT: minimum run of non-Latin letters for which an instruction is dropped. 0: no filter."""
    character_run_unit: Literal["row", "sentence"] = "row"
    """Unit that the filter drops: the conversation, or the sentence of the instruction."""
    near_duplicate: float = 0.95
    """ShareGPT, Evol and verified: drop an instruction whose cosine to an earlier one is above this. 0: no filter."""
    encoder: str = "sentence-transformers:hkunlp/instructor-large"
    """Encoder of instructions: sentence-transformers:MODEL (needs the extra [instruct]), by default that of the paper,
    or hashing:DIM."""
    encoder_prompt: str = "Represent the instruction for finding duplicates: "
    """What a model of sentence-transformers is given before every instruction. Empty: nothing."""
    drop_patterns: tuple[str, ...] = ()
    """Regular expressions (case ignored); a conversation with a match in any turn is dropped, in every set."""
    decontaminate: tuple[str, ...] = ()
    """Benchmark files; conversations that share a 13-gram with any text in them are reported."""
    decontaminate_drop: bool = False
    """Drop conversations that share a 13-gram with a benchmark, instead of only reporting them."""

    packing: Packing = "best_fit"
    """best_fit: several separate examples per row. none: one per row. lemur: as in the paper's released code."""
    sets_seed: int = 0
    """Seed of the draw from OpenOrca and of the order in which examples are packed."""

    def __post_init__(self) -> None:
        check_ranges(
            self,
            top_k_reply=FROM_ZERO,
            openorca_rows=FROM_ZERO,
            character_run=FROM_ZERO,
            near_duplicate=(0, 1),
            language_probability=(0, 1),
            sets_seed=FROM_ZERO,
        )
        kind, _, what = self.encoder.partition(":")
        if kind not in ("sentence-transformers", "hashing") or not what or (kind == "hashing" and not what.isdigit()):
            raise ValueError(f"encoder {self.encoder!r}: expected sentence-transformers:MODEL or hashing:DIM")
        for pattern in self.drop_patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"drop_patterns {pattern!r} is no regular expression: {error}") from error

    @property
    def files(self) -> list[tuple[str, str]]:
        """(name of its data set, file) of every file, in the order of Table 1 and of the options; [] for none."""
        return [(name, file) for name in SET_NAMES for file in getattr(self, name)]

    @property
    def paths(self) -> list[str]:
        """Paths of all input files: those of the data sets, then those of benchmarks."""
        return [*(file for _, file in self.files), *self.decontaminate]


@dataclass(frozen=True)
class TalksConfig:
    """Conversations to tune on that are none of the public sets: the user's own, and the demo's."""

    games: int = 6000
    """Number of games of the searching expert (split train) in the demo's conversations."""
    conversations: tuple[str, ...] = ()
    """Files of your own conversations, as OpenAI and TRL write them (JSON lines or parquet, also in a bucket or
    hf://datasets/OWNER/NAME), or of jobs/export_sft.py. They are tuned on alone."""
    demo: bool = False
    """With --conversations: tune on the demo's games and questions, too. Without: they are what is tuned on."""
    chats: int = 400
    """Number of questions about functions of the Python standard library in the demo's conversations."""
    slips: float = 0.0
    """Share of the turns of these games before which the player makes a mistake that the game refuses; mistakes are not
    trained, the expert's way on is."""

    def __post_init__(self) -> None:
        """Find files in the working directory, too. Raise ValueError for options of the demo's conversations where
        those are not tuned on."""
        object.__setattr__(self, "conversations", tuple(map(resolve_input, self.conversations)))
        if not 0 <= self.slips < 1:
            raise ValueError(f"--slips {self.slips:g}: expected a share from 0 to below 1")
        for name in ("games", "chats", "slips"):
            value = getattr(self, name)
            if self.conversations and not self.demo and value != getattr(TalksConfig, name):
                raise ValueError(f"--{name} {value} beside --conversations: expected --demo with it, or neither")


def settings(config: SetsConfig) -> dict[str, Any]:
    """The options as JSON values, from which the name of a table is made. Newer options that change nothing are left
    out, so that earlier tables keep their names."""
    value = dataclasses.asdict(config)
    if config.encoder.startswith("hashing:"):
        del value["encoder_prompt"]
    if not config.language_probability:
        del value["language_probability"]
    return value


Talks = Annotated[TalksConfig, tyro.conf.arg(name="")]
"""``TalksConfig`` as command-line flags without a prefix."""
Sets = Annotated[SetsConfig, tyro.conf.arg(name="")]
"""``SetsConfig`` as command-line flags without a prefix."""
Template = Annotated[
    str,
    tyro.conf.arg(
        help="How chats are written: a file with a Jinja template, or chatml. Empty: as the model that starts the run "
        "says, and ChatML where it says nothing."
    ),
]
SET_NAMES = ("oasst1", "openorca", "sharegpt", "evol", "verified")
FILTERED_BY_TEXT = ("sharegpt",)
"""Sets whose instructions pass the language and the character filter (paper A.2.1)."""
WITHOUT_NEAR_DUPLICATES = ("sharegpt", "evol", "verified")
"""Sets that are filtered for near-duplicates (paper A.2.1); verified replaces a set that the paper filtered."""
