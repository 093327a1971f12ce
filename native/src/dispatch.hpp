// The instruction set in use. The calling thread's context names it (context.hpp). The choice never
// changes a bit (NUMERICS 1.8), only the speed.
#pragma once

namespace tallystick {

enum class Isa { scalar = 0, avx2 = 1, avx512 = 2, neon = 3 };

const char* isa_name(Isa isa);
bool isa_from_name(const char* name, Isa* out);
// Compiled in, and the machine and operating system can run it.
bool isa_supported(Isa isa);
Isa best_isa();
// What TALLYSTICK_ISA asks for, else the best; scalar where it asks for what is not there.
Isa initial_isa();
// Of the calling thread's context.
Isa active_isa();

// What an x86-64 processor has and its operating system keeps; nothing elsewhere.
struct X86Features {
  bool fma = false, avx2 = false;
  bool avx512f = false, avx512dq = false, avx512bw = false, avx512vl = false;
};
const X86Features& x86_features();

}  // namespace tallystick

// Picks a family's table for the active instruction set: TS_DISPATCH(gemm).mm(...)
#if defined(TALLYSTICK_HAVE_AVX2)
#define TS_DISPATCH(family)                                                          \
  (::tallystick::active_isa() == ::tallystick::Isa::avx512 ? ::tallystick::family##_table_avx512 \
   : ::tallystick::active_isa() == ::tallystick::Isa::avx2 ? ::tallystick::family##_table_avx2   \
                                                           : ::tallystick::family##_table_scalar)
#define TS_DECLARE_TABLES(Type, family)  \
  extern const Type family##_table_scalar; \
  extern const Type family##_table_avx2;   \
  extern const Type family##_table_avx512;
#elif defined(TALLYSTICK_HAVE_NEON)
#define TS_DISPATCH(family)                                                      \
  (::tallystick::active_isa() == ::tallystick::Isa::neon ? ::tallystick::family##_table_neon \
                                                         : ::tallystick::family##_table_scalar)
#define TS_DECLARE_TABLES(Type, family)  \
  extern const Type family##_table_scalar; \
  extern const Type family##_table_neon;
#else
#define TS_DISPATCH(family) (::tallystick::family##_table_scalar)
#define TS_DECLARE_TABLES(Type, family) extern const Type family##_table_scalar;
#endif
