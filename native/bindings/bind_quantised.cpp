// Python's door to the numbers of quantised weights (NUMERICS 19). Products are in bind_gemm.cpp.
#include "arrays.hpp"
#include "blocks.hpp"
#include "families/quantised.hpp"

namespace tallystick {
namespace {

using namespace arrays;
using Bytes = nb::ndarray<const uint8_t, nb::c_contig, nb::device::cpu>;
constexpr size_t kGrain = 65536;  // numbers

void dequantize(const std::string& format, Bytes raw, Out out) {
  const BlockFormat kind = block_format(format);
  const BlockShape block = block_shape(kind);
  const size_t bytes = count(raw), blocks = bytes / block.size;
  require(bytes % block.size == 0 && count(out) == blocks * block.elements,
          "dequantize: the bytes are not whole blocks, or the output does not fit");
  require_disjoint({out}, {raw});
  const uint8_t* from = raw.data();
  float* to = out.data();
  const auto fn = TS_DISPATCH(quantised).dequantize;
  unlocked_ranges(blocks, kGrain / block.elements, [&](size_t b, size_t e) {
    fn(kind, from + b * block.size, e - b, to + b * block.elements);
  });
}

}  // namespace
}  // namespace tallystick

void bind_quantised(nb::module_& m) {
  using namespace tallystick;
  define(m, "dequantize", &dequantize, "format"_a, "raw"_a, "out"_a,
         "The numbers of blocks of quantised weights (NUMERICS 19).");
}
