"""Runs inside the sandbox, before an item's program, which calls ``exec`` for the solution: replaces that ``exec``.

The solution runs in a thread of its own, so that no frame above it has the expected result. After it, modules, classes
and functions are as they were before, so that nothing that compares results is the solution's. The text of this file is
put before the program; it imports nothing of the project."""

import builtins as _builtins
import contextlib as _contextlib
import gc as _gc
import sys as _sys
import threading as _threading
import types as _types
import warnings as _warnings

_run, _missing = exec, object()
_HEAP_TYPE = 1 << 9
_COMPARISONS = {
    *(
        "__eq__", "__ne__", "__array__", "__array_ufunc__", "__array_function__", "__torch_function__", "equals",
        "shape",
    ),
    *("__bool__", "__getattribute__", "__getattr__", "__class__", "__sub__", "__iter__", "dtype"),
}  # fmt: skip


def _state():  # type: ignore[no-untyped-def]
    """(modules, attributes of each module and of its classes, the replaceable parts of their functions)."""
    holders: dict[int, object] = {
        id(one): one for one in list(_sys.modules.values()) if isinstance(one, _types.ModuleType)
    }
    holders |= {id(v): v for one in list(holders.values()) for v in list(vars(one).values()) if isinstance(v, type)}
    attributes, functions = [(holder, dict(vars(holder))) for holder in holders.values()], {}
    for _, names in attributes:
        for value in names.values():
            if issubclass(type(value), (staticmethod, classmethod, _types.MethodType)):
                value = value.__func__  # asking other values for it may import a lazy module
            if type(value) is _types.FunctionType:
                functions[value] = (value.__code__, value.__defaults__, value.__kwdefaults__)
    return dict(_sys.modules), attributes, functions


def _restore(modules, attributes, functions):  # type: ignore[no-untyped-def]
    """Undo all changes since ``_state`` returned these."""
    _sys.settrace(None)
    _sys.setprofile(None)
    _sys.modules.update(modules)
    for function, parts in functions.items():
        for name, part in zip(("__code__", "__defaults__", "__kwdefaults__"), parts, strict=True):
            if getattr(function, name) is not part:
                setattr(function, name, part)
    for holder, names in attributes:
        now = vars(holder)
        changed = [name for name in {*now, *names} if now.get(name, _missing) is not names.get(name, _missing)]
        for name in changed:
            with _contextlib.suppress(AttributeError, TypeError):
                if isinstance(holder, type):
                    type.__setattr__(holder, name, names[name]) if name in names else type.__delattr__(holder, name)
                elif name in names:
                    now[name] = names[name]
                elif hasattr(_builtins, name):  # it would hide the builtin there; other new names are lazy imports
                    del now[name]


def _check(value, depth=0):  # type: ignore[no-untyped-def]
    """Raise TypeError for a value that is equal to anything: of a class of the solution that answers comparisons
    itself, or of ``unittest.mock``."""
    kinds = type.mro(type(value))
    if any(kind.__module__ == "unittest.mock" for kind in kinds):
        raise TypeError("a result of unittest.mock")
    if any(kind.__flags__ & _HEAP_TYPE and "__eq__" in vars(kind) for kind in kinds):
        with _contextlib.suppress(Exception), _warnings.catch_warnings():
            _warnings.simplefilter("ignore")
            if (value == object()) is True:
                kinds = []
    if not kinds:
        raise TypeError("a result that is equal to anything")
    for kind in kinds:
        first = kind.__qualname__.partition(".")[0]
        is_own = kind.__flags__ & _HEAP_TYPE and not hasattr(_sys.modules.get(kind.__module__), first)
        if is_own and _COMPARISONS & vars(kind).keys():
            raise TypeError("a result of a class with comparisons of its own")
    if depth < 4 and type(value) in (list, tuple, set, dict):
        for item in list(value.items()) if type(value) is dict else list(value):
            _check(item, depth + 1)


def exec(code, scope, *rest):  # type: ignore[no-untyped-def]
    """Run a solution in place of the builtin ``exec``. ``scope``: the globals in which it runs. Raises the solution's
    errors, RuntimeError for a running thread."""
    before, raised = _state(), []
    for module, name in ((_gc, "get_objects"), (_gc, "get_referrers"), (_sys, "_current_frames")):
        setattr(module, name, None)

    def solve():  # type: ignore[no-untyped-def]
        try:
            _run(code, scope, *rest)
        except BaseException as error:  # the item's program sees what the solution raises
            raised.append(error)

    thread = _threading.Thread(target=solve)
    start, join = _threading.Thread.start, _threading.Thread.join
    start(thread)
    join(thread)
    _restore(*before)
    if raised:
        raise raised[0]
    if any(getattr(getattr(one, "_target", None), "__globals__", None) is scope for one in _threading.enumerate()):
        raise RuntimeError("the solution left a thread running")
    for name in [name for name in scope if not name.startswith("__") and not isinstance(scope[name], type)]:
        _check(scope[name])
