// Page-aligned scratch that a thread keeps between calls: fresh pages would cost more than packing.
#pragma once
#include <cstdlib>

#include "tallystick/ts_base.hpp"

namespace tallystick::TS_ISA {

class Scratch {
 public:
  ~Scratch() { std::free(data_); }
  float* get(size_t floats) {
    if (floats > size_) {
      std::free(data_);
      size_ = 0;
      const size_t bytes = (floats * sizeof(float) + 4095) / 4096 * 4096;
      data_ = static_cast<float*>(std::aligned_alloc(4096, bytes));
      if (data_ != nullptr) size_ = bytes / sizeof(float);
    }
    return data_;
  }

 private:
  float* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace tallystick::TS_ISA
