"""C++ kernels for CPUs as functions of JAX, compiled once by this machine's C++ compiler and cached on disk.

XLA's products of 2 to 32 rows read weights on a CPU at a third of the speed of memory, and the order of their sums
depends on the shape (docs/decisions/). Without a compiler, XLA's own products are used. Knows nothing of models."""

import ctypes
import hashlib
import logging
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
import threading
from functools import cache
from pathlib import Path

import jax
import jaxlib.version

from lemur_ray.host.home import lemur_home
from lemur_ray.model.compile_cache import cache_folder

log = logging.getLogger(__name__)

FOLDER = Path(__file__).parent
TARGETS = (
    "lemur_product_float32",
    "lemur_product_bfloat16",
    "lemur_product_int8",
    "lemur_attention_float32",
    "lemur_attention_uint16",
)
_FLAGS = ("-std=c++17", "-O3", "-march=native", "-ffp-contract=fast", "-fPIC", "-shared", "-w", "-pthread")
_TIMEOUT_S = 300
_END = b"lemur-whole"
"""Last bytes of a complete library, behind what the loader reads"""

_once = threading.Lock()


def available() -> bool:
    """Whether XLA can call the kernels in this process; the first call builds and registers them, on CPU only.
    Logs the reason if they cannot be built."""
    with _once:
        return _registered()


@cache
def _registered() -> bool:
    if jax.default_backend() != "cpu":
        return False
    try:
        library = load_or_build(_folder())
    except (OSError, RuntimeError) as error:
        log.warning("products on this CPU are XLA's, which are slower: %s", error)
        return False
    for name in TARGETS:
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(getattr(library, name)), platform="cpu")
    return True


def load_or_build(folder: Path) -> ctypes.CDLL:
    """Load the library from ``folder``; if it cannot be written to or executed from, from a temporary folder, with a
    warning. Raises RuntimeError if it cannot be compiled, and OSError if it cannot be loaded from there either."""
    try:
        return load(folder)
    except OSError as error:
        log.warning("kernels for this CPU are compiled at every start, %s cannot keep them: %s", folder, error)
        with tempfile.TemporaryDirectory() as temp:  # a loaded library may be deleted
            return load(Path(temp))


def load(folder: Path) -> ctypes.CDLL:
    """Load the library into this process, after compiling it into ``folder`` if it is missing. Raises RuntimeError if
    that fails, and OSError if the folder cannot be used."""
    return ctypes.CDLL(str(build(folder)))


def build(folder: Path) -> Path:
    """Path in ``folder`` of the library for this CPU, compiled (up to 300 s) unless it is there. The name depends on
    sources, compiler and CPU. The compiler is CXX, or else the first of g++, clang++ and c++. Raises RuntimeError if
    there is none or it fails, OSError for a folder that cannot be written to."""
    installed = next(filter(None, map(shutil.which, ("g++", "clang++", "c++"))), None)
    compiler = shlex.split(os.environ.get("CXX", "")) or ([installed] if installed else [])
    if not compiler:
        raise RuntimeError("no C++ compiler is installed (on Debian and Ubuntu, apt-get install -y g++)")
    sources = sorted(file for file in FOLDER.iterdir() if file.suffix in (".cc", ".h"))
    inputs = ([file.read_text() for file in sources], _FLAGS, compiler, _cpu(), jaxlib.version.__version__)
    target = folder / f"kernels-{hashlib.sha256(repr(inputs).encode()).hexdigest()[:16]}.so"
    if _is_complete(target):
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as temp:  # several processes may build; each renames a complete file
        units = [str(file) for file in sources if file.suffix == ".cc"]
        command = [*compiler, *_FLAGS, f"-I{jax.ffi.include_dir()}", *units, "-o", f"{temp}/kernels.so"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S)
        except OSError as error:
            raise RuntimeError(f"{compiler[0]} cannot be run: {error}") from None
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"{compiler[0]} took more than {_TIMEOUT_S} s for {FOLDER}") from None
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-500:]}")
        with open(f"{temp}/kernels.so", "ab") as file:
            file.write(_END)
        os.replace(f"{temp}/kernels.so", target)
    return target


def _is_complete(library: Path) -> bool:
    """Whether a library was written to its end. Loading an incomplete one would kill the process (SIGBUS)."""
    try:
        return library.read_bytes().endswith(_END)
    except FileNotFoundError:
        return False


def _folder() -> Path:
    """Folder of the libraries: in JAX's compilation cache, or if that is in a bucket, in LEMUR_HOME's cache."""
    cache = cache_folder()
    return (lemur_home() / "cache" if "://" in cache else Path(cache)) / "native"


def _cpu() -> str:
    """Model name and instruction sets of this CPU, because hosts with different CPUs may share the folder."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine() + platform.processor()
    return "\n".join(
        sorted({line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))})
    )
