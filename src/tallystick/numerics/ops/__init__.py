"""Operator families; importing this package registers every operator.

A family module is found by being here, so families can be added without touching this file.
"""

from __future__ import annotations

import importlib
import pkgutil

for _module in sorted(m.name for m in pkgutil.iter_modules(__path__)):
    importlib.import_module(f"{__name__}.{_module}")
