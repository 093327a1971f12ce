// Decides, for every one of the 2^32 binary32 inputs, whether an elementary function's kernel gives
// RN(f(x)), and whether every other instruction set gives the same bits.
//
//   exhaustive --function exp --state DIR --json FILE [--isa avx512] [--threads 1] [--shards 4096]
//              [--random 4096] [--no-compare] [--commit HASH]
//
// Special values come from a table, the rest from a binary64 filter with a stated margin
// (reference.hpp), and from MPFR where the filter cannot tell and on `random` inputs of each shard
// besides. Finished shards are recorded in DIR/NAME.state, so that an interrupted run continues; the
// inputs that went to MPFR, the hard cases, are left in DIR/NAME.hard (little-endian 32-bit
// patterns). Exit code: 0 all right, 1 a wrong value or differing paths, 3 usage.
#include <sys/utsname.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gnu/libc-version.h>

#include "dispatch.hpp"
#include "fingerprint.hpp"
#include "reference.hpp"

namespace {

using tallystick::Isa;

using fingerprint::table_of;

struct Options {
  std::string function, state, json, commit = "unknown";
  Isa isa = tallystick::best_isa();
  unsigned threads = 1, shards = fingerprint::kShards, random = fingerprint::kRandom;
  bool compare = true;
};

struct Counts {
  uint64_t inputs = 0, special = 0, filtered = 0, undecided = 0, random = 0, wrong = 0, differ = 0;
  uint64_t digest = 0;  // input_digest.hpp
  void add(const Counts& o) {
    inputs += o.inputs, special += o.special, filtered += o.filtered, undecided += o.undecided;
    random += o.random, wrong += o.wrong, differ += o.differ, digest += o.digest;
  }
};

struct Fault { uint32_t x, got, want; std::string what; };

class Proof {
 public:
  Proof(const Options& o, const reference::Function& f) : o_(o), f_(f) {
    if (o.compare) others_ = fingerprint::others_of(o.isa, tallystick::isa_supported);
  }

  int run() {
    const auto start = std::chrono::steady_clock::now();
    load_state();
    std::vector<std::thread> pool;
    for (unsigned t = 0; t < o_.threads; ++t) pool.emplace_back([this] { work(); });
    for (auto& t : pool) t.join();
    if (log_) std::fclose(log_);
    if (hard_) std::fclose(hard_);
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    for (const auto& d : done_) total_.add(d.second);
    report();
    return total_.wrong || total_.differ ? 1 : 0;
  }

 private:
  // A digest of what the kernel computes, so that a state file of other code is not continued.
  uint64_t mark() const {
    return fingerprint::sampled(table_of(o_.isa).*f_.kernel, o_.isa, others_, o_.shards, o_.random);
  }

  void load_state() {
    if (o_.state.empty()) return;
    const std::string path = o_.state + "/" + f_.name + ".state";
    char header[64];
    std::snprintf(header, sizeof header, "exhaustive/2 %016llx\n",
                  static_cast<unsigned long long>(mark()));
    bool fresh = true;
    if (std::FILE* in = std::fopen(path.c_str(), "r")) {
      char line[256];
      fresh = !(std::fgets(line, sizeof line, in) && std::string(line) == header);
      unsigned shard;
      Counts c;
      double seconds;
      unsigned long long v[8];
      while (!fresh && std::fgets(line, sizeof line, in)) {
        if (std::sscanf(line, "%u %llu %llu %llu %llu %llu %llu %llu %llx %lf end", &shard, &v[0],
                        &v[1], &v[2], &v[3], &v[4], &v[5], &v[6], &v[7], &seconds) != 10 ||
            !std::strstr(line, "end"))
          continue;  // a line cut short by a crash: that shard is done again
        c.inputs = v[0], c.special = v[1], c.filtered = v[2], c.undecided = v[3];
        c.random = v[4], c.wrong = v[5], c.differ = v[6], c.digest = v[7];
        if (c.wrong || c.differ) continue;  // done again, to name the inputs
        if (done_.emplace(shard, c).second) seconds_ += seconds / o_.threads;
      }
      std::fclose(in);
    }
    log_ = std::fopen(path.c_str(), fresh ? "w" : "a");
    hard_ = std::fopen((o_.state + "/" + f_.name + ".hard").c_str(), fresh ? "wb" : "ab");
    if (!log_ || !hard_) {
      std::fprintf(stderr, "cannot write %s: create the directory first\n", path.c_str());
      std::exit(3);
    }
    if (fresh) std::fputs(header, log_);
    else std::fputs("\n", log_);  // never continue a torn line
  }

