"""Old names of a module's classes and functions: each still works, with a DeprecationWarning, for one release."""

import sys
import warnings
from collections.abc import Callable
from typing import Any


def renamed_names(module: str, **new_names: str) -> Callable[[str], Any]:
    """A module-level ``__getattr__`` for ``module`` that returns, for an old name, the object with the new name and
    issues a DeprecationWarning. new_names: old name -> new name. It raises AttributeError for every other name."""

    def value_of(name: str) -> Any:
        if name not in new_names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warnings.warn(f"{module}.{name} is now {new_names[name]}: use that name", DeprecationWarning, stacklevel=2)
        return getattr(sys.modules[module], new_names[name])

    return value_of
