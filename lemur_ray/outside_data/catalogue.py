"""Declares the paper's training data, Table 1 (instructions) and Table 8 (corpus), as far as it is public today, and
the data of benchmarks that the project does not implement.

Implemented benchmarks declare their own sources. An empty checksum means that none is published. Fetches nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lemur_ray.outside_data.source import DataSet, Source, Stream

_SHAREGPT = "anon8231489123/ShareGPT_Vicuna_unfiltered@192ab2185289094fc556ec8ce5ce1e8e587154ca"
_STACK = "bigcode/the-stack-dedup@17cad72c886a2858e08d4c349a00d6466f54df63"
_TAU_BENCH = "59a200c6d575d595120f1cb70fea53cef0632f6b"
_REDPAJAMA = "togethercomputer/RedPajama-Data-1T@main"
_STACK_TERMS = (
    "The Stack holds source code under the licences of its files, which go on to hold, and its terms ask that only its "
    "newest version is used, since people may have their code taken out"
)
_SHAREGPT_TERMS = (
    "conversations that users shared, collected by others: the card's Apache-2.0 does not settle the rights of these "
    "users and of the provider of the model"
)
_STACK_FIELDS = {
    "text": "content", "licence": "max_stars_repo_licenses", "language": "lang", "origin": "max_stars_repo_name",
}  # fmt: skip
STACK_LANGUAGES = {
    "python": "python", "sql": "sql", "java": "java", "shell": "shell", "notebook": "jupyter-notebook",
    "javascript": "javascript", "c": "c", "php": "php", "cpp": "c++",
}  # fmt: skip
"""Rows of Table 8 and how The Stack names its folders; "Others" is any other folder."""
_LIST_ONLY = (
    "a list of addresses, one JSON-lines file each: the set's loading script no longer loads, so take from the list "
    "what is wanted"
)


def _file(
    name: str, about: str, path: str, url: str, size: int, licence: str, sha256: str = "", **more: Any
) -> DataSet:
    """A set of one ``Source``."""
    return DataSet(name, about, (Source(path, url, sha256, size, licence, **more),))


def _streamed(
    name: str, about: str, path: str, url: str, size: int, licence: str, fields: Mapping[str, str], terms: str = ""
) -> DataSet:
    """A set of one ``Stream``."""
    return DataSet(name, about, streams=(Stream(path, url, size, licence, terms),), fields=fields)


TRAINING: tuple[DataSet, ...] = (
    _file(
        "oasst1", "Table 1: OpenAssistant conversations, trees", "instruct/2023-04-12_oasst_ready.trees.jsonl.gz",
        "hub:OpenAssistant/oasst1@fdf72ae0827c1cda404aff25b6603abec9e3399b/2023-04-12_oasst_ready.trees.jsonl.gz",
        34_145_252, "Apache-2.0", "2a9a8fd343e9b28e04a895a669d3253f82d93e9c174d440199ae19d5fafbdff7", seen_in=2,
    ),
    _file(
        "openorca", "Table 1: OpenOrca, the GPT-4 file", "instruct/1M-GPT4-Augmented.parquet",
        "hub:Open-Orca/OpenOrca@e9c87b4abb2609913751f9b26553fdb9c061796c/1M-GPT4-Augmented.parquet", 1_008_442_855,
        "MIT",
    ),
    DataSet(
        "sharegpt",
        "Table 1: ShareGPT, the unfiltered Vicuna set",
        tuple(
            Source(
                f"instruct/sg_90k_part{part}_html_cleaned.json",
                f"hub:{_SHAREGPT}/HTML_cleaned_raw_dataset/sg_90k_part{part}_html_cleaned.json", "", size,
                "card Apache-2.0", terms=_SHAREGPT_TERMS,
            )
            for part, size in ((1, 551_000_000), (2, 548_000_000))
        ),
    ),
    _file(
        "sharegpt-cleaned",
        "Table 1: ShareGPT, in place of sharegpt: the same conversations as cleaned text, split where they are long",
        "instruct/ShareGPT_V3_unfiltered_cleaned_split.json",
        f"hub:{_SHAREGPT}/ShareGPT_V3_unfiltered_cleaned_split.json", 673_000_000, "card Apache-2.0",
        terms=_SHAREGPT_TERMS,
    ),
    _file(
        "evol-instruct-code", "Table 1: Evol-Instruct-Code-80k v1, which A.2.1 names beside Evol-CodeAlpaca",
        "instruct/EvolInstruct-Code-80k.json", "hub:nickrosh/Evol-Instruct-Code-80k-v1@main/EvolInstruct-Code-80k.json",
        122_000_000, "CC-BY-NC-SA-4.0",
        terms="CC-BY-NC-SA-4.0: no commercial use, and what is made of it is shared alike",
    ),
    _file(
        "evol-codealpaca", "Table 1: Evol-CodeAlpaca v1", "instruct/evol-codealpaca-v1.jsonl",
        "hub:theblackcat102/evol-codealpaca-v1@c75242318519b5470635e84064baed7c78594020/train.jsonl", 255_000_000,
        "Apache-2.0",
    ),
    *(
        _streamed(
            f"the-stack-dedup/{row}", f"Table 8: The Stack, deduplicated, {folder}; gated",
            f"corpus/the-stack-dedup/{row}", f"hub:{_STACK}/data/{folder}/*.parquet", 2_900_000_000_000, "per file",
            _STACK_FIELDS, _STACK_TERMS,
        )
        for row, folder in STACK_LANGUAGES.items()
    ),
    _streamed(
        "refinedweb", "Table 8: RefinedWeb", "corpus/refinedweb",
        "hub:tiiuae/falcon-refinedweb@2fc26b55236ff7efe9f22e21fe18a40ad9d0a295/data/train-*.parquet", 467_000_000_000,
        "ODC-By-1.0", {"text": "content", "origin": "url"},
    ),
    _streamed(
        "wikipedia", "Table 8: Wikipedia in English, 2023-11-01", "corpus/wikipedia",
        "hub:wikimedia/wikipedia@b04c8d1ceb2f5cd4588862100d08de323dccfbaa/20231101.en/*.parquet", 0,
        "CC-BY-SA-3.0, GFDL", {"text": "text", "origin": "url"},
    ),
    DataSet(
        "books", "Table 8: Books",
        withdrawn="the books of RedPajama were withdrawn by those who published them; the substitute is pg19",
    ),
    _file(
        "pg19", "Table 8: in place of Books, books from before 1919", "corpus/pg19", "", 0, "Apache-2.0",
        stored="unzipped",
        by_hand="gcloud storage cp -r gs://deepmind-gutenberg/train DATA/corpus/pg19 (one text file a book)",
    ),
    *(
        DataSet(
            f"redpajama/{name}",
            f"Table 8: {row}, as RedPajama has it: {_LIST_ONLY}",
            (
                Source(
                    f"corpus/redpajama/urls/{name}.txt", f"hub:{_REDPAJAMA}/urls/{name}.txt", "", 0, "mixed",
                    lists_files=True,
                ),
            ),
            fields={"text": "text", "origin": "meta.url", "language": "meta.language"},
        )
        for name, row in (("arxiv", "ArXiv"), ("stackexchange", "StackExchange"))
    ),
    DataSet(
        "tau_bench-recorded",
        "tau-bench: recorded runs that its authors published, to replay",
        tuple(
            Source(
                f"tau_bench/historical_trajectories/{name}.json",
                f"git:sierra-research/tau-bench@{_TAU_BENCH}/historical_trajectories/{name}.json",
                sha256,
                size,
                "MIT",
            )
            for name, size, sha256 in (
                ("gpt-4o-airline", 4_114_038, "e9e6c0297660c537f83d4fd9c476ce7a9a86ecd2784874b7bfc13be598e37bfa"),
                ("gpt-4o-retail", 0, ""),
                ("sonnet-35-new-airline", 0, ""),
                ("sonnet-35-new-retail", 0, ""),
            )
        ),
    ),
    _file(
        "dm-mathematics", "Table 8: DM Mathematics, the archive that its generator's authors made",
        "corpus/dm-mathematics", "https://storage.googleapis.com/mathematics-dataset/mathematics_dataset-v1.0.tar.gz",
        2_200_000_000, "Apache-2.0", stored="unzipped",
    ),
)  # fmt: skip