  void work() {
    reference::Exact exact;
    for (;;) {
      const unsigned shard = next_.fetch_add(1);
      if (shard >= o_.shards) break;
      if (done_before(shard)) continue;
      const auto start = std::chrono::steady_clock::now();
      std::vector<uint32_t> hard;
      const Counts c = check_shard(shard, exact, &hard);
      const double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      std::lock_guard<std::mutex> lock(mutex_);
      done_[shard] = c;
      if (hard_) {
        std::fwrite(hard.data(), 4, hard.size(), hard_);
        std::fflush(hard_);
      }
      if (log_) {
        std::fprintf(log_, "%u %llu %llu %llu %llu %llu %llu %llu %llx %.3f end\n", shard, ull(c.inputs),
                     ull(c.special), ull(c.filtered), ull(c.undecided), ull(c.random), ull(c.wrong),
                     ull(c.differ), ull(c.digest), s);
        std::fflush(log_);
      }
    }
  }

  static unsigned long long ull(uint64_t v) { return v; }

  bool done_before(unsigned shard) {
    std::lock_guard<std::mutex> lock(mutex_);
    return done_.count(shard) != 0;
  }

  Counts check_shard(unsigned shard, reference::Exact& exact, std::vector<uint32_t>* hard) {
    constexpr size_t kBlock = 4096;
    std::vector<float> x(kBlock), y(kBlock), other(kBlock);
    Counts c;
    const uint64_t begin = (1ull << 32) * shard / o_.shards, end = (1ull << 32) * (shard + 1) / o_.shards;
    for (uint64_t at = begin; at < end; at += kBlock) {
      const size_t n = static_cast<size_t>(end - at < kBlock ? end - at : kBlock);
      for (size_t i = 0; i < n; ++i) x[i] = reference::from_bits(static_cast<uint32_t>(at + i));
      (table_of(o_.isa).*f_.kernel)(x.data(), y.data(), n);
      c.digest += fingerprint::digest_of(at, y.data(), n);
      for (Isa isa : others_) {
        (table_of(isa).*f_.kernel)(x.data(), other.data(), n);
        if (std::memcmp(y.data(), other.data(), n * 4) == 0) continue;
        for (size_t i = 0; i < n; ++i)
          if (reference::to_bits(y[i]) != reference::to_bits(other[i]))
            ++c.differ, fault(x[i], other[i], reference::to_bits(y[i]), tallystick::isa_name(isa));
      }
      for (size_t i = 0; i < n; ++i) {
        uint32_t want;
        if (reference::special_value(f_, x[i], &want)) ++c.special;
        else if (reference::filter_value(f_, x[i], &want)) ++c.filtered;
        else {
          ++c.undecided;
          want = exact.value(f_, x[i]);
          hard->push_back(reference::to_bits(x[i]));
        }
        if (reference::to_bits(y[i]) != want) ++c.wrong, fault(x[i], y[i], want, "wrong");
      }
      c.inputs += n;
    }
    for (unsigned i = 0; i < o_.random; ++i) {
      const uint64_t r = fingerprint::mix64((static_cast<uint64_t>(shard) << 32) | i);
      const float v = reference::from_bits(static_cast<uint32_t>(begin + r % (end - begin)));
      uint32_t want;
      float got;
      if (!reference::special_value(f_, v, &want)) want = exact.value(f_, v);
      (table_of(o_.isa).*f_.kernel)(&v, &got, 1);
      ++c.random;
      if (reference::to_bits(got) != want) ++c.wrong, fault(v, got, want, "wrong by MPFR");
    }
    return c;
  }

  void fault(float x, float got, uint32_t want, const char* what) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (faults_.size() < 64)
      faults_.push_back({reference::to_bits(x), reference::to_bits(got), want, what});
  }

