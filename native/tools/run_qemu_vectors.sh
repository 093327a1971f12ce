#!/bin/sh
# The kernels cross-compiled for aarch64 and run under qemu-user against the golden vectors and the
# scalar path; then the same digest of the elementary functions on this machine and on that one.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
out=$root/build/aarch64
for tool in aarch64-linux-gnu-g++ qemu-aarch64; do
  command -v $tool >/dev/null || {
    echo "$tool is missing: install g++-aarch64-linux-gnu and qemu-user and run this again"
    exit 2
  }
done
cmake -S "$root" -B "$out" -DCMAKE_BUILD_TYPE=Release -DCMAKE_SYSTEM_NAME=Linux \
  -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ \
  -DCMAKE_EXE_LINKER_FLAGS=-static -DTALLYSTICK_BUILD_PYTHON=OFF -DTALLYSTICK_BUILD_TOOLS=ON >/dev/null
cmake --build "$out" --target checks -j2 >/dev/null
cmake -S "$root" -B "$out-host" -DTALLYSTICK_BUILD_PYTHON=OFF -DTALLYSTICK_BUILD_TOOLS=ON >/dev/null
cmake --build "$out-host" --target checks -j2 >/dev/null

digests() { sed -n 's/^[a-z0-9]* \(.*\): .* digest \(.*\)/\1 \2/p' | sort -u; }
vectors=$root/vectors/elementary
step=${STEP:-65521}
qemu-aarch64 "$out/native/tools/check_vectors" "$vectors" "$step" >"$out/vectors.txt" ||
  { cat "$out/vectors.txt"; exit 1; }
"$out-host/native/tools/check_vectors" "$vectors" "$step" >"$out/vectors-host.txt" ||
  { cat "$out/vectors-host.txt"; exit 1; }
digests <"$out/vectors.txt" >"$out/digests.txt"
digests <"$out/vectors-host.txt" >"$out/digests-host.txt"
diff "$out/digests-host.txt" "$out/digests.txt" || {
  echo "the elementary functions differ between this machine and aarch64"
  exit 1
}
[ "$(wc -l <"$out/digests.txt")" -eq 12 ] || { echo "a function's paths differ"; exit 1; }
echo "elementary functions: vectors right, digests equal on $(uname -m) and aarch64"
echo "golden vectors of every operator under qemu:"
qemu-aarch64 "$out/native/tools/check_kernels" "$root"/vectors/kernels/*.json \
  "$root"/vectors/exact/*.json
for tool in check_sha256 check_paths; do
  [ -x "$out/native/tools/$tool" ] || continue
  echo "$tool under qemu:"
  qemu-aarch64 "$out/native/tools/$tool"
done
