"""Runs inside the sandbox, before an item's program, which calls ``exec`` for the solution: replaces that ``exec``.

The solution runs in a thread of its own, so that no frame above it has the expected result. After it, modules, classes
and functions are as they were before, so that nothing that compares results is the solution's. Its text is prepended
to the program; imports nothing of the project.
"""


def _guarded_exec():  # type: ignore[no-untyped-def]
    import builtins
    import contextlib
    import gc
    import sys
    import threading
    import types

    run, missing = builtins.exec, object()
    compared = {
        "__eq__",
        "__ne__",
        "__array__",
        "__array_ufunc__",
        "__array_function__",
        "__torch_function__",
        "equals",
    }
    compared |= {"__bool__", "__getattribute__", "__getattr__", "__class__", "__sub__", "__iter__", "shape", "dtype"}

    def state():  # type: ignore[no-untyped-def]
        """Attributes of all modules and their classes, and the parts of functions that can be replaced."""
        holders: dict[int, object] = {
            id(module): module for module in list(sys.modules.values()) if isinstance(module, types.ModuleType)
        }
        for module in list(holders.values()):
            for value in list(vars(module).values()):
                if type(value) is type or isinstance(value, type):
                    holders[id(value)] = value
        attributes, functions = [], {}
        for holder in holders.values():
            names = dict(vars(holder))
            attributes.append((holder, names))
            for value in names.values():
                value = getattr(value, "__func__", value)
                if type(value) is types.FunctionType:
                    functions[value] = (value.__code__, value.__defaults__, value.__kwdefaults__)
        return dict(sys.modules), attributes, functions

    def restore(modules, attributes, functions):  # type: ignore[no-untyped-def]
        sys.settrace(None)
        sys.setprofile(None)
        sys.modules.update(modules)
        for function, (code, defaults, named) in functions.items():
            if function.__code__ is not code:
                function.__code__ = code
            if function.__defaults__ is not defaults:
                function.__defaults__ = defaults
            if function.__kwdefaults__ is not named:
                function.__kwdefaults__ = named
        for holder, names in attributes:
            now = vars(holder)
            if isinstance(holder, types.ModuleType):
                now.update({name: value for name, value in names.items() if now.get(name, missing) is not value})
                for name in [name for name in now if name not in names and hasattr(builtins, name)]:
                    del now[name]
                continue
            for name in [name for name in {*now, *names} if now.get(name, missing) is not names.get(name, missing)]:
                with contextlib.suppress(AttributeError, TypeError):
                    type.__setattr__(holder, name, names[name]) if name in names else type.__delattr__(holder, name)

    def own(kind):  # type: ignore[no-untyped-def]
        """Whether a class is defined by the solution."""
        first = kind.__qualname__.partition(".")[0]
        return getattr(sys.modules.get(kind.__module__), first, None) is None

    def check(value, depth=0):  # type: ignore[no-untyped-def]
        for kind in type.mro(type(value)):
            if own(kind) and compared & vars(kind).keys():
                raise TypeError("a result of a class with comparisons of its own")
        if depth < 4 and type(value) in (list, tuple, set, dict):
            for item in list(value.items()) if type(value) is dict else list(value):
                check(item, depth + 1)

    def guarded(code, scope=None, *rest):  # type: ignore[no-untyped-def]
        before, raised = state(), []
        hidden = [(gc, "get_objects"), (gc, "get_referrers"), (sys, "_current_frames")]
        for module, name in hidden:
            setattr(module, name, None)

        def solve():  # type: ignore[no-untyped-def]
            try:
                run(code, scope, *rest)
            except BaseException as error:  # the item's program sees what the solution raises
                raised.append(error)

        thread = threading.Thread(target=solve)
        start, join = threading.Thread.start, threading.Thread.join
        start(thread)
        join(thread)
        restore(*before)
        if raised:
            raise raised[0]
        left = [one for one in threading.enumerate() if getattr(one, "_target", None)]
        if any(getattr(one._target, "__globals__", None) is scope for one in left):  # type: ignore[attr-defined]
            raise RuntimeError("the solution left a thread running")
        for name in [name for name in scope if not name.startswith("__") and not isinstance(scope[name], type)]:
            check(scope[name])

    return guarded


exec = _guarded_exec()
