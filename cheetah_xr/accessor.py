"""``ds.cheetah`` on every Dataset, whether xarray is imported before this package or after it.

Registering needs xarray, and importing it here would make ``cheetah-xr --help`` wait for it. So the accessor is
registered at once where xarray is there already, and otherwise by a finder on ``sys.meta_path`` that sees it come.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import xarray as xr

    from .analysis.accessor import Cheetah


def cheetah(ds: xr.Dataset) -> Cheetah:
    """Analysis of a result; see :class:`cheetah_xr.analysis.Cheetah`."""
    from .analysis.accessor import Cheetah

    return Cheetah(ds)


def register() -> None:
    """Register the accessor."""
    from xarray import register_dataset_accessor

    register_dataset_accessor("cheetah")(cheetah)  # type: ignore[no-untyped-call]


class ThenRegister(Loader):
    """The loader `inner`, which also registers the accessor once xarray is loaded."""

    def __init__(self, inner: Loader) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Make the module as `inner` does."""
        return self.inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, which keeps `inner` as its loader, then register."""
        module.__loader__ = self.inner
        if module.__spec__ is not None:
            module.__spec__.loader = self.inner
        self.inner.exec_module(module)
        register()


class XarrayFinder(MetaPathFinder):
    """Finds xarray as the other finders do, and nothing else."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Spec of xarray with a loader that registers the accessor."""
        if fullname != "xarray":
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, (finder.find_spec(fullname, path, target) for finder in others)), None)
        if spec is not None and spec.loader is not None:
            spec.loader = ThenRegister(spec.loader)
        return spec


if "xarray" in sys.modules:
    register()
else:
    sys.meta_path.insert(0, XarrayFinder())
