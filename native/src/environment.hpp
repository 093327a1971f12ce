// The floating-point environment that NUMERICS 1.7 demands, set on entry and the caller's put back.
#pragma once
#include <cstdint>

namespace tallystick {

// True when subnormals are kept and rounding is to nearest in the calling thread. Found out by
// arithmetic, so it also tells of an emulator or a platform that ignores what it is told.
bool fp_environment_ok();

// Sets the calling thread's environment and gives the whole word that was there: rounding mode,
// what happens to subnormals, which exceptions trap, and the exceptions seen so far.
uint64_t fp_environment_enter();
// Puts a word of fp_environment_enter back, in the same thread.
void fp_environment_leave(uint64_t word);

// Both, for a scope. Its constructor and destructor are in another translation unit than the
// arithmetic they enclose: compilers know nothing of this state, and move arithmetic past it freely.
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
