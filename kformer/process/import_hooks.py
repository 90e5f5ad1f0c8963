"""Runs code around the import of a module, whenever that import happens."""

import importlib.machinery
import sys
import types
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager


class ImportHook:
    """Finds one module where the other finders do, and executes it inside a context.

    Args:
        name: The name of the module.
        around: Makes the context.
    """

    def __init__(self, name: str, around: Callable[[], AbstractContextManager[None]]) -> None:
        self._name = name
        self._around = around

    def install(self) -> None:
        """From now on, an import of the module calls this hook."""
        sys.meta_path.insert(0, self)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """What Python calls to find a module; None for all modules but the one."""
        if name != self._name:
            return None
        found = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, found), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_inside(module: types.ModuleType) -> None:
                with self._around():
                    execute(module)

            spec.loader.exec_module = execute_inside  # type: ignore[method-assign]
        return spec
