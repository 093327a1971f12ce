// Checks the elementary functions of every instruction set of this machine without any library, so
// that it also runs cross-compiled under an emulator.
//
//   check_vectors VECTOR_DIR [STEP]
//
// Every NAME.bin of gen_vectors is compared; then a digest of each function over the inputs 0, STEP,
// 2 STEP, ... is printed, which must be the same for every set on every machine. Exit code: 0 all
// equal, 1 otherwise, 3 usage.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "context.hpp"
#include "families/elementary.hpp"

using namespace tallystick;

namespace {

const ElementaryTable& table_of(Isa isa) {
  default_context().set_isa(isa);
  return TS_DISPATCH(elementary);
}

std::vector<uint32_t> read_words(const std::string& path) {
  std::vector<uint32_t> words;
  std::FILE* in = std::fopen(path.c_str(), "rb");
  if (!in) {
    std::fprintf(stderr, "cannot read %s\n", path.c_str());
    std::exit(3);
  }
  for (uint32_t v; std::fread(&v, 4, 1, in) == 1;) words.push_back(v);
  std::fclose(in);
  return words;
}

// Column c of rows of `width` words, as floats.
std::vector<float> column(const std::vector<uint32_t>& words, size_t width, size_t c) {
  std::vector<float> out(words.size() / width);
  for (size_t i = 0; i < out.size(); ++i) std::memcpy(&out[i], &words[i * width + c], 4);
  return out;
}

size_t differing(const std::vector<float>& a, const std::vector<float>& b) {
  size_t n = 0;
  for (size_t i = 0; i < a.size(); ++i) n += std::memcmp(&a[i], &b[i], 4) != 0;
  return n;
}

uint64_t sample_digest(UnaryFn fn, uint64_t step) {
  constexpr size_t kBlock = 4096;
  std::vector<float> x(kBlock), y(kBlock);
  uint64_t h = 0xcbf29ce484222325ull;  // FNV-1a over the result words
  for (uint64_t at = 0; at < (1ull << 32);) {
    size_t n = 0;
    for (; n < kBlock && at < (1ull << 32); ++n, at += step) {
      const uint32_t bits = static_cast<uint32_t>(at);
      std::memcpy(&x[n], &bits, 4);
    }
    fn(x.data(), y.data(), n);
    for (size_t i = 0; i < n; ++i) {
      uint32_t bits;
      std::memcpy(&bits, &y[i], 4);
      h = (h ^ bits) * 0x100000001b3ull;
    }
  }
  return h;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fprintf(stderr, "usage: check_vectors VECTOR_DIR [STEP]\n");
    return 3;
  }
  const std::string dir = argv[1];
  const uint64_t step = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 0;
  size_t wrong = 0;
  for (Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512, Isa::neon}) {
    if (!isa_supported(isa)) continue;
    const ElementaryTable& t = table_of(isa);
    for (const NamedUnary& f : kUnary) {
      const std::vector<uint32_t> words = read_words(dir + "/" + f.name + ".bin");
      const std::vector<float> x = column(words, 2, 0), want = column(words, 2, 1);
      std::vector<float> got(x.size());
      (t.*f.fn)(x.data(), got.data(), x.size());
      const size_t bad = differing(got, want);
      wrong += bad;
      std::printf("%s %s: %zu vectors, %zu wrong", isa_name(isa), f.name, x.size(), bad);
      if (step) std::printf(", digest %016llx", static_cast<unsigned long long>(sample_digest(t.*f.fn, step)));
      std::printf("\n");
    }
    const std::vector<uint32_t> words = read_words(dir + "/pow.bin");
    const std::vector<float> x = column(words, 3, 0), y = column(words, 3, 1), want = column(words, 3, 2);
    std::vector<float> got(x.size());
    t.pow(x.data(), y.data(), 1, got.data(), x.size());
    const size_t bad = differing(got, want);
    wrong += bad;
    std::printf("%s pow: %zu vectors, %zu wrong\n", isa_name(isa), x.size(), bad);
  }
  return wrong ? 1 : 0;
}
