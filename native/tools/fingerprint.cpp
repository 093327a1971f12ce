// The fingerprint and the digest of elementary functions as this build computes them, without MPFR:
// they say whether a change of the sources has changed a bit.
//
//   fingerprint [--isa NAME] [--of NAME] [--count N] [FUNCTION...]
//
// A line of JSON for each function. The digest covers the arguments with the bits 0 to N-1, by
// default all 2^32. The fingerprint is the one that `exhaustive --isa OF` writes on a machine that
// has every instruction set of this build.
// Exit code: 0, 3 usage.
#include "fingerprint.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

using tallystick::Isa;
using tallystick::kUnary;
using tallystick::NamedUnary;
using tallystick::UnaryFn;

void show(const NamedUnary& f, Isa isa, Isa of, uint64_t count) {
  constexpr size_t kBlock = 4096;
  const auto start = std::chrono::steady_clock::now();
  const UnaryFn kernel = fingerprint::table_of(isa).*f.fn;
  std::vector<float> x(kBlock), y(kBlock);
  uint64_t digest = 0;
  for (uint64_t at = 0; at < count; at += kBlock) {
    const size_t n = static_cast<size_t>(count - at < kBlock ? count - at : kBlock);
    for (size_t i = 0; i < n; ++i) {
      const uint32_t bits = static_cast<uint32_t>(at + i);
      std::memcpy(&x[i], &bits, 4);
    }
    kernel(x.data(), y.data(), n);
    digest += fingerprint::digest_of(at, y.data(), n);
  }
  const double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf("{\"function\": \"%s\", \"isa\": \"%s\", \"fingerprint\": \"%016llx\", "
              "\"inputs\": %llu, \"digest\": \"%016llx\", \"seconds\": %.0f}\n",
              f.name, tallystick::isa_name(isa),
              static_cast<unsigned long long>(
                  fingerprint::sampled(kernel, of, fingerprint::others_of(of, fingerprint::compiled))),
              static_cast<unsigned long long>(count), static_cast<unsigned long long>(digest), s);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  Isa isa = tallystick::best_isa(), of = isa;
  uint64_t count = 1ull << 32;
  std::vector<const NamedUnary*> chosen;
  const auto usage = [] {
    std::fprintf(stderr, "usage: fingerprint [--isa NAME] [--of NAME] [--count N] [FUNCTION...]\n");
    return 3;
  };
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    if (a == "--isa" && i + 1 < argc) {
      if (!tallystick::isa_from_name(argv[++i], &isa) || !tallystick::isa_supported(isa))
        return usage();
    } else if (a == "--of" && i + 1 < argc) {
      if (!tallystick::isa_from_name(argv[++i], &of)) return usage();
    } else if (a == "--count" && i + 1 < argc) {
      count = std::strtoull(argv[++i], nullptr, 10);
      if (count > (1ull << 32)) return usage();
    } else {
      const size_t before = chosen.size();
      for (const NamedUnary& f : kUnary)
        if (a == f.name) chosen.push_back(&f);
      if (chosen.size() == before) return usage();
    }
  }
  if (chosen.empty())
    for (const NamedUnary& f : kUnary) chosen.push_back(&f);
  for (const NamedUnary* f : chosen) show(*f, isa, of, count);
  return 0;
}
