// Checks every SHA-256 implementation of this build against published digests and each other,
// without Python, so that it runs cross-compiled under an emulator. Prints the names checked and
// a digest over all results, which is the same on every machine; exits 1 at the first difference.
#include <cstdio>
#include <cstring>
#include <vector>

#include "../src/sha256.hpp"

using namespace tallystick;

namespace {

using Bytes = std::vector<uint8_t>;

void append(Bytes& all, const uint8_t* digest) { all.insert(all.end(), digest, digest + 32); }

Bytes results() {
  Bytes data(70000), all;
  uint32_t x = 1;
  for (uint8_t& b : data) b = static_cast<uint8_t>((x = x * 1664525u + 1013904223u) >> 24);
  uint8_t out[32];
  for (size_t n = 0; n <= 300; ++n) {
    sha256(data.data() + n % 16, n, out);
    append(all, out);
  }
  for (size_t leaf : {1u, 55u, 63u, 64u, 65u, 520u, 2048u}) {
    for (size_t n : {size_t{0}, leaf - 1, leaf, leaf + 1, 3 * leaf, 7 * leaf - 1, size_t{70000}}) {
      if (!tensor_leaves_root(data.data(), n, leaf, out)) return {};
      append(all, out);
      Bytes hashes(leaf_count(n, leaf) * 32);
      tensor_leaf_hashes(data.data(), n, leaf, hashes.data());
      uint8_t again[32];
      merkle_root_in_place(hashes.data(), hashes.size() / 32, again);
      if (std::memcmp(out, again, 32) != 0) return {};
    }
  }
  return all;
}

bool published() {  // FIPS 180-2, appendix B.1
  const uint8_t expected[4] = {0xba, 0x78, 0x16, 0xbf};
  uint8_t out[32];
  sha256(reinterpret_cast<const uint8_t*>("abc"), 3, out);
  return std::memcmp(out, expected, 4) == 0 && out[31] == 0xad;
}

}  // namespace

int main() {
  Bytes reference;
  for (ShaImpl impl : {ShaImpl::portable, ShaImpl::sha_ni, ShaImpl::armv8, ShaImpl::avx512}) {
    if (!set_sha_impl(impl)) continue;
    const Bytes found = results();
    if (reference.empty()) reference = found;
    if (!published() || found.empty() || found != reference) {
      std::printf("%s differs\n", sha_name(impl));
      return 1;
    }
    std::printf("%s ", sha_name(impl));
  }
  uint8_t out[32];
  sha256(reference.data(), reference.size(), out);
  for (uint8_t b : out) std::printf("%02x", b);
  std::printf("\n");
  return 0;
}
