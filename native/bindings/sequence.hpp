// Calls that are checked once and made many times. While a thread records, a binding that performs
// its work here adds it to the sequence instead, with the pointers that it has checked. The arrays
// stay where they are as long as the sequence is used: its owner holds them.
#pragma once
#include <functional>
#include <utility>
#include <vector>

#include "define.hpp"

namespace tallystick {

class Sequence {
 public:
  void add(std::function<void()> call) { calls_.push_back(std::move(call)); }
  size_t size() const { return calls_.size(); }
  // How many calls of the last run have ended.
  size_t done() const { return done_; }
  void run() {
    nb::gil_scoped_release unlocked;
    for (done_ = 0; done_ < calls_.size(); ++done_) calls_[done_]();
  }

 private:
  std::vector<std::function<void()>> calls_;
  size_t done_ = 0;
};

// The sequence that the calling thread records into, or null.
Sequence*& recorded_into();

template <class F>
void perform(F&& work) {
  if (Sequence* sequence = recorded_into()) return sequence->add(std::forward<F>(work));
  nb::gil_scoped_release unlocked;
  work();
}

}  // namespace tallystick
