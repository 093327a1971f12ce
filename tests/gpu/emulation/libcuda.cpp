// A CUDA driver library over the emulation: the few calls that devices/cuda/nvidia.py makes. With it
// in LD_LIBRARY_PATH as libcuda.so.1, NVIDIA's own bindings find one GPU, and the whole program runs
// on it without one. TALLYSTICK_EMULATED_GPU_BYTES bounds its memory,
// TALLYSTICK_EMULATED_GPU_CAPABILITY is its compute capability (90). After
// TALLYSTICK_EMULATED_GPU_LAUNCHES launches a kernel reads where it must not: as on a GPU, the next
// call that waits says so, and after it every call says it again.
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

extern "C" int ts_emulation_launch(const char*, const uint32_t*, uint32_t, uint32_t, const void*,
                                   size_t, uint64_t);
extern "C" size_t ts_emulation_count();
extern "C" const char* ts_emulation_name(size_t);
extern "C" size_t ts_emulation_param_bytes(size_t);

namespace {

constexpr int kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2, kInvalidDevice = 101,
              kIllegalAddress = 700, kIllegalState = 401, kNotFound = 500, kLaunchFailed = 719;

using Work = std::function<int()>;
struct Graph { std::vector<Work> work; };
struct Function { std::string name; size_t param_bytes; };

std::map<uint64_t, size_t> memory;
size_t used = 0;
uint64_t seed = 1;
Graph* capturing = nullptr;
int stream_object, context_object, module_object;
bool current = false;
int dead = kSuccess;  // what ended the context
uint64_t launches = 0;
std::map<std::string, Function> functions;

uint64_t number(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}
size_t total() { return number("TALLYSTICK_EMULATED_GPU_BYTES", 1ull << 33); }

int work(void* stream, Work given) {
  if (dead) return dead;
  if (!current || stream != &stream_object) return kInvalidValue;
  if (!capturing) return given();
  capturing->work.push_back(std::move(given));
  return kSuccess;
}
// Whether [address, address + n) lies in one allocation.
bool inside(uint64_t address, size_t n) {
  auto at = memory.upper_bound(address);
  if (at == memory.begin()) return false;
  --at;
  return address + n <= at->first + at->second;
}

}  // namespace

#define API extern "C" __attribute__((visibility("default")))

