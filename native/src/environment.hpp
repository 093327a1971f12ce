// The floating-point environment of NUMERICS 1.7: set on entry, and the caller's restored.
#pragma once
#include <cstdint>

namespace tallystick {

// True when subnormals are kept and rounding is to nearest in the calling thread. The test
// computes, so it also detects an emulator or a platform that ignores its settings.
bool fp_environment_ok();

// Sets the calling thread's environment and returns the whole previous word: rounding mode,
// treatment of subnormals, the exceptions that trap, and the exceptions seen so far.
uint64_t fp_environment_enter();
// Puts a word of fp_environment_enter back, in the same thread.
void fp_environment_leave(uint64_t word);

// Both, for a scope. Constructor and destructor are in another translation unit than the arithmetic
// that they enclose: compilers do not know this state, and move arithmetic past it freely.
class FpEnvironment {
 public:
  FpEnvironment() : word_(fp_environment_enter()) {}
  ~FpEnvironment() { fp_environment_leave(word_); }
  FpEnvironment(const FpEnvironment&) = delete;
  FpEnvironment& operator=(const FpEnvironment&) = delete;

 private:
  uint64_t word_;
};

}  // namespace tallystick
