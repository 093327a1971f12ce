"""Contract identifiers: one spelling each, and what a person may write for them (NUMERICS 13.1,
14.1)."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tallystick.contracts.replay.contract import find_replay
from tallystick.devices.cpu import Processor
from tallystick.devices.device import Kernel, Run, replaced
from tallystick.errors import UnsupportedVersionError
from tallystick.numerics.contracts import (
    Contract,
    families,
    find_contract,
    find_without_log,
    is_contract,
    parse_contract,
    resolve_contract,
)

WRITTEN = {
    "ordered/1": "ordered/1-draft.1",
    "rounded/1": "rounded/1-draft.1",
    "rounded/1;b=32": "rounded/1-draft.1",
    "rounded/1;b=28": "rounded/1-draft.1;b=28",
    "rounded/1-draft.1;b=20": "rounded/1-draft.1;b=20",
    "exact/1": "exact/1-draft.1;b=22",
    "exact/1;b=8": "exact/1-draft.1;b=8",
    "exact/1-draft.1;b=15": "exact/1-draft.1;b=15",
    "replay/1": "replay/1-draft.1;b=32;form=bounded",
    "replay/1;form=bounded": "replay/1-draft.1;b=32;form=bounded",
    "replay/1;form=bounded;b=26": "replay/1-draft.1;b=26;form=bounded",
    "replay/1;form=published": "replay/1-draft.1;b=32;form=published;scale=binary;tau=32768",
    "replay/1;form=published;scale=decimal;tau=7": (
        "replay/1-draft.1;b=32;form=published;scale=decimal;tau=7"
    ),
    "replay/1;tau.aten.mm=5;tau=7;tau.aten.bmm=0;form=published": (
        "replay/1-draft.1;b=32;form=published;scale=binary;tau=7;tau.aten.bmm=0;tau.aten.mm=5"
    ),
}
REFUSED = (
    "", "rounded", "rounded/2", "rounded/1-draft.2", "ordered/1;b=32", "rounded/1;b=19",
    "rounded/1;b=33", "rounded/1;b=028", "rounded/1;b=+28", "rounded/1;b= 28", "rounded/1;b",
    "rounded/1;b=28;b=28", "rounded/1;form=bounded", "rounded/1;", "replay/1;form=other",
    "replay/1;tau=1", "replay/1;scale=binary", "replay/1;form=published;scale=octal",
    "replay/1;form=published;tau=-1", "replay/1;form=published;tau=1099511627777",
    "replay/1;form=published;tau=5;tau.aten.mm=5", "replay/1;form=published;tau.=5",
    "replay/1;form=published;tau.aten mm=5", "replay/1;form=published;rho=5",
    "exact/1;b=7", "exact/1;b=08", "exact/1;b=32", "exact/1;b=8;b=8", "exact/1;form=bounded",
    "exact/2", "exact/1-draft.2;b=8", "exact/1;", "exact/1;b=8;k=256",
    "rounded/1;b=2\N{FULLWIDTH DIGIT EIGHT}",
    "replay/1;form=published" + "".join(f";tau.aten.op{i}={i}" for i in range(99)),
)  # fmt: skip


@pytest.mark.parametrize("name", WRITTEN)
def test_names_become_the_one_identifier(name: str) -> None:
    text = WRITTEN[name]
    assert resolve_contract(name) == text == find_contract(name).text == str(parse_contract(text))
    assert is_contract(text) and is_contract(name) == (name == text)
    assert resolve_contract(text) == text


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_contract_is_refused(name: str) -> None:
    with pytest.raises(UnsupportedVersionError):
        resolve_contract(name)
    assert not is_contract(name)


def test_the_short_name_is_no_identifier() -> None:
    with pytest.raises(UnsupportedVersionError, match="is written"):
        parse_contract("rounded/1")
    with pytest.raises(UnsupportedVersionError, match="is written"):
        parse_contract("rounded/1-draft.1;b=32")


def test_what_a_contract_says() -> None:
    names = ("ordered", "rounded", "replay", "exact")
    ordered, rounded, replay, exact = (find_contract(f"{n}/1") for n in names)
    assert not ordered.keeps_log and not rounded.keeps_log and replay.keeps_log
    assert not ordered.own_operators and not exact.keeps_log
    assert rounded.own_operators == replay.own_operators
    assert {"aten.mm", "aten.mean.dim"} < rounded.own_operators
    assert "tallystick.sum_squares" not in rounded.own_operators
    every = (ordered, rounded, replay, exact)
    assert [c.text.split(";")[0] for c in every] == [f.draft for f in families().values()]
    assert exact.own_operators < rounded.own_operators and len(exact.own_operators) == 5


def test_thresholds() -> None:
    base = find_replay("replay/1;form=published;b=28")
    assert base.threshold == 1 << 19
    with_some = base.with_thresholds(9, {"aten.mm": 9, "aten.sum": 3, "aten.exp": 4})
    assert with_some.thresholds == (("aten.exp", 4), ("aten.sum", 3))
    assert [with_some.threshold_of(f"aten.{o}") for o in ("exp", "mm", "sum")] == [4, 9, 3]
    assert parse_contract(with_some.text) == with_some
    with pytest.raises(UnsupportedVersionError, match="1024 bytes"):
        base.with_thresholds(9, {f"aten.operator_{i}": i for i in range(10, 80)})
    assert isinstance(with_some, Contract)


def test_the_order_is_that_of_the_folders() -> None:
    """Whatever is imported first: `doctor` and refusals list them."""
    code = "from tallystick.contracts.exact import contract\n"
    code += "from tallystick.numerics.contracts import families\nprint(*families())"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["ordered/1", "rounded/1", "replay/1", "exact/1"]


def test_an_own_operator_without_a_kernel_is_an_error() -> None:
    """It would keep the ordinary kernel, and be opened by another rule."""
    ordinary = {"aten.mm": Kernel(lambda *_: None), "aten.exp": Kernel(lambda *_: None)}
    table: dict[str, Run] = {}
    with pytest.raises(KeyError, match="mm"):
        replaced(ordinary, frozenset({"aten.mm"}), lambda op, _: table[op])
    table["aten.mm"] = lambda *_: None
    made = replaced(ordinary, frozenset({"aten.mm", "aten.bmm"}), lambda op, _: table[op])
    assert made.keys() == ordinary.keys() and made["aten.exp"] is ordinary["aten.exp"]
    assert made["aten.mm"].run is table["aten.mm"]


def test_a_device_keeps_some_tables_only() -> None:
    """The numbers of a contract come from other parties."""
    device = Processor()
    for number in range(200):
        device.kernels(find_contract(f"replay/1;form=published;tau={number}"))
    assert device._kernels.cache_info().currsize <= 64


def test_what_has_no_log_is_advised() -> None:
    with pytest.raises(UnsupportedVersionError) as refused:
        find_without_log("replay/1;b=28")
    assert "Use rounded/1;b=28 (" in refused.value.next_action