API int cuInit(unsigned) { return kSuccess; }
API int cuDriverGetVersion(int* version) { *version = 13000; return kSuccess; }
API int cuDeviceGetCount(int* count) { *count = 1; return kSuccess; }
API int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return ordinal == 0 ? kSuccess : kInvalidDevice;
}
API int cuDeviceGetName(char* name, int n, int) {
  std::strncpy(name, "Emulated GPU", static_cast<size_t>(n));
  return kSuccess;
}
API int cuDeviceGetAttribute(int* value, int attribute, int) {
  const int capability = static_cast<int>(number("TALLYSTICK_EMULATED_GPU_CAPABILITY", 90));
  switch (attribute) {
    case 75: *value = capability / 10; return kSuccess;  // COMPUTE_CAPABILITY_MAJOR
    case 76: *value = capability % 10; return kSuccess;  // COMPUTE_CAPABILITY_MINOR
    case 16: *value = 4; return kSuccess;                // MULTIPROCESSOR_COUNT
  }
  return kInvalidValue;
}
API int cuDeviceTotalMem_v2(size_t* bytes, int) { *bytes = total(); return kSuccess; }
API int cuDevicePrimaryCtxRetain(void** context, int) { *context = &context_object; return kSuccess; }
API int cuCtxSetCurrent(void* context) {
  current = context == &context_object;
  return current ? kSuccess : kInvalidValue;
}
API int cuStreamCreate(void** stream, unsigned flags) {
  *stream = &stream_object;
  return flags == 1 ? kSuccess : kInvalidValue;  // CU_STREAM_NON_BLOCKING
}
API int cuStreamSynchronize(void* stream) {
  return dead ? dead : !capturing && stream == &stream_object ? kSuccess : kIllegalState;
}
API int cuMemAlloc_v2(uint64_t* address, size_t bytes) {
  if (dead) return dead;
  if (!current || !bytes) return kInvalidValue;
  if (used + bytes > total()) return kOutOfMemory;
  void* at = nullptr;
  if (posix_memalign(&at, 256, bytes)) return kOutOfMemory;
  std::memset(at, 0xa7, bytes);
  *address = reinterpret_cast<uint64_t>(at);
  memory[*address] = bytes;
  used += bytes;
  return kSuccess;
}
API int cuMemFree_v2(uint64_t address) {
  const auto at = memory.find(address);
  if (at == memory.end()) return kInvalidValue;
  used -= at->second;
  memory.erase(at);
  std::free(reinterpret_cast<void*>(address));
  return kSuccess;
}
API int cuMemGetInfo_v2(size_t* free_bytes, size_t* all) {
  *all = total();
  *free_bytes = *all - used;
  return kSuccess;
}
API int cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t n, void* stream) {
  if (capturing || !inside(to, n)) return kInvalidValue;
  return work(stream, [=] { std::memcpy(reinterpret_cast<void*>(to), from, n); return kSuccess; });
}
API int cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t n, void* stream) {
  if (capturing || !inside(from, n)) return kInvalidValue;
  return work(stream, [=] { std::memcpy(to, reinterpret_cast<void*>(from), n); return kSuccess; });
}
API int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t n, void* stream) {
  if (!inside(to, n) || !inside(from, n)) return kInvalidValue;
  return work(stream, [=] {
    std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), n);
    return kSuccess;
  });
}
API int cuMemsetD8Async(uint64_t at, unsigned char byte, size_t n, void* stream) {
  if (!inside(at, n)) return kInvalidValue;
  return work(stream, [=] { std::memset(reinterpret_cast<void*>(at), byte, n); return kSuccess; });
}
API int cuModuleLoadData(void** module, const void* image) {
  *module = &module_object;
  return image ? kSuccess : kInvalidValue;
}
API int cuModuleGetFunction(void** function, void* module, const char* name) {
  if (module != &module_object) return kInvalidValue;
  for (size_t i = 0; i < ts_emulation_count(); ++i)
    if (!std::strcmp(ts_emulation_name(i), name)) {
      functions[name] = {name, ts_emulation_param_bytes(i)};
      *function = &functions[name];
      return kSuccess;
    }
  return kNotFound;
}
API int cuFuncSetAttribute(void*, int attribute, int value) {
  // MAX_DYNAMIC_SHARED_SIZE_BYTES, on the smallest of our architectures
  return attribute == 8 && value <= 99 * 1024 ? kSuccess : kInvalidValue;
}
API int cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                       unsigned by, unsigned bz, unsigned shared, void* stream, void** params,
                       void** extra) {
  if (by != 1 || bz != 1 || !params || extra) return kInvalidValue;
  const Function& kernel = *static_cast<Function*>(function);
  const char* bytes = static_cast<const char*>(params[0]);
  const std::vector<char> held(bytes, bytes + kernel.param_bytes);
  return work(stream, [=] {
    const uint32_t grid[3] = {gx, gy, gz};
    if (dead) return kSuccess;  // the call that waits will say so
    if (launches++ == number("TALLYSTICK_EMULATED_GPU_LAUNCHES", ~0ull)) {
      dead = kIllegalAddress;
    } else if (ts_emulation_launch(kernel.name.c_str(), grid, bx, shared, held.data(), held.size(),
                                   ++seed)) {
      dead = kLaunchFailed;
    }
    return kSuccess;
  });
}
API int cuStreamBeginCapture_v2(void* stream, int) {
  if (capturing || stream != &stream_object) return kIllegalState;
  capturing = new Graph;
  return kSuccess;
}
API int cuStreamEndCapture(void*, void** graph) {
  if (!capturing) return kIllegalState;
  *graph = capturing;
  capturing = nullptr;
  return kSuccess;
}
API int cuGraphInstantiateWithFlags(void** executable, void* graph, unsigned long long) {
  *executable = new Graph(*static_cast<Graph*>(graph));
  return kSuccess;
}
API int cuGraphDestroy(void* graph) { delete static_cast<Graph*>(graph); return kSuccess; }
API int cuGraphExecDestroy(void* graph) { delete static_cast<Graph*>(graph); return kSuccess; }
API int cuGraphLaunch(void* graph, void* stream) {
  if (dead || capturing || stream != &stream_object) return dead ? dead : kIllegalState;
  for (const Work& step : static_cast<Graph*>(graph)->work)
    if (const int result = step()) return result;
  return kSuccess;
}

