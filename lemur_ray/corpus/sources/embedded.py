"""The embedded corpus: files of the software installed on this machine as sources of code and of natural text.

Nothing is downloaded. Sources that the machine lacks are omitted and reported; Python code and its docstrings always
exist. The search follows the file layout of Debian, Ubuntu and Python packages."""

import os
import re
import sys
import sysconfig
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lemur_ray.corpus.documents import Kind
from lemur_ray.corpus.sources.folders import LANGUAGES, Source, sample, walk
from lemur_ray.corpus.sources.texts import FileRef


@dataclass(frozen=True)
class _Slot:
    """A group of installed files, and its share of the bytes of its kind (code or text) in the embedded corpus."""

    name: str
    kind: Kind
    share: float
    looked_for: str
    required: bool = False
    text_per_byte: float = 1.0
    """Bytes of text per byte on disk."""
    source: str = ""
    """Name of the source that the group joins; empty: the group is a source under its name."""


# Shares of code follow table 8 of the paper in order (Python first by far); of text they are ours.
_SLOTS = (
    _Slot("python", "code", 0.80, "*.py of the standard library and of installed packages", required=True),
    _Slot("c", "code", 0.08, "C and C++ headers and sources in /usr/include and in installed packages"),
    _Slot("shell", "code", 0.04, "*.sh, shell scripts in /usr/bin, /etc and of the package manager"),
    _Slot("javascript", "code", 0.03, "*.js and *.mjs in /usr/share and in installed packages"),
    _Slot("sql", "code", 0.05, "*.sql in /usr/share and in installed packages"),
    _Slot("docstrings", "text", 0.50, "docstrings of installed Python code", required=True, text_per_byte=0.15),
    _Slot("docs", "text", 0.35, "*.md, *.rst, *.txt, licences and descriptions of Python packages"),
    _Slot("packages", "text", 0.12, "descriptions in /var/lib/dpkg/status", text_per_byte=0.4),
    # Capped, because they are nearly all alike.
    _Slot("licences", "text", 0.03, "licence and copyright files", source="docs"),
)

SOURCES = tuple(dict.fromkeys(slot.source or slot.name for slot in _SLOTS))
"""Names of all embedded sources. A machine without files for one omits it."""

_LICENCE_NAME = re.compile(r"^(?:licen[cs]es?|copying|copyright|notice|authors)\b", re.IGNORECASE)
_NO_PROSE = re.compile(
    r"^(?:record|top_level|entry_points|requirements|sources|cmakelists|changelog|changes|pkg-info|namespace_packages"
    r"|dependency_links|requires|native_libs|api_tests|installed-files)\b",
    re.IGNORECASE,
)
_SCRIPT_ENDS = (".preinst", ".postinst", ".prerm", ".postrm", ".config")


def embedded_sources(budget_bytes: int, code_to_text: float, seed: int) -> list[Source]:
    """Sources of code and text from the software of this machine, of about ``budget_bytes`` in total.
    code_to_text: bytes of code per byte of text. The same machine, budget and seed give the same files. A source
    without any file is returned with none."""
    files = _list_files()
    sources: list[Source] = []
    for kind, of_kind in (("code", code_to_text), ("text", 1.0)):
        slots = [slot for slot in _SLOTS if slot.kind == kind]
        available = [sum(ref.size for ref in files[slot.name]) * slot.text_per_byte for slot in slots]
        budget = budget_bytes * of_kind / (code_to_text + 1.0)
        for slot, part in zip(slots, _fill(budget, [slot.share for slot in slots], available), strict=True):
            refs = sample(files[slot.name], part, seed, slot.text_per_byte)
            if slot.source:
                at = next(i for i, source in enumerate(sources) if source.name == slot.source)
                sources[at] = replace(sources[at], files=(*sources[at].files, *refs))
            else:
                sources.append(Source(slot.name, slot.kind, tuple(refs), slot.looked_for, slot.required))
    return sources


def _fill(budget: float, shares: Sequence[float], available: Sequence[float]) -> list[float]:
    """Bytes of each group: ``budget`` split by ``shares``, at most ``available``; the rest goes to the others."""
    parts = [0.0] * len(shares)
    open_slots = [i for i in range(len(shares)) if available[i] > 0]
    while open_slots:
        total = sum(shares[i] for i in open_slots)
        full = [i for i in open_slots if available[i] <= budget * shares[i] / total]
        if not full:
            for i in open_slots:
                parts[i] = budget * shares[i] / total
            break
        for i in full:
            parts[i] = available[i]
            budget -= available[i]
        open_slots = [i for i in open_slots if i not in full]
    return parts


