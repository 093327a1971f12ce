"""The rounded operators: stock binary64 kernels; doubtful elements decided exactly (NUMERICS 13).

`operators` has one generator of pieces per operator. `pieces` defines a piece and says how
`rounded/1` decides it. A rounding log's recorder or follower (NUMERICS 14) decides the same pieces
in its own way.
"""

from tallystick.contracts.rounded.cpu.operators import run_rounded as run_rounded
from tallystick.contracts.rounded.cpu.pieces import Decide as Decide
from tallystick.contracts.rounded.cpu.pieces import Piece as Piece
from tallystick.contracts.rounded.cpu.pieces import exactly as exactly