// Events on the host's clock: work has ended when its call returns.
API int cuEventCreate(void** event, unsigned) { *event = new double(-1); return kSuccess; }
API int cuEventRecord(void* event, void* stream) {
  if (dead || capturing || stream != &stream_object) return dead ? dead : kIllegalState;
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  *static_cast<double*>(event) = std::chrono::duration<double, std::milli>(now).count();
  return kSuccess;
}
API int cuEventSynchronize(void* event) {
  return dead ? dead : *static_cast<double*>(event) < 0 ? kInvalidValue : kSuccess;
}
API int cuEventElapsedTime_v2(float* taken, void* first, void* last) {
  *taken = static_cast<float>(*static_cast<double*>(last) - *static_cast<double*>(first));
  return kSuccess;
}
API int cuEventElapsedTime(float* taken, void* first, void* last) {
  return cuEventElapsedTime_v2(taken, first, last);
}

API int cuGetProcAddress_v2(const char* symbol, void** found, int, uint64_t, int* status) {
  static const std::map<std::string, void*> all = {
#define TS_CALL(name) {#name, reinterpret_cast<void*>(&name)}
#define TS_CALL2(name) {#name, reinterpret_cast<void*>(&name##_v2)}
      TS_CALL(cuInit), TS_CALL(cuDriverGetVersion), TS_CALL(cuDeviceGetCount), TS_CALL(cuDeviceGet),
      TS_CALL(cuDeviceGetName), TS_CALL(cuDeviceGetAttribute), TS_CALL2(cuDeviceTotalMem),
      TS_CALL(cuDevicePrimaryCtxRetain), TS_CALL(cuCtxSetCurrent), TS_CALL(cuStreamCreate),
      TS_CALL(cuStreamSynchronize), TS_CALL2(cuMemAlloc), TS_CALL2(cuMemFree),
      TS_CALL2(cuMemGetInfo), TS_CALL2(cuMemcpyHtoDAsync), TS_CALL2(cuMemcpyDtoHAsync),
      TS_CALL2(cuMemcpyDtoDAsync), TS_CALL(cuMemsetD8Async), TS_CALL(cuModuleLoadData),
      TS_CALL(cuModuleGetFunction), TS_CALL(cuFuncSetAttribute), TS_CALL(cuLaunchKernel),
      TS_CALL2(cuStreamBeginCapture), TS_CALL(cuStreamEndCapture),
      TS_CALL(cuGraphInstantiateWithFlags), TS_CALL(cuGraphDestroy), TS_CALL(cuGraphExecDestroy),
      TS_CALL(cuGraphLaunch), TS_CALL(cuEventCreate), TS_CALL(cuEventRecord),
      TS_CALL(cuEventSynchronize), TS_CALL2(cuEventElapsedTime), TS_CALL2(cuGetProcAddress)};
  const auto at = all.find(symbol);
  *found = at == all.end() ? nullptr : at->second;
  if (status) *status = at == all.end() ? 1 : 0;
  return at == all.end() ? kNotFound : kSuccess;
}
API int cuGetProcAddress(const char* symbol, void** found, int version, uint64_t flags) {
  return cuGetProcAddress_v2(symbol, found, version, flags, nullptr);
}
