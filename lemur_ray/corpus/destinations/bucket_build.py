"""A corpus that several hosts build together in a bucket: look it up, reserve its URL, commit it.

All sources and all output lie in buckets, so every host of the cluster can run any step of the build."""

import contextlib
import json
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from pathlib import Path
from typing import Any

from lemur_ray.corpus.config import build_hash
from lemur_ray.corpus.destinations.step_files import (
    BUILDS,
    CLAIM,
    SharedFolder,
    ThroughBucket,
    end_builds,
    remove_build_files,
)
from lemur_ray.corpus.manifest import MANIFEST, CorpusError, check_manifest, manifest_bytes, matches_build
from lemur_ray.corpus.rows import INDEX
from lemur_ray.storage.conditional_writes import VersionConflict, read_version, write_if
from lemur_ray.storage.file_system import file_system
from lemur_ray.storage.published_folder import work_folder
from lemur_ray.storage.retry_policy import missing_bucket_error

_CLAIM = f"{BUILDS}/{CLAIM}"


class Replacement(Enum):
    """Reason why a committed corpus is replaced by the described one."""

    DAMAGED = auto()
    OUTDATED = auto()
    """It has another configuration, or files of its sources may have changed."""


class BucketCorpus:
    """A corpus in the folder ``url`` of a bucket, with the same methods as ``locations.CorpusFolder``. The driver works
    in a local ``folder``."""

    def __init__(self, url: str, allow_failed: int = 0) -> None:
        """allow_failed: number of parts that may be left out of the corpus."""
        self.url = self.name = self.store = url
        self.folder, self.allow_failed = work_folder(url), allow_failed
        self.shared_folder: Path | None = None

    def committed(self) -> dict[str, Any] | None:
        """The committed manifest: None if there is none, {} if it is damaged. Raises CorpusError if access fails."""
        try:
            fs, path = file_system(f"{self.url}/{MANIFEST}")
            manifest = json.loads(fs.cat_file(path))
        except FileNotFoundError:
            return None
        except (ImportError, OSError) as error:
            raise CorpusError(f"{self.url} cannot be read: {error}") from error
        except ValueError:
            return {}
        return manifest if isinstance(manifest, dict) else {}

    def find(
        self, description: dict[str, Any], overwrite: bool, say: Any
    ) -> tuple[dict[str, Any] | None, Replacement | None]:
        """(manifest, None) if the described corpus is committed and intact, else (None, why the committed one is
        replaced; None if none is committed). With ``overwrite`` it is always replaced, because files of its sources may
        have changed. Changes nothing. description: of the wanted build (``build_inputs.described``). say: gets a line
        on what is replaced, and why. Raises CorpusError if a corpus of another configuration or version is committed or
        being built and ``overwrite`` is False."""
        manifest = self.committed()
        reason = None if manifest is None else self._replacement_reason(manifest, description, overwrite, say)
        if manifest is not None and not reason:
            return manifest, None
        self._read_claim(build_hash(description), overwrite)
        return None, reason

    def _replacement_reason(
        self, manifest: dict[str, Any], description: dict[str, Any], overwrite: bool, say: Any
    ) -> Replacement | None:
        """Why the committed corpus cannot be used; None if it can. Raises CorpusError in the cases of ``find``."""
        try:
            check_manifest(manifest, self.url)
        except CorpusError as error:
            if not overwrite:
                raise
            say(f"{error}: it is replaced")
            return Replacement.DAMAGED
        if manifest.get("build") == build_hash(description) and (damage := self._damage(manifest)):
            say(f"{self.url} is damaged ({damage}): it is built again")
            return Replacement.DAMAGED
        matches = matches_build(self.url, manifest, description, overwrite, say, self.allow_failed)
        return None if matches and not overwrite else Replacement.OUTDATED

    def reusable(self, description: dict[str, Any], overwrite: bool, say: Any) -> dict[str, Any] | None:
        """Manifest if the described corpus is committed and intact, and ``overwrite`` is False. Else reserves the URL
        for builds of ``description``, removes the manifest of the corpus that is replaced, if there is one, and returns
        None. Parameters as of ``find``. Raises CorpusError in the cases of ``find`` and ``claim``: another corpus is
        committed or being built there and ``overwrite`` is False, another build begins at this moment, or there is no
        such bucket. Raises CorpusError or OSError if the bucket fails."""
        manifest, reason = self.find(description, overwrite, say)
        if manifest is not None:
            end_builds(self.url)  # the process that committed it may have been killed before that
            return manifest
        self.claim(build_hash(description), overwrite)
        if reason is Replacement.DAMAGED:  # commit files of the damaged build claim that it is complete
            remove_build_files(self.url, but=CLAIM)
        if reason:
            fs, root = file_system(self.url)
            with contextlib.suppress(FileNotFoundError):  # another process replaces it, too
                fs.rm_file(f"{root}/{MANIFEST}")
        return None

    def made_meanwhile(self, description: dict[str, Any]) -> dict[str, Any] | None:
        """Manifest of the described corpus if it is committed, after the end of all its builds; None if not, or if it
        cannot be read. description: of the wanted build."""
        with contextlib.suppress(OSError, CorpusError):
            manifest = self.committed()
            if manifest is not None and manifest.get("build") == build_hash(description):
                check_manifest(manifest, self.url)
                end_builds(self.url)
                return manifest
        return None

    def handover(self, work: Path, name: str) -> SharedFolder:
        """File exchange of driver and workers. name: of the build, which depends on its configuration and sources.
        work: build folder of the driver."""
        return ThroughBucket(work, self.url, name)

    def commit(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """Move the tokenizer and indices from ``folder`` to the bucket, upload the manifest, and end all builds;
        returns the manifest as stored. Raises CorpusError if a shard in the bucket is missing or has another size than
        its index entry; OSError."""
        (fs, root), folder = file_system(self.url), self.folder
        content = manifest_bytes(self.url, manifest)
        sets = [str(entry["folder"]) for entry in (*manifest["sources"], *manifest["heldout"])]
        for name in sets:
            if wrong := self._wrong_shard(name, json.loads((folder / name / INDEX).read_bytes())["shards"]):
                raise CorpusError(f"{wrong}: remove {self.url}/{BUILDS} and run the same command again")
        small = [path for path in sorted(folder.iterdir()) if path.is_file() and not path.name.startswith(".")]
        for path in [*small, *(folder / name / INDEX for name in sets)]:
            if path.name != MANIFEST:
                fs.put_file(str(path), f"{root}/{path.relative_to(folder).as_posix()}")
            path.unlink()
        fs.pipe_file(f"{root}/{MANIFEST}", content)
        end_builds(self.url)
        return dict(json.loads(content))

    def _wrong_shard(self, row_set: str, shards: Sequence[Mapping[str, Any]]) -> str:
        """Message about the first missing or wrongly sized file of a row set; empty if all match. Raises OSError."""
        fs, root = file_system(f"{self.url}/{row_set}")
        sizes = {path: info["size"] for path, info in fs.find(root, detail=True).items()}
        for shard in shards:
            for kind, file in shard["files"].items():
                path = f"{root}/{shard['name']}.{kind}"
                if sizes.get(path) != file["bytes"]:
                    return f"{path} has {sizes.get(path, 'no')} bytes, expected {file['bytes']}"
        return ""

    def _damage(self, manifest: Mapping[str, Any]) -> str:
        """Message about the first missing or damaged file of the corpus; empty if it is intact. Raises OSError."""
        fs, root = file_system(self.url)
        for entry in (*manifest.get("sources", ()), *manifest.get("heldout", ())):
            index = f"{root}/{entry['folder']}/{INDEX}"
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
        """Reserve the URL for the build with hash ``mine``, by an object in the bucket; processes with the same hash
        share the reservation. Raises CorpusError if another build has reserved it (unless ``overwrite``) or does so
        now, or if there is no such bucket; OSError if the bucket fails."""
        claimed = self._read_claim(mine, overwrite)
        if claimed is not None and claimed[0] == mine.encode():
            return
        try:
            write_if(f"{self.url}/{_CLAIM}", mine.encode(), claimed[1] if claimed else None)
        except FileNotFoundError as error:
            raise CorpusError(str(missing_bucket_error(self.url))) from error
        except VersionConflict:
            raise CorpusError(f"another build began at {self.url} at this moment: run the same command again") from None

    def _read_claim(self, mine: str, overwrite: bool) -> tuple[bytes, str] | None:
        """(build hash, version) of the claim file, or None. Raises CorpusError if another's and not ``overwrite``."""
        claimed = read_version(f"{self.url}/{_CLAIM}")
        if claimed is not None and claimed[0] != mine.encode() and not overwrite:
            raise CorpusError(
                f"a corpus of another configuration is being made at {self.url}, or its making was cut off: choose "
                "another --out, or --overwrite where nobody makes it any more"
            )
        return claimed
