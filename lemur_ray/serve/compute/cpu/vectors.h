// What the kernels share: vectors of 16 numbers, and work that XLA's threads take from each other.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

constexpr int kLanes = 16;

typedef int32_t Words __attribute__((vector_size(4 * kLanes)));
typedef float Floats __attribute__((vector_size(4 * kLanes)));

template <typename V>
V load(const void* from) {
  V vector;
  std::memcpy(&vector, from, sizeof vector);
  return vector;
}

// Calls task(0 .. count - 1) on this thread and on others of XLA's as they come; returns when all calls have.
template <typename Task>
void in_parallel(ffi::ThreadPool& pool, int64_t threads, int64_t count, Task task) {
  struct State {
    std::atomic<int64_t> next{0};
    int64_t finished = 0;
    std::mutex mutex;
    std::condition_variable all;
  };
  threads = std::min({threads, count, pool.num_threads()});
  if (threads < 2) {
    for (int64_t i = 0; i < count; i++) task(i);
    return;
  }
  auto state = std::make_shared<State>();
  auto work = [state, count, task] {  // A thread that comes too late takes nothing, and so touches nothing of task's.
    int64_t taken = 0;
    for (int64_t i; (i = state->next++) < count; taken++) task(i);
    std::lock_guard<std::mutex> lock(state->mutex);
    if ((state->finished += taken) == count) state->all.notify_all();
  };
  for (int64_t i = 1; i < threads; i++) pool.Schedule([work] { work(); });
  work();
  std::unique_lock<std::mutex> lock(state->mutex);
  state->all.wait(lock, [&] { return state->finished == count; });
}

