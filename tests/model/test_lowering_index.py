"""Reading and adding at positions that tensors give (PROGRAM 5.2, NUMERICS 9, 4.2, 4.3)."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from lowering_check import OneCall, Op, captured, check, integers  # noqa: E402
from torch import Tensor  # noqa: E402

from tallystick.errors import UnsupportedOperatorError, UsageError  # noqa: E402


def filled(x: Tensor, mask: Tensor) -> Tensor:
    z = x.clone()
    z[mask] = 0.5
    return z


def put(x: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    z = x.clone()
    z[mask] = values
    return z


def bags(mode: str, **options: object) -> object:
    return lambda w, i, *rest: F.embedding_bag(i, w, *rest, mode=mode, **options)


OFFSETS = torch.tensor([0, 2, 2, 5])  # the second bag is empty

CASES = {
    "one": Op(lambda x, i: x[i], [(5, 3), integers(5, 2, 4)], eager=True),
    "one, negative": Op(lambda x, i: x[i], [(5, 3), integers(5, 2, 4) - 5], eager=True),
    "one, i32": Op(lambda x, i: x[i], [(5, 3), integers(5, 2).int()]),
    "one, none": Op(lambda x, i: x[i], [(5, 3), integers(5, 0)]),
    "one, last axis": Op(lambda x, i: x[..., i], [(2, 3, 4), integers(4, 2, 2)]),
    "two": Op(lambda x, i, j: x[i, j], [(5, 4, 3), integers(5, 2, 3), integers(4, 2, 3)]),
    "two, broadcast": Op(
        lambda x, i, j: x[:, i, j],
        [(2, 5, 4, 3), integers(5, 6, 1) - 5, integers(4, 2)],
        eager=True,
    ),
    "two, apart": Op(
        lambda x, i, j: x[i, :, j], [(5, 4, 3, 2), integers(5, 2, 1), integers(3, 3)], eager=True
    ),
    "three": Op(
        lambda x, i, j, k: x[i, j, k],
        [(5, 4, 3), integers(5, 2, 1), integers(4, 1, 3), integers(3, 1, 1)],
    ),
    "rows and columns": Op(
        lambda x, j: x[torch.arange(x.shape[0]), j], [(5, 4), integers(4, 5)], eager=True
    ),
    "fill by mask": Op(filled, [(3, 4), integers(2, 3, 4).bool()], eager=True),
    "fill rows by mask": Op(filled, [(3, 4), integers(2, 3).bool()]),
    "put rows by mask": Op(put, [(3, 4), (4,), integers(2, 3).bool()], frozen=(1,)),
    "index_put adds": Op(
        lambda x, v, i, j: x.index_put((i, j), v, accumulate=True),
        [(5, 4, 3), (2, 3, 3), integers(5, 2, 3), integers(4, 2, 3)],
        eager=True,
    ),
    "index_put adds one row": Op(
        lambda x, v, i: x.index_put((i,), v, accumulate=True), [(5, 4), (4,), integers(5, 6)]
    ),
    "index_put adds by mask": Op(
        lambda x, v, m: x.index_put((m,), v, accumulate=True),
        [(3, 4), (), integers(2, 3, 4).bool()],
        frozen=(1,),
    ),
    "gather": Op(lambda x, i: x.gather(0, i), [(5, 4), integers(5, 3, 4)], eager=True),
    "gather, last axis": Op(lambda x, i: x.gather(-1, i), [(5, 4, 3), integers(3, 4, 2, 7)]),
    "gather, spread": Op(
        lambda x, i: x.gather(1, i.unsqueeze(-1).expand(-1, -1, 6)), [(2, 5, 6), integers(5, 2, 3)]
    ),
    "gather, one axis": Op(lambda x, i: x.gather(0, i), [(5,), integers(5, 7)]),
    "gather, no axis": Op(lambda x, i: x.gather(0, i), [(), integers(1)]),
    "scatter_add": Op(
        lambda x, i, s: x.scatter_add(0, i, s), [(5, 4), integers(5, 3, 4), (3, 4)], eager=True
    ),
    "scatter_add, part of the source": Op(
        lambda x, i, s: x.scatter_add(1, i, s), [(5, 4), integers(4, 3, 6), (5, 7)], frozen=(2,)
    ),
    "scatter_add, spread": Op(
        lambda x, i, s: x.scatter_add(1, i.unsqueeze(-1).expand(-1, -1, 6), s),
        [(2, 5, 6), integers(5, 2, 3), (2, 3, 6)],
    ),
    "index_add": Op(
        lambda x, i, s: x.index_add(1, i, s, alpha=0.5), [(3, 5), integers(5, 4), (3, 4)]
    ),
    "index_select": Op(lambda x, i: x.index_select(-1, i), [(2, 5), integers(5, 3)]),
    "index_fill": Op(lambda x, i: x.index_fill(1, i, 2.5), [(3, 5), integers(5, 2) - 5]),
    "take": Op(lambda x, i: x.take(i), [(3, 5), integers(15, 2, 4) - 15], eager=True),
    "put": Op(lambda x, i, s: x.put(i, s, accumulate=True), [(3, 5), integers(15, 4) - 15, (4,)]),
    "embedding, by frequency": Op(
        lambda w, i: F.embedding(i, w, scale_grad_by_freq=True), [(7, 3), integers(7, 4, 5)]
    ),
    "embedding, padding": Op(
        lambda w, i: F.embedding(i, w, padding_idx=2), [(7, 3), integers(7, 4, 5)]
    ),
    "one_hot": Op(lambda x, i: F.one_hot(i, 5).float() * x, [(3, 5), integers(5, 3)]),
    "bags, sum": Op(bags("sum"), [(7, 3), integers(7, 4, 5)], eager=True),
    "bags, sum by offsets": Op(bags("sum"), [(7, 3), integers(7, 9), OFFSETS]),
    "bags, mean": Op(bags("mean"), [(7, 3), integers(7, 9), OFFSETS], eager=True),
    "bags, mean with padding": Op(bags("mean", padding_idx=2), [(7, 3), integers(7, 4, 5)]),
    "bags, max": Op(bags("max"), [(7, 3), integers(7, 9), OFFSETS], eager=True),
    "bags, max with padding": Op(bags("max", padding_idx=2), [(7, 3), integers(7, 9), OFFSETS]),
    "bags, last offset": Op(
        bags("sum", include_last_offset=True),
        [(7, 3), integers(7, 9), torch.tensor([0, 2, 2, 5, 9])],
    ),
    # torch 2.x scales by another index's count where the counts differ; here they do not.
    "bags, by frequency": Op(
        bags("sum", scale_grad_by_freq=True),
        [(7, 3), torch.tensor([0, 3, 3, 6, 0, 6]), torch.tensor([0, 2, 2, 5])],
    ),
    "bags, weighted": Op(
        lambda w, s, i: F.embedding_bag(i, w, mode="sum", per_sample_weights=s, padding_idx=1),
        [(7, 3), (4, 5), integers(7, 4, 5)],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_torchs(name: str) -> None:
    check(CASES[name])


def test_an_index_that_cannot_be_negative_is_read_as_it_is() -> None:
    """NUMERICS 9.2: a negative index would be refused, so others are counted from the end."""
    known = check(Op(lambda x: x[torch.arange(3), torch.arange(3)], [(5, 4)]))
    given = check(Op(lambda x, i: x[i], [(5, 4), integers(5, 2)]))
    assert "aten.where" not in known and given.count("aten.where") == 1


def test_a_spread_index_adds_rows() -> None:
    """The index of `scatter_add` has one element per row, not one per element."""
    op = CASES["gather, spread"]
    program = captured(OneCall(op)).program
    (added,) = [node for node in program.nodes if node.op == "aten.index_add"]
    assert added.out_types[0].shape == (10, 6)


@pytest.mark.parametrize(
    ("call", "operands", "message"),
    [
        (lambda x, m: x[m], [(3, 4), integers(2, 3, 4).bool()], "mask.*values"),
        (lambda x, m: x.masked_select(m), [(3, 4), integers(2, 3, 4).bool()], "mask.*values"),
        (
            lambda w, i: F.embedding(i, w, max_norm=1.0),
            [(7, 3), integers(7, 4)],
            "changes its weights",
        ),
    ],
)
def test_shapes_by_value_and_changed_weights_are_refused(
    call: object, operands: list[object], message: str
) -> None:
    module = OneCall(Op(lambda x, i: x.sum(), operands))
    module.call = lambda x, i: call(x, i).sum()  # type: ignore[operator]
    with pytest.raises((UsageError, UnsupportedOperatorError), match=message):
        captured(module)