  void report() const {
    std::FILE* out = o_.json.empty() ? stdout : std::fopen(o_.json.c_str(), "w");
    if (!out) {
      std::fprintf(stderr, "cannot write %s\n", o_.json.c_str());
      std::exit(3);
    }
    char date[32];
    const std::time_t now = std::time(nullptr);
    std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
    utsname machine;
    uname(&machine);
    std::fprintf(out, "{\n  \"function\": \"%s\",\n  \"isa\": \"%s\",\n  \"compared_isas\": [", f_.name,
                 tallystick::isa_name(o_.isa));
    for (size_t i = 0; i < others_.size(); ++i)
      std::fprintf(out, "%s\"%s\"", i ? ", " : "", tallystick::isa_name(others_[i]));
    std::fprintf(out,
                 "],\n  \"inputs\": %llu,\n  \"special\": %llu,\n  \"filtered\": %llu,\n"
                 "  \"undecided_to_mpfr\": %llu,\n  \"random_to_mpfr\": %llu,\n  \"wrong\": %llu,\n"
                 "  \"isa_differences\": %llu,\n  \"margin\": \"2^-44\",\n  \"shards\": %u,\n"
                 "  \"fingerprint\": \"%016llx\",\n  \"digest\": \"%016llx\",\n  \"seconds\": %.0f,\n",
                 ull(total_.inputs), ull(total_.special), ull(total_.filtered),
                 ull(total_.undecided), ull(total_.random), ull(total_.wrong), ull(total_.differ),
                 o_.shards, ull(mark()), ull(total_.digest), seconds_);
    std::fprintf(out,
                 "  \"date\": \"%s\",\n  \"commit\": \"%s\",\n  \"compiler\": \"gcc %s\",\n"
                 "  \"machine\": \"%s\",\n  \"libc\": \"glibc %s\",\n  \"mpfr\": \"%s\",\n"
                 "  \"faults\": [",
                 date, o_.commit.c_str(), __VERSION__, machine.machine, gnu_get_libc_version(),
                 mpfr_get_version());
    for (size_t i = 0; i < faults_.size(); ++i)
      std::fprintf(out, "%s\n    {\"x\": \"%08x\", \"got\": \"%08x\", \"want\": \"%08x\", \"what\": \"%s\"}",
                   i ? "," : "", faults_[i].x, faults_[i].got, faults_[i].want,
                   faults_[i].what.c_str());
    std::fprintf(out, "]\n}\n");
    if (out != stdout) std::fclose(out);
  }

  const Options& o_;
  const reference::Function& f_;
  std::vector<Isa> others_;
  std::map<unsigned, Counts> done_;
  std::vector<Fault> faults_;
  std::mutex mutex_;
  std::atomic<unsigned> next_{0};
  std::FILE* log_ = nullptr;
  std::FILE* hard_ = nullptr;
  Counts total_;
  double seconds_ = 0;
};

int usage(const char* why) {
  std::fprintf(stderr,
               "%s\nusage: exhaustive --function NAME [--state DIR] [--json FILE] [--isa NAME] "
               "[--threads N] [--shards N] [--random N] [--no-compare] [--commit HASH]\n",
               why);
  return 3;
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    if (a == "--no-compare") {
      o.compare = false;
      continue;
    }
    if (i + 1 >= argc) return usage(("no value for " + a).c_str());
    const char* v = argv[++i];
    if (a == "--function") o.function = v;
    else if (a == "--state") o.state = v;
    else if (a == "--json") o.json = v;
    else if (a == "--commit") o.commit = v;
    else if (a == "--threads") o.threads = static_cast<unsigned>(std::atoi(v));
    else if (a == "--shards") o.shards = static_cast<unsigned>(std::atoi(v));
    else if (a == "--random") o.random = static_cast<unsigned>(std::atoi(v));
    else if (a == "--isa") {
      if (!tallystick::isa_from_name(v, &o.isa) || !tallystick::isa_supported(o.isa))
        return usage("this machine or build has no such instruction set");
    } else return usage(("unknown option " + a).c_str());
  }
  if (o.threads < 1 || o.threads > 256 || o.shards < 1 || o.shards > (1u << 20))
    return usage("threads must be 1..256 and shards 1..1048576");
  for (const reference::Function& f : reference::kFunctions)
    if (o.function == f.name) return Proof(o, f).run();
  return usage("name one of: exp log tanh erf sigmoid sin cos rsqrt expm1 log1p exp2 log2");
}
