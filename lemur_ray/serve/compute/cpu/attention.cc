// Attention over a pool of cached blocks, on CPUs: what `attention.attend` does, called by compiled XLA programs.
//
// Every query walks over the blocks of its sequence with a running softmax, up to its own position and no further. Its
// result is made of the same operations whichever queries are taken together with it: its bits depend on nothing else.

#include <cmath>

#include "vectors.h"

namespace {

constexpr int kBlock = 128;          // Tokens of a block of the cache.
constexpr int kTogether = 4;         // Queries that share what is read.
constexpr int kChunk = 4;            // Vectors that are added to at once, for each of them.
constexpr float kMasked = -1e30f;
constexpr int64_t kGrain = 1 << 18;  // Products under which a second thread costs more than it brings.

typedef uint16_t Halves __attribute__((vector_size(2 * kLanes)));

Floats load_floats(const float* from) { return load<Floats>(from); }
Floats load_floats(const uint16_t* bfloat16) {
  return (Floats)(__builtin_convertvector(load<Halves>(bfloat16), Words) << 16);
}

Floats larger(Floats a, Floats b) { return a > b ? a : b; }

float largest(Floats of) {
  float most = of[0];
  for (int i = 1; i < kLanes; i++) most = std::max(most, of[i]);
  return most;
}

// e^x for x <= 0 within 2 units in the last place; exactly 1 for 0 and 0 below -87; what is no number stays none.
Floats exponential(Floats x) {
  constexpr float kLowest = -87.0f, kRound = 12582912.0f;  // 1.5 * 2^23: adding it leaves an integer in the low bits
  Floats within = larger(x, Floats{} + kLowest);
  Floats shifted = within * 1.44269504f + kRound;
  Floats power = shifted - kRound;
  Floats rest = within - power * 0.693359375f + power * 2.12194440e-4f;  // ln 2 in two parts
  Floats sum = Floats{} + 1.9875691e-4f;
  for (float next : {1.3981999e-3f, 8.3334519e-3f, 4.1665796e-2f, 1.6666666e-1f, 5.0000001e-1f})
    sum = sum * rest + next;
  sum = sum * rest * rest + rest + 1.0f;
  Floats scaled = (Floats)((Words)sum + ((Words)shifted << 23));
  scaled = x == x ? scaled : x;
  return x < kLowest ? Floats{} : scaled;
}

// Memory that is read next: a head reads too little of it for the hardware to guess.
struct Ahead {
  const char* at;
  int64_t step;  // Bytes of one turn of a loop.
  void fetch() {
    constexpr int kLine = 64;
    for (int64_t i = 0; i < step; i += kLine) __builtin_prefetch(at + i, 0, 2);
    at += step;
  }
};

// What a query has seen so far.
struct Running {
  float highest = kMasked;
  Floats total{};  // Sums of every 16th weight.
};

// Q queries q [Q, width] against `keys` keys of one block, k [width, kBlock]: scores [Q, kBlock].
template <int Q, typename T>
void score(const float* q, const T* k, int width, int keys, float (*scores)[kBlock], Ahead ahead) {
  for (int key = 0; key < keys; key += kChunk * kLanes) {
    Floats sum[Q][kChunk] = {};
    for (int d = 0; d < width; d++) {
      if (key == 0) ahead.fetch();
      Floats column[kChunk];
      for (int c = 0; c < kChunk; c++) column[c] = load_floats(k + d * kBlock + key + c * kLanes);
      for (int i = 0; i < Q; i++)
        for (int c = 0; c < kChunk; c++) sum[i][c] += q[i * width + d] * column[c];
    }
    for (int i = 0; i < Q; i++) std::memcpy(&scores[i][key], sum[i], sizeof sum[i]);
  }
}

// cap * tanh(x / cap).
Floats capped(Floats x, float cap) {
  Floats ratio = x * (1 / cap);
  Floats power = exponential(-2.0f * larger(ratio, -ratio));
  Floats bounded = cap * (1.0f - power) / (1.0f + power);
  return ratio < 0.0f ? -bounded : bounded;
}

// What limits the keys and scores of a layer; 0: nothing.
struct Limits {
  int window;  // Most recent keys that a query sees, its own included.
  float cap;
};

// Scores become weights; returns by what all that was mixed before shrinks. The query sees keys from `from` to `seen`.
float weigh(float* scores, int keys, int from, int seen, float cap, Running& running) {
  Words lane;
  for (int i = 0; i < kLanes; i++) lane[i] = i;
  Floats most = Floats{} + running.highest;
  for (int key = 0; key < keys; key += kLanes) {
    Floats raw = load_floats(scores + key);
    if (cap) raw = capped(raw, cap);
    Floats masked = (lane + key < seen) & (lane + key >= from) ? raw : Floats{} + kMasked;
    std::memcpy(scores + key, &masked, sizeof masked);
    most = larger(most, masked);
  }
  float highest = largest(most);
  float keep = exponential(Floats{} + (running.highest - highest))[0];
  running.highest = highest;
  running.total *= keep;
  for (int key = 0; key < keys; key += kLanes) {
    Floats weight = exponential(load_floats(scores + key) - highest);
    running.total += weight;
    std::memcpy(scores + key, &weight, sizeof weight);
  }
  return keep;
}

// mixed [Q, width] = mixed * keep + weights @ v, of C vectors of the width from `at` on; v [kBlock, width].
template <int Q, int C, typename T>
void mix(float* mixed, const float* keep, const float (*weights)[kBlock], const T* v, int width, int at, int keys,
         Ahead ahead) {
  Floats sum[Q][C];
  for (int i = 0; i < Q; i++)
    for (int c = 0; c < C; c++) sum[i][c] = load_floats(mixed + i * width + at + c * kLanes) * keep[i];
  for (int key = 0; key < keys; key++) {
    if (at == 0) ahead.fetch();
    Floats value[C];
    for (int c = 0; c < C; c++) value[c] = load_floats(v + key * width + at + c * kLanes);
    for (int i = 0; i < Q; i++)
      for (int c = 0; c < C; c++) sum[i][c] += weights[i][key] * value[c];
  }
  for (int i = 0; i < Q; i++) std::memcpy(mixed + i * width + at, sum[i], sizeof sum[i]);
}

template <typename T>
struct Pool {
  const T* k;  // [blocks, heads, width, kBlock]
  const T* v;  // [blocks, heads, kBlock, width]
  int64_t heads;
  int width;
};

// Q queries of one head, the i-th at position[i]; q and out [Q, width].
template <int Q, typename T>
void attend(const Pool<T>& pool, int64_t head, const int32_t* table, const int32_t* position, Limits limits,
            const float* q, float* out) {
  int width = pool.width;
  Running running[Q];
  float scores[Q][kBlock], keep[Q];
  std::fill(out, out + Q * width, 0.0f);
  int last = *std::max_element(position, position + Q);
  int reach = limits.window ? std::max(0, *std::min_element(position, position + Q) - limits.window + 1) : 0;
  for (int first = reach / kBlock * kBlock; first <= last; first += kBlock) {
    int64_t at = (table[first / kBlock] * pool.heads + head) * width * kBlock;
    int keys = std::min(kBlock, last - first + 1);
    int padded = (keys + kChunk * kLanes - 1) / (kChunk * kLanes) * (kChunk * kLanes);
    const T *k = pool.k + at, *v = pool.v + at, *next_k = k + width * kBlock;  // The next head's is likely the next.
    int64_t bytes = sizeof(T) * width * keys;
    score<Q>(q, k, width, keys, scores, {(const char*)v, bytes / width});
    for (int i = 0; i < Q; i++) {
      int from = limits.window ? position[i] - limits.window + 1 - first : 0;
      keep[i] = weigh(scores[i], padded, from, position[i] - first + 1, limits.cap, running[i]);
    }
    Ahead ahead{(const char*)next_k, (int64_t)sizeof(T) * width * kBlock / keys};
    int d = 0;
    for (; d + kChunk * kLanes <= width; d += kChunk * kLanes)
      mix<Q, kChunk>(out, keep, scores, v, width, d, keys, ahead);
    for (; d < width; d += kLanes) mix<Q, 1>(out, keep, scores, v, width, d, keys, ahead);
  }
  for (int i = 0; i < Q; i++) {
    float total = 0;
    for (int lane = 0; lane < kLanes; lane++) total += running[i].total[lane];
    for (int d = 0; d < width; d++) out[i * width + d] /= total;
  }
}

// The queries of one row and one head, group by group: [queries, width], of which every `length` belong to one head.
template <typename T>
void attend_row(const Pool<T>& pool, int64_t head, const int32_t* table, int start, int count, int64_t length,
                int64_t queries, Limits limits, const float* q, float* out) {
  std::vector<int32_t> real;
  for (int64_t i = 0; i < queries; i++)
    if (i % length < count) real.push_back(i);
  std::fill(out, out + queries * pool.width, 0.0f);
  std::vector<float> some_q(kTogether * pool.width), some_out(kTogether * pool.width);
  for (size_t begin = 0; begin < real.size();) {
    int together = real.size() - begin >= kTogether ? kTogether : 1;
    int32_t position[kTogether];
    for (int i = 0; i < together; i++) {
      int32_t query = real[begin + i];
      position[i] = start + query % length;
      std::copy_n(q + query * pool.width, pool.width, &some_q[i * pool.width]);
    }
    if (together == kTogether) {
      attend<kTogether>(pool, head, table, position, limits, some_q.data(), some_out.data());
    } else {
      attend<1>(pool, head, table, position, limits, some_q.data(), some_out.data());
    }
    for (int i = 0; i < together; i++)
      std::copy_n(&some_out[i * pool.width], pool.width, out + real[begin + i] * pool.width);
    begin += together;
  }
}

// q, out [rows, heads, queries, width]; tables [rows, blocks of a sequence]; starts, counts [rows]; num_rows [].
template <typename T>
ffi::Error attention(ffi::ThreadPool threads, ffi::Buffer<ffi::F32> q, ffi::AnyBuffer k, ffi::AnyBuffer v,
                     ffi::Buffer<ffi::S32> tables, ffi::Buffer<ffi::S32> starts, ffi::Buffer<ffi::S32> counts,
                     ffi::Buffer<ffi::S32> num_rows, ffi::Result<ffi::Buffer<ffi::F32>> out, int64_t length,
                     int64_t window, float cap) {
  auto shape = q.dimensions();
  int64_t rows = shape[0], heads = shape[1], queries = shape[2], width = shape[3];
  if (width % kLanes || k.dimensions()[1] != heads || k.dimensions()[2] != width || k.dimensions()[3] != kBlock)
    return ffi::Error::InvalidArgument("these operands do not belong together");
  Pool<T> pool{static_cast<const T*>(k.untyped_data()), static_cast<const T*>(v.untyped_data()), heads, (int)width};
  const int32_t *start = starts.typed_data(), *count = counts.typed_data(), *table = tables.typed_data();
  const float* from = q.typed_data();
  float* to = out->typed_data();
  int64_t size = queries * width, blocks = tables.dimensions()[1];
  int64_t real = std::min<int64_t>(rows, num_rows.typed_data()[0]), work = 0;
  for (int64_t row = 0; row < real; row++) work += heads * size * (start[row] + count[row]);
  std::fill(to + real * heads * size, to + rows * heads * size, 0.0f);
  in_parallel(threads, 1 + work / kGrain, real * heads, [=](int64_t i) {
    int64_t row = i / heads;
    attend_row<T>(pool, i % heads, table + row * blocks, start[row], count[row], length, queries, {(int)window, cap},
                  from + i * size, to + i * size);
  });
  return ffi::Error::Success();
}

auto binding() {
  return ffi::Ffi::Bind()
      .Ctx<ffi::ThreadPool>()
      .Arg<ffi::Buffer<ffi::F32>>()
      .Arg<ffi::AnyBuffer>()
      .Arg<ffi::AnyBuffer>()
      .Arg<ffi::Buffer<ffi::S32>>()
      .Arg<ffi::Buffer<ffi::S32>>()
      .Arg<ffi::Buffer<ffi::S32>>()
      .Arg<ffi::Buffer<ffi::S32>>()
      .Ret<ffi::Buffer<ffi::F32>>()
      .Attr<int64_t>("length")
      .Attr<int64_t>("window")
      .Attr<float>("cap");
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(lemur_attention_float32, attention<float>, binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(lemur_attention_uint16, attention<uint16_t>, binding());
