"""A corpus that is made in a bucket by hosts that share nothing else: whether it is there, who makes it, its commit.

What is read and what is made lies in buckets, so every host of a cluster can take any step (``handover``).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lemur_ray.corpus.config import CorpusConfig, build_hash
from lemur_ray.corpus.manifest import MANIFEST, CorpusError, check_manifest, manifest_bytes, matches_build
from lemur_ray.corpus.rows import INDEX
from lemur_ray.corpus.sources.folders import Source
from lemur_ray.corpus.sources.listing import files_hash
from lemur_ray.corpus.step_files import BUILDS, CLAIM, ThroughBucket, remove_build_files
from lemur_ray.storage.conditional_writes import VersionConflict, read_version, write_if
from lemur_ray.storage.file_system import file_system, is_bucket
from lemur_ray.storage.retry_policy import missing_bucket_error

_CLAIM = f"{BUILDS}/{CLAIM}"
_ANOTHER = "another corpus"


def all_in_buckets(config: CorpusConfig) -> bool:
    """Whether every source of the corpus can be read from any host."""
    return bool(config.source) and all(is_bucket(spec.split(":", 2)[-1]) for spec in config.source)


@dataclass(frozen=True)
class BucketCorpus:
    """The corpus at ``url``."""

    url: str

    def there(self) -> dict[str, Any] | None:
        """The manifest that was committed. Raises CorpusError where the bucket does not answer, or refuses."""
        try:
            fs, path = file_system(f"{self.url}/{MANIFEST}")
            found = json.loads(fs.cat_file(path))
        except FileNotFoundError:
            return None
        except (ImportError, OSError) as error:
            raise CorpusError(f"{self.url} cannot be read: {error}") from error
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    def found(self, description: dict[str, Any], overwrite: bool, say: Any) -> tuple[dict[str, Any] | None, str]:
        """(the manifest where this very corpus is there whole, why what is there is replaced). Changes nothing.

        Raises CorpusError where another corpus, or one of another version, is there or is being made, and ``overwrite``
        was not asked for.
        """
        found, mine = self.there(), build_hash(description)
        why = "" if found is None else self._of_no_use(found, description, overwrite, say)
        if found is not None and not why:
            return found, ""
        self._look_at_claim(mine, overwrite)
        return None, why

    def _of_no_use(self, found: dict[str, Any], description: dict[str, Any], overwrite: bool, say: Any) -> str:
        """Why the corpus that was committed is not used; empty: it is. Raises CorpusError as ``found``."""
        try:
            check_manifest(found, self.url)
        except CorpusError as error:
            if not overwrite:
                raise
            say(f"{error}: it is replaced")
            return str(error)
        if found.get("build") == build_hash(description) and (damage := self._damage(found)):
            say(f"{self.url} is damaged ({damage}): it is built again")
            return damage
        return "" if matches_build(self.url, found, description, overwrite, say) else _ANOTHER

    def reusable(self, description: dict[str, Any], overwrite: bool, say: Any) -> dict[str, Any] | None:
        """The manifest where this very corpus is there; else the place is claimed for it. Raises as ``found``."""
        found, why = self.found(description, overwrite, say)
        if found is not None:
            remove_build_files(self.url)  # whoever committed it may have been killed before that
            return found
        self.claim(build_hash(description), overwrite)
        if why and why != _ANOTHER:  # what is left of its making says that all of it is there
            remove_build_files(self.url, but=CLAIM)
        if why:
            fs, there = file_system(self.url)
            with contextlib.suppress(FileNotFoundError):  # another process replaces it, too
                fs.rm_file(f"{there}/{MANIFEST}")
        return None

    def made_meanwhile(self, description: dict[str, Any]) -> dict[str, Any] | None:
        """The manifest where another process has committed this very corpus; then nobody goes on making it."""
        with contextlib.suppress(OSError, CorpusError):
            found = self.there()
            if found is not None and found.get("build") == build_hash(description):
                check_manifest(found, self.url)
                remove_build_files(self.url)
                return found
        return None

    def handover(self, work: Path, sources: Sequence[Source]) -> ThroughBucket:
        """Of a build of these files: one of other files, cut off before, is another build."""
        states = hashlib.sha256("".join(files_hash(source) for source in sources).encode()).hexdigest()[:12]
        return ThroughBucket(work, self.url, f"{work.name}-{states}")

    def commit(self, folder: Path, manifest: dict[str, Any]) -> dict[str, Any]:
        """Publish what the driver wrote into ``folder``, the manifest last; returns it.

        Raises CorpusError where a shard is not there as it was made; OSError.
        """
        fs, there = file_system(self.url)
        written = manifest_bytes(self.url, manifest)
        sets = [str(entry["folder"]) for entry in (*manifest["sources"], *manifest["heldout"])]
        for name in sets:
            self._check_shards(name, json.loads((folder / name / INDEX).read_bytes())["shards"])
        small = [path for path in sorted(folder.iterdir()) if path.is_file() and not path.name.startswith(".")]
        for made in [*small, *(folder / name / INDEX for name in sets)]:
            if made.name != MANIFEST:
                fs.put_file(str(made), f"{there}/{made.relative_to(folder).as_posix()}")
            made.unlink()
        fs.pipe_file(f"{there}/{MANIFEST}", written)
        remove_build_files(self.url)
        return dict(json.loads(written))

    def _check_shards(self, row_set: str, shards: Sequence[Mapping[str, Any]]) -> None:
        if wrong := self._wrong_shard(row_set, shards):
            raise CorpusError(f"{wrong}: remove {self.url}/{BUILDS} and run the same command again")

    def _wrong_shard(self, row_set: str, shards: Sequence[Mapping[str, Any]]) -> str:
        """The first file that has not the size it was made with; empty: all have. Raises OSError."""
        fs, there = file_system(f"{self.url}/{row_set}")
        sizes = {path: about["size"] for path, about in fs.find(there, detail=True).items()}
        for shard in shards:
            for kind, file in shard["files"].items():
                path = f"{there}/{shard['name']}.{kind}"
                if sizes.get(path) != file["bytes"]:
                    return f"{path} has {sizes.get(path, 'no')} bytes, expected {file['bytes']}"
        return ""

    def _damage(self, manifest: Mapping[str, Any]) -> str:
        """What of a corpus that was committed is not there; empty: all of it is. Raises OSError."""
        fs, there = file_system(self.url)
        for entry in (*manifest.get("sources", ()), *manifest.get("heldout", ())):
            index = f"{there}/{entry['folder']}/{INDEX}"
            try:
                shards = json.loads(fs.cat_file(index))["shards"]
            except FileNotFoundError:
                return f"{index} is missing"
            except (KeyError, TypeError, ValueError):
                return f"{index} is not what was written"
            if wrong := self._wrong_shard(entry["folder"], shards):
                return wrong
        return ""

    def claim(self, mine: str, overwrite: bool) -> None:
        """Two builds of one configuration make the same bytes; those of two would mix. Raises CorpusError."""
        claimed = self._look_at_claim(mine, overwrite)
        if claimed is not None and claimed[0] == mine.encode():
            return
        try:
            write_if(f"{self.url}/{_CLAIM}", mine.encode(), claimed[1] if claimed else None)
        except FileNotFoundError as error:
            raise CorpusError(str(missing_bucket_error(self.url))) from error
        except VersionConflict:
            raise CorpusError(f"another build began at {self.url} at this moment: run the same command again") from None

    def _look_at_claim(self, mine: str, overwrite: bool) -> tuple[bytes, str] | None:
        """Who makes a corpus there, and the version of that object. Raises CorpusError where it is another one."""
        claimed = read_version(f"{self.url}/{_CLAIM}")
        if claimed is not None and claimed[0] != mine.encode() and not overwrite:
            raise CorpusError(
                f"a corpus of another configuration is being made at {self.url}, or its making was cut off: choose "
                "another --out, or --overwrite where nobody makes it any more"
            )
        return claimed
