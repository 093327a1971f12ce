"""Imports every family of opening rules, so that they register themselves."""

from __future__ import annotations
