"""The part of the check that makes the GPU fail: want of memory loses nothing, and a fault after
which a process cannot use its GPU is said to be one. Neither may look like a step that cannot be
executed, which a party would sign."""

from __future__ import annotations

from typing import Any

import numpy as np
from check.where import Where
from device_calls import call, compared, there

from tallystick.devices.cpu import CPU
from tallystick.devices.cuda.tensor import DeviceTensor
from tallystick.errors import DeviceLostError
from tallystick.numerics.contracts import find_contract

_TOO_MANY = 1 << 55  # bytes
_NOBODYS = 4096  # an address


def _refusal_of_memory(where: Where) -> str:
    try:
        where.device.allocate(_TOO_MANY)
    except MemoryError:
        return ""
    except Exception as error:
        return f"want of memory is {type(error).__name__}: {error}"
    return "more memory was given than there is"


def _loss_of_the_gpu(where: Where) -> list[str]:
    """A kernel reads where nothing is; afterwards every call says what happened."""
    device = where.device
    good = there(device, np.ones(1000, np.float32))
    bad = DeviceTensor(device, good.memory, _NOBODYS, "f32", good.shape, good.strides)
    wrong = []
    for which in ("the call", "the next one"):
        try:
            device.kernels(find_contract("ordered/1"))["aten.neg"].run({}, [bad], [good])
            device.host(good)
            wrong.append(f"{which} after an illegal address succeeded")
        except DeviceLostError:
            pass
        except Exception as error:
            wrong.append(f"{which} after an illegal address: {type(error).__name__}: {error}")
    return wrong


def faults(where: Where) -> dict[str, Any]:
    """It ends with a GPU that its process has lost, but on the emulated device."""
    wrong = [_refusal_of_memory(where)]
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    expected = call(CPU, "aten.mm", {}, [a, a.T.copy()])
    wrong.append(compared(expected, where.device, "aten.mm", {}, [a, a.T.copy()]))
    if not where.small:
        wrong += _loss_of_the_gpu(where)
    wrong = list(filter(None, wrong))
    return {"ok": not wrong, "wrong": wrong}
