// Writes the golden vectors of the elementary functions, every expected value by MPFR.
//
//   gen_vectors STATE_DIR OUT_DIR
//
// STATE_DIR holds the NAME.hard files that `exhaustive` left: the inputs whose value lies nearest to
// a rounding boundary. OUT_DIR gets NAME.bin (pairs x, f(x)) and pow.bin (triples x, y, x^y), all
// little-endian 32-bit patterns, sorted by input.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "pow_arguments.hpp"

using namespace reference;

namespace {

constexpr size_t kRandom = 4096, kHard = 4096, kPow = 6000;

void write_words(const std::string& path, const std::vector<uint32_t>& words) {
  std::FILE* out = std::fopen(path.c_str(), "wb");
  if (!out || std::fwrite(words.data(), 4, words.size(), out) != words.size() || std::fclose(out)) {
    std::fprintf(stderr, "cannot write %s\n", path.c_str());
    std::exit(3);
  }
  std::printf("%s: %zu words\n", path.c_str(), words.size());
}

std::vector<uint32_t> hard_inputs(const std::string& path) {
  std::vector<uint32_t> all;
  std::FILE* in = std::fopen(path.c_str(), "rb");
  if (!in) {
    std::fprintf(stderr, "cannot read %s: run exhaustive with --state first\n", path.c_str());
    std::exit(3);
  }
  for (uint32_t v; std::fread(&v, 4, 1, in) == 1;) all.push_back(v);
  std::fclose(in);
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  if (all.size() <= kHard) return all;
  std::vector<uint32_t> some;  // spread evenly
  for (size_t i = 0; i < kHard; ++i) some.push_back(all[i * all.size() / kHard]);
  return some;
}

// Exponents where something happens, with their neighbours, both signs.
void add_landmarks(std::vector<uint32_t>* x) {
  for (uint32_t e = 0; e <= 255; ++e)
    for (uint32_t d = 0; d < 3; ++d) {
      const uint32_t b = (e << 23) + d - 1;
      x->push_back(b & 0x7fffffffu);
      x->push_back(b | kSign);
    }
  for (float v : {88.722839f, 103.97208f, 87.336548f, 9.0109f, 3.9192059f, 17.328680f, 128.0f, 149.0f,
                  150.0f, 126.0f, 16.635532f, 2.6843546e8f, 0.70710678f, 1.4142135f})
    for (int d = -3; d <= 3; ++d) {
      x->push_back(to_bits(v) + static_cast<uint32_t>(d));
      x->push_back((to_bits(v) + static_cast<uint32_t>(d)) | kSign);
    }
  for (uint32_t nan : {0x7f800001u, 0x7fffffffu, 0xffc00000u, 0xff800001u}) x->push_back(nan);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: gen_vectors STATE_DIR OUT_DIR\n");
    return 3;
  }
  const std::string state = argv[1], out = argv[2];
  Exact exact;
  std::mt19937_64 random(20260101);
  for (const Function& f : kFunctions) {
    std::vector<uint32_t> x = hard_inputs(state + "/" + f.name + ".hard"), words;
    add_landmarks(&x);
    for (size_t i = 0; i < kRandom; ++i) {
      const uint32_t r = static_cast<uint32_t>(random());
      // every second one between 2^-15 and 2^8, where most functions bend
      x.push_back(i % 2 ? r : (r & 0x807fffffu) | (112u + static_cast<uint32_t>(random() % 24)) << 23);
    }
    std::sort(x.begin(), x.end());
    x.erase(std::unique(x.begin(), x.end()), x.end());
    for (uint32_t bits : x) {
      uint32_t want;
      if (!special_value(f, from_bits(bits), &want)) want = exact.value(f, from_bits(bits));
      words.push_back(bits);
      words.push_back(want);
    }
    write_words(out + "/" + f.name + ".bin", words);
  }
  std::vector<uint32_t> words;
  for (size_t i = 0; i < kPow; ++i) {
    const uint64_t r = random(), s = random();
    float x, y;
    pow_arguments(r, static_cast<uint32_t>(s), static_cast<uint32_t>(s >> 32), &x, &y);
    words.insert(words.end(), {to_bits(x), to_bits(y), exact.pow(x, y)});
  }
  write_words(out + "/pow.bin", words);
  return 0;
}
