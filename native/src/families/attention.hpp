// Attention (NUMERICS 18): over whole tensors, and over pages of keys and values.
// Plain structs only: this header is shared by translation units of different instruction sets.
#pragma once
#include <cstddef>
#include <cstdint>

#include "dispatch.hpp"

namespace tallystick {

// The keys of one layer that a page holds at most.
constexpr size_t kPageKeys = 16;
// Heads of one group, and queries that follow each other in one text, that are computed together.
constexpr size_t kHeadTile = 3, kBlockQueries = 16;

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

// One row of floats for each (row, head).
template <class T>
struct HeadRows {
  T* data;
  size_t row, head;  // floats from one to the next
};

// One query of each row, in its own text. A page has the keys [groups, depth, kPageKeys], then the
// values [groups, kPageKeys, width]; key j of a text is number j % kPageKeys of the page that its
// table names at j / kPageKeys. Tasks are (group, tile of kHeadTile heads, row): rows that follow
// each other in one text are computed together, where a range of tasks has them.
struct AttentionPages {
  size_t rows, heads, groups, depth, width;
  HeadRows<const float> q;
  const float* pool;
  size_t page_floats;     // from one page to the next
  const int64_t* tables;  // of all rows
  const int64_t* starts;  // where a row's own table begins
  const int64_t* places;  // of the queries
  bool causal;            // 18.2, as the next two
  int64_t window;
  size_t keys;            // that a text has at most
  ScoreRule rule;
  const float* sinks;     // one a head, or null
  HeadRows<float> out;
};

struct AttentionTable {
  // Rows [begin, end): products become scores, absent ones +0.
  void (*scores)(const AttentionScores& p, size_t begin, size_t end);
  // Rows [begin, end). scratch: weights_scratch(keys) floats.
  void (*weights)(const AttentionWeights& p, size_t begin, size_t end, float* scratch);
  size_t (*weights_scratch)(size_t keys);
  // Tasks [begin, end).
  void (*values)(const AttentionValues& p, size_t begin, size_t end);
  // Tasks [begin, end). scratch: pages_scratch(queries, keys) floats, of the most rows that follow
  // each other, or kBlockQueries, and of the row that sees the most keys.
  void (*pages)(const AttentionPages& p, size_t begin, size_t end, float* scratch);
  size_t (*pages_scratch)(size_t queries, size_t keys);
};

TS_DECLARE_TABLES(AttentionTable, attention)

}  // namespace tallystick
