"""``from race import X`` gives X, whatever was imported before."""

from __future__ import annotations

import importlib
import pkgutil

import race


def test_no_export_is_hidden_by_a_module_of_its_name() -> None:
    modules = {module.name for module in pkgutil.iter_modules(race.__path__)}
    assert not modules & set(race.__all__)
    for module in modules - {"__main__", "cli", "integrations"}:
        importlib.import_module(f"race.{module}")
    assert callable(race.ladder)
