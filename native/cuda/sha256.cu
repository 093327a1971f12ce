// SHA-256 of tensors: leaves of 2,048 bytes, their Merkle tree, the digest (COMMITMENTS 2 and 3).
//
// One thread hashes one leaf. A block then pairs the hashes of its 256 leaves, which are a subtree,
// and leaves one hash; further launches pair those of the blocks in the same way. All tensors of a
// state go through the same few launches. In between a hash is 8 numbers of the machine's order.
#include "device.hpp"

#include "tallystick/sha256_numbers.hpp"

namespace tallystick::TS_ISA {

constexpr uint32_t kLeafBytes = 2048;
constexpr uint32_t kGroup = 256;  // leaves, or hashes, of a block; hashing.py has it too
constexpr uint32_t kWords = 8;    // of a hash
constexpr uint32_t kMostLevels = 4;  // of groups: 2^43 bytes

TS_CONSTANT uint32_t kRounds[64] = {TS_SHA256_ROUNDS};
TS_CONSTANT uint32_t kStart[kWords] = {TS_SHA256_START};

struct Hash { uint32_t of[kWords]; };

TS_INLINE Hash hash_start() {
  Hash h;
  TS_UNROLL
  for (uint32_t i = 0; i < kWords; ++i) h.of[i] = kStart[i];
  return h;
}

TS_INLINE uint32_t turned_right(uint32_t x, int n) { return (x >> n) | (x << (32 - n)); }

// One block of 64 bytes, as 16 big-endian numbers, which it overwrites.
TS_INLINE void hash_block(Hash& state, uint32_t (&w)[16]) {
  uint32_t a = state.of[0], b = state.of[1], c = state.of[2], d = state.of[3];
  uint32_t e = state.of[4], f = state.of[5], g = state.of[6], h = state.of[7];
  TS_UNROLL
  for (int t = 0; t < 64; ++t) {
    if (t >= 16) {
      const uint32_t early = w[(t + 1) & 15], late = w[(t + 14) & 15];
      w[t & 15] += (turned_right(early, 7) ^ turned_right(early, 18) ^ (early >> 3)) +
                   w[(t + 9) & 15] +
                   (turned_right(late, 17) ^ turned_right(late, 19) ^ (late >> 10));
    }
    const uint32_t one = h + (turned_right(e, 6) ^ turned_right(e, 11) ^ turned_right(e, 25)) +
                         ((e & f) ^ (~e & g)) + kRounds[t] + w[t & 15];
    const uint32_t two = (turned_right(a, 2) ^ turned_right(a, 13) ^ turned_right(a, 22)) +
                         ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + one, d = c, c = b, b = a, a = one + two;
  }
  state.of[0] += a, state.of[1] += b, state.of[2] += c, state.of[3] += d;
  state.of[4] += e, state.of[5] += f, state.of[6] += g, state.of[7] += h;
}

// The big-endian number of the last byte of one little-endian word and the first three of the next:
// the byte in front of a leaf's or a node's data shifts all of it by one.
TS_INLINE uint32_t shifted_word(uint32_t before, uint32_t here) {
  return pick_bytes(before, here, 0x3456);
}

struct alignas(16) Words4 { uint32_t of[4]; };

// The word of a leaf at byte `at`, and after its end the padding: a byte 0x80, then zeros.
TS_INLINE uint32_t padded_word(const uint8_t* leaf, uint32_t size, uint32_t at) {
  if (at + 4 <= size) return *reinterpret_cast<const uint32_t*>(leaf + at);
  uint32_t word = 0;
  for (uint32_t k = 0; k < 4; ++k) {
    if (at + k < size) word |= static_cast<uint32_t>(leaf[at + k]) << (8 * k);
    if (at + k == size) word |= 0x80u << (8 * k);
  }
  return word;
}

// H(0x00 || leaf). The leaf's address is divisible by 16.
TS_INLINE Hash hash_leaf(const uint8_t* leaf, uint32_t size) {
  Hash state = hash_start();
  const uint32_t blocks = (1 + size + 9 + 63) / 64;
  uint32_t before = 0;  // the byte 0x00 in front
  for (uint32_t block = 0; block < blocks; ++block) {
    const uint32_t at = 64 * block;
    uint32_t data[16];
    if (at + 64 <= size) {
      Words4 held[4];
      TS_UNROLL
      for (int k = 0; k < 4; ++k) held[k] = reinterpret_cast<const Words4*>(leaf + at)[k];
      TS_UNROLL
      for (int k = 0; k < 16; ++k) data[k] = held[k / 4].of[k % 4];
    } else {
      TS_UNROLL
      for (int k = 0; k < 16; ++k) data[k] = padded_word(leaf, size, at + 4 * k);
    }
    uint32_t w[16];
    TS_UNROLL
    for (int k = 0; k < 16; ++k) w[k] = shifted_word(k ? data[k - 1] : before, data[k]);
    before = data[15];
    if (block + 1 == blocks) w[15] = 8 * (1 + size);
    hash_block(state, w);
  }
  return state;
}

// H(0x01 || left || right).
TS_INLINE Hash hash_node(const Hash& left, const Hash& right) {
  Hash state = hash_start();
  uint32_t w[16], before = 1;
  TS_UNROLL
  for (uint32_t k = 0; k < 16; ++k) {
    const uint32_t here = k < kWords ? left.of[k] : right.of[k - kWords];
    w[k] = before << 24 | here >> 8;
    before = here;
  }
  hash_block(state, w);
  w[0] = before << 24 | 0x800000u;
  TS_UNROLL
  for (int k = 1; k < 15; ++k) w[k] = 0;
  w[15] = 8 * 65;
  hash_block(state, w);
  return state;
}

// H(empty), the root over no leaves.
TS_INLINE Hash hash_nothing() {
  Hash state = hash_start();
  uint32_t w[16] = {0x80000000u};
  TS_UNROLL
  for (int k = 1; k < 16; ++k) w[k] = 0;
  hash_block(state, w);
  return state;
}

// A tensor: its bytes, and the number of its first group of each level among those of all tensors.
// Every tensor has at least one group of each level.
struct Hashed {
  const uint8_t* data;
  int64_t nbytes;
  int64_t first[kMostLevels];
  const uint8_t* message;  // what the digest hashes, padded, with a gap for the root
  int64_t message_blocks, root_at;
};

// The tensor that the group belongs to.
TS_INLINE int64_t tensor_of(const Hashed* tensors, int64_t count, int64_t level, int64_t group) {
  int64_t low = 0, high = count;  // the answer is in [low, high)
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (tensors[middle].first[level] <= group)
      low = middle;
    else
      high = middle;
  }
  return low;
}

