#!/bin/sh
# Runs every elementary function over all 2^32 inputs, with one JSON result each. After an
# interruption, run it again: it continues. Usage: run_exhaustive.sh [OUT_DIR [FUNCTION...]];
# THREADS=N for more than one.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
out=${1:-$root/build/exhaustive}
[ $# -gt 0 ] && shift
[ $# -gt 0 ] || set -- exp log tanh erf sigmoid sin cos rsqrt expm1 log1p exp2 log2
[ -f /usr/include/mpfr.h ] || command -v brew >/dev/null || {
  echo "MPFR is missing: install libmpfr-dev and run this again"
  exit 2
}
mkdir -p "$out"
cmake -S "$root" -B "$out/cmake" -DTALLYSTICK_BUILD_PYTHON=OFF -DTALLYSTICK_BUILD_TOOLS=ON >/dev/null
cmake --build "$out/cmake" --target proofs -j2 >/dev/null
commit=$(git -C "$root" rev-parse HEAD 2>/dev/null || echo unknown)
status=0
for name in "$@"; do
  echo "$name ..."
  nice -n 10 "$out/cmake/native/tools/exhaustive" --function "$name" --state "$out" \
    --json "$out/$name.json" --threads "${THREADS:-1}" --commit "$commit" || status=1
  grep -E '"(inputs|undecided_to_mpfr|wrong|isa_differences)"' "$out/$name.json"
done
"$out/cmake/native/tools/check_pow" 10000000 1 || status=1
exit $status
