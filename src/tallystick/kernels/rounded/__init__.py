"""The rounded operators: stock binary64 kernels; doubtful elements decided exactly (NUMERICS 13).

`operators` has one generator of pieces per operator. `pieces` defines a piece and says how
`rounded/1` decides it. `engines` has the binary64 kernels. A rounding log's recorder or follower
(NUMERICS 14) decides the same pieces in its own way.
"""

from tallystick.kernels.rounded.engines import ProductEngine as ProductEngine
from tallystick.kernels.rounded.engines import current_engine as current_engine
from tallystick.kernels.rounded.engines import using as using
from tallystick.kernels.rounded.operators import run_rounded as run_rounded
from tallystick.kernels.rounded.pieces import Decide as Decide
from tallystick.kernels.rounded.pieces import Piece as Piece
from tallystick.kernels.rounded.pieces import exactly as exactly
