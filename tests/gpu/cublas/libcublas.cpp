// A cuBLAS for tests: the calls that products/cuda/cublas.py makes, on memory of the host.
// TALLYSTICK_TEST_CUBLAS says what it does wrong: "float" computes in binary32, "digits" keeps 40 bits
// of an operand, as an emulation of binary64 with few digits does, "flush" loses subnormals, "fails"
// fails.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#define API extern "C" __attribute__((visibility("default")))

namespace {
int object;
bool has_stream = false, has_workspace = false, pedantic = false;
long long calls = 0;

std::string mode() {
  const char* text = std::getenv("TALLYSTICK_TEST_CUBLAS");
  return text ? text : "";
}
enum How { kPlain, kFloat, kFlush, kDigits };
double seen(double x, How how) {
  if (how == kFloat) return static_cast<float>(x);
  if (how == kFlush && std::fabs(x) < 0x1p-1022) return 0;
  if (how == kDigits) {
    uint64_t u;
    std::memcpy(&u, &x, 8);
    u &= ~uint64_t(0x1fff);
    std::memcpy(&x, &u, 8);
  }
  return x;
}
}  // namespace

API int cublasCreate_v2(void** handle) {
  *handle = &object;
  has_stream = has_workspace = pedantic = false;
  return 0;
}
API int cublasDestroy_v2(void*) { return 0; }
API int cublasSetStream_v2(void* handle, void* stream) {
  has_stream = stream != nullptr;
  has_workspace = false;
  return handle == &object ? 0 : 1;
}
API int cublasSetWorkspace_v2(void*, void* memory, size_t bytes) {
  has_workspace = memory && reinterpret_cast<uint64_t>(memory) % 256 == 0 && bytes >= (4u << 20);
  return has_workspace ? 0 : 7;
}
API int cublasSetMathMode(void*, int to) {
  pedantic = to == 2;
  return 0;
}
API int cublasGetVersion_v2(void*, int* version) {
  *version = 130000;
  return 0;
}
API long long tallystick_test_calls() { return calls; }
API int cublasDgemmStridedBatched(void* handle, int of_a, int of_b, int m, int n, int k,
                                  const double* alpha, const double* a, int lda, long long step_a,
                                  const double* b, int ldb, long long step_b, const double* beta,
                                  double* c, int ldc, long long step_c, int batches) {
  const std::string said = mode();
  if (said == "fails") return 13;
  const How how = said == "float" ? kFloat : said == "flush" ? kFlush : said == "digits" ? kDigits : kPlain;
  if (handle != &object || !has_stream || !has_workspace || !pedantic) return 1;
  if (m < 1 || n < 1 || k < 1 || lda < (of_a ? k : m) || ldb < (of_b ? n : k) || ldc < m) return 7;
  ++calls;
  for (int z = 0; z < batches; ++z)
    for (int j = 0; j < n; ++j)
      for (int i = 0; i < m; ++i) {
        double sum = 0;
        for (int t = k - 1; t >= 0; --t) {  // an order of its own
          const double x = a[z * step_a + (of_a ? t + static_cast<long long>(i) * lda
                                                : i + static_cast<long long>(t) * lda)];
          const double y = b[z * step_b + (of_b ? j + static_cast<long long>(t) * ldb
                                                : t + static_cast<long long>(j) * ldb)];
          sum += seen(seen(x, how) * seen(y, how), how);
          if (how == kFloat) sum = static_cast<float>(sum);
        }
        double& to = c[z * step_c + i + static_cast<long long>(j) * ldc];
        to = *beta == 0 ? *alpha * sum : *alpha * sum + *beta * to;
      }
  return 0;
}
