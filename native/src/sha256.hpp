// SHA-256 and RFC 9162 Merkle trees over fixed leaves of one buffer (COMMITMENTS 2, 3).
//
// A hash has one right answer, so the choice among the implementations below never changes a bit.
// The tests force each of them and compare with Python's hashlib.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tallystick {

constexpr size_t kHashBytes = 32;

// avx512 hashes sixteen leaves or nodes at once, and single messages as sha_ni or portable.
enum class ShaImpl { portable = 0, sha_ni = 1, armv8 = 2, avx512 = 3 };

// True if this machine and this build can run `impl`.
bool sha_supported(ShaImpl impl);
// The implementation in use: the fastest supported one unless set_sha_impl changed it.
ShaImpl active_sha();
// Returns false, and changes nothing, if `impl` is not supported here.
bool set_sha_impl(ShaImpl impl);
const char* sha_name(ShaImpl impl);

void sha256(const uint8_t* data, size_t nbytes, uint8_t out[kHashBytes]);

// Number of leaves of `nbytes` bytes cut every `leaf` bytes; the last one may be shorter.
inline size_t leaf_count(size_t nbytes, size_t leaf) {
  return nbytes / leaf + (nbytes % leaf != 0 ? 1 : 0);
}

// The leaf hashes SHA256(0x00 || leaf_i) in order: leaf_count(nbytes, leaf) * 32 bytes.
void tensor_leaf_hashes(const uint8_t* data, size_t nbytes, size_t leaf, uint8_t* out);

// The RFC 9162 root over the leaves; SHA256("") for an empty buffer. `leaf` >= 1.
// Returns false if memory for the intermediate roots could not be had.
bool tensor_leaves_root(const uint8_t* data, size_t nbytes, size_t leaf, uint8_t out[kHashBytes]);

// The root over `n` leaf hashes already computed; `hashes` (n * 32 bytes) is overwritten.
void merkle_root_in_place(uint8_t* hashes, size_t n, uint8_t out[kHashBytes]);

}  // namespace tallystick
