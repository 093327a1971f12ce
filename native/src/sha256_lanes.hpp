// Sixteen SHA-256 streams of equal length at once, one in each 32-bit lane of a 512-bit register.
//
// A hash has one right answer: this changes no bit. It serves where many messages have one length,
// which is so for the leaves and the nodes of a tree.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tallystick {

constexpr size_t kShaLanes = 16;

// The states of the streams, word by word: word w of stream l is words[w][l].
struct ShaLanes {
  alignas(64) uint32_t words[8][kShaLanes];
};

// True if this build and this machine have it (AVX-512F and BW).
bool has_sha_lanes();
// Takes `blocks` blocks of 64 bytes of each stream l, from p[l] on. Only where has_sha_lanes().
void compress_lanes(ShaLanes& state, const uint8_t* const p[kShaLanes], size_t blocks);

}  // namespace tallystick