def _list_files() -> dict[str, list[FileRef]]:
    """All files of this machine that belong to a group, by name of the group (``_SLOTS``), each list sorted by name."""
    files: dict[str, list[FileRef]] = defaultdict(list)
    licences: dict[str, str] = {}
    for label, root in _roots():
        if label == "site-packages":
            licences = _package_licences(root)
        for entry in walk(str(root)):
            name = f"{label}/{entry.path[len(str(root)) + 1 :]}"
            if label == "stdlib" and "/site-packages/" in name:
                continue
            package = name.split("/")[1].removesuffix(".py")
            licence = "PSF-2.0" if label == "stdlib" else licences.get(package, "")
            belongs = _sources_of(name) if os.access(entry.path, os.R_OK) else []
            size = entry.stat().st_size if belongs else 0
            for source, reader in belongs:
                files[source].append(FileRef(entry.path, size, reader, name, licence))
    for folder, name in (("/usr/bin", "bin"), ("/etc/init.d", "etc/init.d"), ("/var/lib/dpkg/info", "dpkg")):
        files["shell"] += _shell_scripts(folder, name)
    status = Path("/var/lib/dpkg/status")
    if status.is_file():
        files["packages"].append(FileRef(str(status), status.stat().st_size, "package_descriptions", "dpkg/status"))
    for source in ("python", "shell", "javascript", "sql"):
        files[source] = [replace(ref, language=source) for ref in files[source]]
    return {slot.name: sorted(files[slot.name], key=lambda ref: ref.name) for slot in _SLOTS}


def _roots() -> list[tuple[str, Path]]:
    """(label, folder) of each folder to search; the label becomes the prefix of the names of its files."""
    paths = sysconfig.get_paths()
    candidates = [
        ("stdlib", paths["stdlib"]),
        ("site-packages", paths["purelib"]),
        ("site-packages", paths["platlib"]),
        ("dist-packages", f"/usr/lib/python{sys.version_info.major}/dist-packages"),
        ("include", "/usr/include"),
        ("share", "/usr/share"),
    ]
    roots: dict[Path, str] = {}
    for label, path in candidates:
        if os.path.isdir(path):
            roots.setdefault(Path(path).resolve(), label)
    return [(label, root) for root, label in roots.items()]


def _sources_of(name: str) -> list[tuple[str, str]]:
    """(group, reader) for each group (``_SLOTS``) that a file belongs to, from its name alone; mostly one or none."""
    base = os.path.basename(name)
    suffix = os.path.splitext(base.removesuffix(".gz"))[1].lower()
    if suffix == ".py":
        return [("python", "file"), ("docstrings", "docstrings")]
    if base.endswith(".gz") and suffix not in (".md", ".rst", ".txt"):
        return []
    if _LICENCE_NAME.match(base) and suffix in ("", ".txt", ".md", ".rst"):
        return [("licences", "file")]
    if base == "METADATA" and ".dist-info/" in name:
        return [("docs", "metadata")]
    language = LANGUAGES.get(suffix)
    if language in ("c", "cpp"):
        return [("c", "file")]
    if language == "shell" or (language == "javascript" and ".min." not in base) or language == "sql":
        return [(language, "file")]
    if suffix in (".md", ".rst", ".txt") and not _NO_PROSE.match(base):
        return [("docs", "file")]
    return []


def _shell_scripts(folder: str, label: str) -> list[FileRef]:
    """Files directly in a folder whose first line names a shell as interpreter."""
    refs: list[FileRef] = []
    if not os.path.isdir(folder):
        return refs
    for entry in os.scandir(folder):
        try:
            if not entry.is_file(follow_symlinks=False):
                continue
            if label == "dpkg" and not entry.name.endswith(_SCRIPT_ENDS):
                continue
            with open(entry.path, "rb") as f:
                first = f.readline(100)
        except OSError:
            continue
        if re.match(rb"#!\s*(?:/usr)?/bin/(?:env +)?(?:ba|da|k)?sh\b", first):
            refs.append(FileRef(entry.path, entry.stat().st_size, "file", f"{label}/{entry.name}"))
    return refs


def _package_licences(site_packages: Path) -> dict[str, str]:
    """Licence by name of a top-level module in ``site_packages``, from the metadata of its distribution."""
    licences: dict[str, str] = {}
    for info in sorted(site_packages.glob("*.dist-info")):
        try:
            header = (info / "METADATA").read_bytes().decode("utf-8", "replace").partition("\n\n")[0]
        except OSError:
            continue
        licence = re.search(r"^License-Expression: (.{1,60})$", header, re.MULTILINE)
        licence = licence or re.search(r"^Classifier: License :: (?:OSI Approved :: )?(.{1,60})$", header, re.MULTILINE)
        licence = licence or re.search(r"^License: (.{1,60})$", header, re.MULTILINE)
        if not licence:
            continue
        names = [info.name.partition("-")[0]]
        top_level = info / "top_level.txt"
        if top_level.is_file():
            names = top_level.read_text("utf-8", "replace").split()
        for name in names:
            licences.setdefault(name, " ".join(licence[1].strip(" \t#*=-").split()))
    return licences