// Pairs neighbours level by level; an odd last hash moves up unchanged, which is 2.3's tree. Hash i
// of the block is thread i's.
TS_INLINE void pair_all(uint32_t* hashes, Hash own, uint32_t count, Hash* out) {
  const uint32_t thread = thread_index();
  for (;;) {
    if (thread < count)
      for (uint32_t k = 0; k < kWords; ++k) hashes[k * kGroup + thread] = own.of[k];
    if (!has_fault(Fault::missing_barrier)) block_barrier();
    if (count <= 1) break;
    const uint32_t next = (count + 1) / 2;
    if (thread < next) {
      Hash right;
      const bool paired = 2 * thread + 1 < count;
      for (uint32_t k = 0; k < kWords; ++k) own.of[k] = hashes[k * kGroup + 2 * thread];
      if (paired) {
        for (uint32_t k = 0; k < kWords; ++k) right.of[k] = hashes[k * kGroup + 2 * thread + 1];
        own = hash_node(own, right);
      }
    }
    block_barrier();
    count = next;
  }
  if (thread == 0) *out = own;
}

struct Leaves {
  const Hashed* tensors;
  int64_t count;
  Hash* out;  // a hash of every group
};
TS_KERNEL(sha256_leaves, Leaves, 256) {
  TS_SHARED(uint32_t, hashes, kWords * kGroup);
  const int64_t group = block_x(), number = tensor_of(p.tensors, p.count, 0, group);
  const Hashed& tensor = p.tensors[number];
  const int64_t at = ((group - tensor.first[0]) * kGroup + thread_index()) * kLeafBytes;
  const int64_t leaves = (tensor.nbytes + kLeafBytes - 1) / kLeafBytes;
  const int64_t rest = leaves - (group - tensor.first[0]) * kGroup;
  Hash own = {};
  if (leaves == 0)
    own = hash_nothing();
  else if (at < tensor.nbytes)
    own = hash_leaf(tensor.data + at,
                    static_cast<uint32_t>(ts_min(tensor.nbytes - at, int64_t{kLeafBytes})));
  pair_all(hashes, own, static_cast<uint32_t>(ts_min(rest, int64_t{kGroup})), p.out + group);
}

struct Level {
  const Hashed* tensors;
  int64_t count;
  int64_t level;  // of the groups that are made
  int64_t below;  // how many groups there are of the level below
  const Hash* in;
  Hash* out;
};
TS_KERNEL(sha256_level, Level, 256) {
  TS_SHARED(uint32_t, hashes, kWords * kGroup);
  const int64_t group = block_x(), number = tensor_of(p.tensors, p.count, p.level, group);
  const int64_t first = p.tensors[number].first[p.level - 1];
  const int64_t end = number + 1 < p.count ? p.tensors[number + 1].first[p.level - 1] : p.below;
  const int64_t at = first + (group - p.tensors[number].first[p.level]) * kGroup;
  Hash own = {};
  if (at + thread_index() < end) own = p.in[at + thread_index()];
  pair_all(hashes, own, static_cast<uint32_t>(ts_min(end - at, int64_t{kGroup})), p.out + group);
}

struct Digests {
  const Hashed* tensors;
  int64_t count;
  const Hash* roots;
  uint32_t* out;
};
TS_KERNEL(sha256_digests, Digests, 256) {
  const int64_t number = first_item();
  if (number >= p.count) return;
  const Hashed& tensor = p.tensors[number];
  const Hash& root = p.roots[number];
  Hash state = hash_start();
  for (int64_t block = 0; block < tensor.message_blocks; ++block) {
    uint32_t w[16];
    TS_UNROLL
    for (int k = 0; k < 16; ++k) {
      w[k] = 0;
      for (int i = 0; i < 4; ++i) {
        const int64_t at = 64 * block + 4 * k + i, in = at - tensor.root_at;
        const bool inside = in >= 0 && in < 32;
        const uint32_t byte = inside ? root.of[in / 4] >> (24 - in % 4 * 8) & 0xff
                                     : uint32_t{tensor.message[at]};
        w[k] = w[k] << 8 | byte;
      }
    }
    hash_block(state, w);
  }
  if (has_fault(Fault::one_bit)) state.of[0] ^= 1;
  for (uint32_t k = 0; k < kWords; ++k)
    p.out[number * kWords + k] = pick_bytes(state.of[k], 0, 0x0123);
}

}  // namespace tallystick::TS_ISA
