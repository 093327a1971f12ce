// Python's door to sha256.hpp. Buffers come through the buffer protocol, C-contiguous and
// read-only, so bytes, memoryview, mmap and any numpy array are all accepted without a copy.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "define.hpp"
#include "sha256.hpp"

namespace tallystick {
namespace {

class Buffer {
 public:
  explicit Buffer(nb::handle object) {
    if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_C_CONTIGUOUS) != 0)
      throw nb::python_error();
  }
  ~Buffer() { PyBuffer_Release(&view_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  const uint8_t* data() const { return static_cast<const uint8_t*>(view_.buf); }
  size_t size() const { return static_cast<size_t>(view_.len); }

 private:
  Py_buffer view_;
};

nb::bytes hash_bytes(const uint8_t* digest) {
  return nb::bytes(reinterpret_cast<const char*>(digest), kHashBytes);
}

void check_leaf(size_t leaf) {
  if (leaf == 0) throw nb::value_error("the leaf size must be at least 1 byte");
}

nb::bytes py_sha256(nb::handle data) {
  const Buffer in(data);
  uint8_t out[kHashBytes];
  {
    nb::gil_scoped_release unlocked;
    sha256(in.data(), in.size(), out);
  }
  return hash_bytes(out);
}

nb::bytes py_leaves_root(nb::handle data, size_t leaf) {
  check_leaf(leaf);
  const Buffer in(data);
  uint8_t out[kHashBytes];
  bool done = false;
  {
    nb::gil_scoped_release unlocked;
    done = tensor_leaves_root(in.data(), in.size(), leaf, out);
  }
  if (!done) throw std::bad_alloc();
  return hash_bytes(out);
}

nb::bytes py_leaf_hashes(nb::handle data, size_t leaf) {
  check_leaf(leaf);
  const Buffer in(data);
  const size_t nbytes = leaf_count(in.size(), leaf) * kHashBytes;
  nb::object out = nb::steal(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(nbytes)));
  if (!out.is_valid()) throw nb::python_error();
  char* where = PyBytes_AsString(out.ptr());
  {
    nb::gil_scoped_release unlocked;
    tensor_leaf_hashes(in.data(), in.size(), leaf, reinterpret_cast<uint8_t*>(where));
  }
  return nb::borrow<nb::bytes>(out);
}

nb::bytes py_root_of_hashes(nb::handle hashes) {
  const Buffer in(hashes);
  if (in.size() % kHashBytes != 0)
    throw nb::value_error("the leaf hashes must be a whole number of 32-byte hashes");
  std::vector<uint8_t> scratch(in.data(), in.data() + in.size());
  uint8_t out[kHashBytes];
  {
    nb::gil_scoped_release unlocked;
    merkle_root_in_place(scratch.data(), scratch.size() / kHashBytes, out);
  }
  return hash_bytes(out);
}

std::vector<std::string> py_implementations() {
  std::vector<std::string> names;
  for (ShaImpl impl : {ShaImpl::portable, ShaImpl::sha_ni, ShaImpl::armv8, ShaImpl::avx512})
    if (sha_supported(impl)) names.emplace_back(sha_name(impl));
  return names;
}

void py_set_implementation(const std::string& name) {
  for (ShaImpl impl : {ShaImpl::portable, ShaImpl::sha_ni, ShaImpl::armv8, ShaImpl::avx512})
    if (name == sha_name(impl) && set_sha_impl(impl)) return;
  throw std::invalid_argument("SHA-256 implementation '" + name + "' cannot run here");
}

}  // namespace
}  // namespace tallystick

void bind_commit(nb::module_& m) {
  using namespace tallystick;
  define(m, "sha256", &py_sha256, "data"_a, "SHA-256 of a C-contiguous buffer: 32 bytes.");
  define(m, "tensor_leaves_root", &py_leaves_root, "data"_a, "leaf"_a,
         "RFC 9162 root over `leaf`-byte leaves of a C-contiguous buffer (COMMITMENTS 3).");
  define(m, "tensor_leaf_hashes", &py_leaf_hashes, "data"_a, "leaf"_a,
         "All leaf hashes in order, 32 bytes each, of a C-contiguous buffer (COMMITMENTS 3).");
  define(m, "merkle_root_of_hashes", &py_root_of_hashes, "hashes"_a,
         "RFC 9162 root over leaf hashes already computed (COMMITMENTS 2).");
  define(m, "sha256_implementations", &py_implementations,
         "Names of the SHA-256 implementations that can run on this machine.");
  define(m, "sha256_implementation", +[] { return std::string(sha_name(active_sha())); },
         "Name of the SHA-256 implementation in use.");
  define(m, "set_sha256_implementation", &py_set_implementation, "name"_a,
         "Use this implementation from now on; every one gives the same bits.");
}
