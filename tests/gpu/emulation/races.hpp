// Races of device kernels: two accesses of different threads to the same byte, at least one of them a
// write, which nothing orders. What orders two accesses of a launch: being of one thread; a barrier of
// the block between them; a barrier of the warp between them, for threads of one warp. Blocks are not
// ordered. Two atomic operations are no race. A shuffle or a ballot orders nothing (CUDA C++
// Programming Guide, "Warp Shuffle Functions"), and a copy under way may not be touched.
//
// The compiler calls these functions for each access of a kernel where it is told to look for races
// (-fsanitize=thread, of which the library is not used: races.cpp stands for it).
#pragma once
#include <cstddef>
#include <cstdint>

namespace emulation::races {

enum class Access { read, write, atomic, copy_begins, copy_ends };

// The thread that runs: where it is among barriers. `stack`: its own memory, which it shares with none.
struct Moment {
  uint32_t block, thread, of_block, of_warp;  // barriers of the block, of the warp that it has passed
  const char *stack, *stack_end;
};

// Every access before is ordered before every access from now on.
void new_launch();
// Memory that is another one from now on: a block's shared memory.
void forget(const void* at, size_t bytes);
void access(const void* at, size_t bytes, Access kind);

// Of the engine (emulation.cpp). Null where no kernel runs.
const Moment* now();
void found(const char* what, const Moment& here, uint32_t other_block, uint32_t other_thread);

}  // namespace emulation::races
