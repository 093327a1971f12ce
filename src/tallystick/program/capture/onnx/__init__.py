"""A trainable torch module from an ONNX file (docs/adr/0011-onnx.md).

The way of a file: `read.py` (bytes to plain nodes, nothing trusted), `roles.py` (what is a weight,
what is computed once), `module.py` (the torch module). `ops_*.py` say what the operators mean.
"""

from __future__ import annotations

from tallystick.program.capture.onnx.module import OnnxModule as OnnxModule
from tallystick.program.capture.onnx.module import from_onnx as from_onnx
