// Attention (NUMERICS 18): over whole tensors, and over pages of keys and values.
// Plain structs only: this header is shared by translation units of different instruction sets.
#pragma once
#include <cstddef>
#include <cstdint>

#include "dispatch.hpp"

namespace tallystick {

// The keys of one layer that a page holds at most.
constexpr size_t kPageKeys = 16;
// Heads of one group that are computed together; a task of `pages` has at most so many.
constexpr size_t kHeadTile = 3;

// Which keys there are: 18.2, for queries number 0, 1, ... of `queries`.
struct AttentionSeen {
  bool causal;
  int64_t first, window;
  size_t queries, keys;
};

// How a product becomes a score (18.3). slopes: one a head, or null.
struct ScoreRule {
  float scale;
  bool capped;
  float cap;
  const float* slopes;
};

// Rows are (batch, head, query), in this order.
struct AttentionScores {
  AttentionSeen seen;
  ScoreRule rule;
  size_t heads;
  float* scores;  // [rows, keys]: the products
};
struct AttentionWeights {
  AttentionSeen seen;
  size_t heads;
  const float *scores, *sinks;  // sinks: one a head, or null
  float* out;                   // [rows, keys]; may be scores
};
// Tasks are (batch, group, query).
struct AttentionValues {
  AttentionSeen seen;
  size_t heads, groups, width;
  const float *weights, *values;  // [batches, heads, queries, keys], [batches, groups, keys, width]
  float* out;                     // [batches, heads, queries, width]
};

// One query of each row, in its own text. A page has the keys [groups, depth, kPageKeys], then the
// values [groups, kPageKeys, width]; key j of a text is number j % kPageKeys of the page that its
// table names at j / kPageKeys. Tasks are (row, group, tile of kHeadTile heads).
struct AttentionPages {
  size_t rows, heads, groups, depth, width;
  const float* q;        // [rows, heads, depth]
  const float* pool;
  size_t page_floats;    // from one page to the next
  const int64_t* tables; // of all rows
  const int64_t* starts; // where a row's own table begins
  const int64_t* places; // of the queries: a row sees keys 0 to its place, or the window before it
  int64_t window;
  ScoreRule rule;
  const float* sinks;    // one a head, or null
  float* out;            // [rows, heads, width]
};

struct AttentionTable {
  // Rows [begin, end): products become scores, absent ones +0.
  void (*scores)(const AttentionScores& p, size_t begin, size_t end);
  // Rows [begin, end). scratch: weights_scratch(keys) floats.
  void (*weights)(const AttentionWeights& p, size_t begin, size_t end, float* scratch);
  size_t (*weights_scratch)(size_t keys);
  // Tasks [begin, end).
  void (*values)(const AttentionValues& p, size_t begin, size_t end);
  // Tasks [begin, end). scratch: pages_scratch(keys) floats, of the row that sees the most.
  void (*pages)(const AttentionPages& p, size_t begin, size_t end, float* scratch);
  size_t (*pages_scratch)(size_t keys);
};

TS_DECLARE_TABLES(AttentionTable, attention)

}  // namespace tallystick
