#!/bin/sh
# Checks that each instruction set's path really runs, and that the suite sees one wrong bit in any
# kernel. For every set that this machine runs it makes a build whose kernels of that set flip the
# last bit of finite results. On that path each operator's golden vectors must fail; on the other
# paths none may. The rounding and published kernels have no vectors and are compared with the scalar
# path. A pass also shows that the forced paths are distinct code. Result: docs/proofs/fault-check.md.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
out=${BUILD:-$root/build/fault}
jobs=${JOBS:-2}
check=$out/native/tools/check_kernels
paths=$out/native/tools/check_paths
vectors=$root/vectors

build() { # $1: the set with the fault, or empty
  cmake -S "$root" -B "$out" -DCMAKE_BUILD_TYPE=Release -DTALLYSTICK_BUILD_PYTHON=OFF \
    -DTALLYSTICK_BUILD_TOOLS=ON "-DTALLYSTICK_PLANT_FAULT=$1" >/dev/null
  cmake --build "$out" --target check_kernels --target check_paths -j"$jobs" >"$out/build.log" 2>&1 || {
    cat "$out/build.log"
    exit 2
  }
}

check_vectors() { "$check" "$@" "$vectors"/kernels/*.json "$vectors"/exact/*.json; }

echo "no fault:"
build ""
check_vectors || { echo "FAILED: the vectors fail without a fault"; exit 1; }
"$paths" || { echo "FAILED: the paths differ without a fault"; exit 1; }
sets=$("$check" "$vectors/kernels/dot.json" | sed 's/:.*//')

for faulty in $sets; do
  echo "fault in $faulty:"
  build "$faulty"
  check_vectors --isa "$faulty" --expect-fault || {
    echo "FAILED: the fault in $faulty is not seen in every operator"
    exit 1
  }
  "$paths" --expect-fault "$faulty" || {
    echo "FAILED: the fault in $faulty is not seen in each kernel without vectors, and there alone"
    exit 1
  }
  for other in $sets; do
    [ "$other" = "$faulty" ] && continue
    check_vectors --isa "$other" || {
      echo "FAILED: the fault in $faulty shows on the $other path: they share code"
      exit 1
    }
  done
done
build ""
echo "fault check passed: $(echo $sets | wc -w) paths, each fault seen in every operator of its path only"
