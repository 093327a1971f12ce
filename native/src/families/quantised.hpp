// Quantised weights (NUMERICS 19): their numbers, and products that read them in blocks.
#pragma once
#include <cstddef>
#include <cstdint>

#include "dispatch.hpp"
#include "families/gemm.hpp"

namespace tallystick {

enum class BlockFormat : int { q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k, q6_k };

// Their names (NUMERICS 19.1), in that order.
constexpr const char* kBlockFormats[] = {"q4_0", "q4_1", "q5_0", "q5_1",
                                         "q8_0", "q4_k", "q5_k", "q6_k"};

// A block has so many numbers in so many bytes.
struct BlockShape {
  size_t elements, size;
};

constexpr BlockShape block_shape(BlockFormat format) {
  switch (format) {
    case BlockFormat::q4_0: return {32, 18};
    case BlockFormat::q4_1: return {32, 20};
    case BlockFormat::q5_0: return {32, 22};
    case BlockFormat::q5_1: return {32, 24};
    case BlockFormat::q8_0: return {32, 34};
    case BlockFormat::q4_k: return {256, 144};
    case BlockFormat::q5_k: return {256, 176};
    case BlockFormat::q6_k: return {256, 210};
  }
  return {1, 1};
}

// A matrix of rows of blocks, one row after the other.
struct QuantisedRows {
  const uint8_t* data;
  size_t row_bytes;
  BlockFormat format;
};

// A matrix as panels of blocks (tallystick/quantised_panels.hpp).
struct QuantisedPanels {
  const uint8_t* data;
  BlockFormat format;
};

struct QuantisedTable {
  // The numbers of `blocks` blocks.
  void (*dequantize)(BlockFormat format, const uint8_t* src, size_t blocks, float* out);
  // A product whose column j of B is row j of `b`; p.b is not read. A strip of rows at a time is in
  // a cache as binary32. Returns false only if scratch memory could not be had.
  bool (*gemm)(const GemmProblem& p, const QuantisedRows& b);
  // The same with B as panels.
  bool (*gemm_panels)(const GemmProblem& p, const QuantisedPanels& b);
};

TS_DECLARE_TABLES(QuantisedTable, quantised)

}  // namespace tallystick
