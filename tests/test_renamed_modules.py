"""Import paths of the release before go on working, say where to import from now, and give the very same module."""

from __future__ import annotations

import importlib
import sys

import pytest

from lemur_ray.host.renamed_modules import RENAMED, RenamedModules, install


@pytest.mark.parametrize("old", sorted(RENAMED))
def test_an_old_path_gives_the_module_at_the_new_one(old: str) -> None:
    new = importlib.import_module(RENAMED[old])
    own = new.__spec__
    sys.modules.pop(old, None)
    with pytest.warns(DeprecationWarning, match=RENAMED[old]):
        assert importlib.import_module(old) is new
    assert (new.__spec__, new.__name__) == (own, RENAMED[old])


def test_modules_within_a_renamed_package_are_not_loaded_twice() -> None:
    from lemur_ray.agents.baselines import scripted

    with pytest.warns(DeprecationWarning, match="agents.baselines"):
        old = importlib.import_module("lemur_ray.agents.without_model.scripted")
    assert old is scripted


def test_what_was_never_there_is_not_found_and_installing_twice_changes_nothing() -> None:
    before = list(sys.meta_path)
    install()
    assert sys.meta_path == before
    assert sum(isinstance(finder, RenamedModules) for finder in before) == 1
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("lemur_ray.bundlesque")
