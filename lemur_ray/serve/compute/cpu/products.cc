// Matrix products for CPUs, called by compiled XLA programs: y = x @ w for one to some hundred rows.
//
// A matrix lies in panels of 32 columns, so that a product reads it once, in order, at the speed of the memory. Every
// entry of y is one sum, taken from the first input to the last, whatever stands in the other rows: its bits depend
// neither on their number nor on the threads. An input is a word of 32 bits: one float32, two bfloat16 or four int8.

#include <algorithm>
#include <type_traits>
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "vectors.h"

namespace {

constexpr int kVectors = 2;
constexpr int kColumns = kLanes * kVectors;
// Rows whose sums are kept in registers, for one panel at a time and for two.
#if defined(__AVX512F__)
constexpr int kRows[] = {0, 12, 6};  // 24 vectors of 32, beside a word of x and those of w.
#else
constexpr int kRows[] = {0, 3, 1};   // A vector takes two registers of 16, or four of 32.
#endif
constexpr int64_t kMany = 48;        // From so many rows on, two panels at a time are 7 % faster than one.
constexpr int64_t kDepth = 1024;     // Words of a column for which a piece of a panel stays in the second cache.
constexpr int64_t kAhead = 64;       // Words of a column that are fetched in advance: 7 to 15 % with 8 rows.
constexpr int64_t kGrain = 1 << 19;  // Words times rows under which a second thread costs more than it brings.

struct Float32 {
  using Sum = Floats;
  static Sum begin(int32_t) { return Sum{}; }
  static Sum add(Sum sum, Words x, Words w) { return sum + (Floats)x * (Floats)w; }
};

struct Bfloat16 {
  using Sum = Floats;
  static Sum begin(int32_t) { return Sum{}; }
  static Sum add(Sum sum, Words x, Words w) {
#if defined(__AVX512BF16__)
    return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)x, (__m512bh)w);
#else
    constexpr int32_t kUpper = -65536;
    sum += (Floats)(x << 16) * (Floats)(w << 16);
    return sum + (Floats)(x & kUpper) * (Floats)(w & kUpper);
#endif
  }
};

struct Int8 {  // Weights have 128 added, as the instruction wants one operand without a sign.
  using Sum = Words;
  static Sum begin(int32_t sum_of_x) { return Sum{} - 128 * sum_of_x; }
  static Sum add(Sum sum, Words x, Words w) {
#if defined(__AVX512VNNI__)
    return (Words)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)w, (__m512i)x);
#else
    for (int byte = 0; byte < 32; byte += 8) sum += ((x << (24 - byte)) >> 24) * ((w >> byte) & 255);
    return sum;
#endif
  }
};

// A product as pointers; everything is counted in words, and all is row-major.
template <typename Sum>
struct Operands {
  const int32_t* x;        // [rows, depth]
  const int32_t* w;        // [panels, depth, kColumns]
  int32_t* y;              // [rows, columns], of the type in Sum
  const int32_t* sum_of_x; // [rows], for int8
  int64_t rows, depth, columns;
};

// Adds a piece of the depth to R rows of P panels: w [depth, kColumns], the next panel w_stride behind it; first: there
// is nothing in y yet.
template <typename T, int P, int R>
void some_rows(const int32_t* x, int64_t x_stride, const int32_t* w, int64_t w_stride, int64_t depth, int32_t* y,
               int64_t y_stride, const int32_t* sum_of_x, bool first) {
  constexpr int kAll = P * kVectors;
  typename T::Sum sum[R][kAll];
  for (int r = 0; r < R; r++)
    for (int v = 0; v < kAll; v++)
      sum[r][v] = first ? T::begin(sum_of_x[r]) : load<typename T::Sum>(y + r * y_stride + v * kLanes);
  for (int64_t k = 0; k < depth; k++) {
    Words column[kAll];
    for (int v = 0; v < kAll; v++) {
      const int32_t* from = w + v / kVectors * w_stride + k * kColumns + v % kVectors * kLanes;
      // Fewer rows wait for the memory alone, and the hardware fetches as fast by itself.
      if constexpr (P == 1 && R >= 4) __builtin_prefetch(from + kAhead * kColumns, 0, 2);
      column[v] = load<Words>(from);
    }
    for (int r = 0; r < R; r++) {
      Words input = Words{} + x[r * x_stride + k];
      for (int v = 0; v < kAll; v++) sum[r][v] = T::add(sum[r][v], input, column[v]);
    }
  }
  for (int r = 0; r < R; r++)
    for (int v = 0; v < kAll; v++) std::memcpy(y + r * y_stride + v * kLanes, &sum[r][v], sizeof sum[r][v]);
}

template <typename T, int P, int R = kRows[P], typename... Arguments>
void so_many_rows(int64_t rows, Arguments... arguments) {
  if (rows == R) {
    some_rows<T, P, R>(arguments...);
  } else if constexpr (R > 1) {
    so_many_rows<T, P, R - 1>(rows, arguments...);
  }
}

template <typename T, int P>
void all_rows(const Operands<typename T::Sum>& of, const int32_t* w, int32_t* y, int64_t y_stride) {
  int64_t blocks = (of.rows + kRows[P] - 1) / kRows[P];
  for (int64_t at = 0; at < of.depth; at += kDepth) {
    int64_t depth = std::min(kDepth, of.depth - at);
    for (int64_t block = 0; block < blocks; block++) {  // Of nearly equal size: 13 rows are 7 and 6, not 12 and 1.
      int64_t row = of.rows * block / blocks, end = of.rows * (block + 1) / blocks;
      so_many_rows<T, P>(end - row, of.x + row * of.depth + at, of.depth, w + at * kColumns, of.depth * kColumns, depth,
                         y + row * y_stride, y_stride, of.sum_of_x + row, at == 0);
    }
  }
}

// One panel, or two if both are there and whole.
template <typename T>
void panels(const Operands<typename T::Sum>& of, int64_t number, int64_t count) {
  const int32_t* w = of.w + number * of.depth * kColumns;
  int32_t* y = of.y + number * kColumns;
  int64_t columns = of.columns - number * kColumns;
  if (count == 2 && columns >= 2 * kColumns) return all_rows<T, 2>(of, w, y, of.columns);
  if (columns >= kColumns) {
    all_rows<T, 1>(of, w, y, of.columns);
  } else {
    std::vector<int32_t> wider(of.rows * kColumns);  // The last panel has columns of zeros that y has no room for.
    all_rows<T, 1>(of, w, wider.data(), kColumns);
    for (int64_t row = 0; row < of.rows; row++)
      std::memcpy(y + row * of.columns, &wider[row * kColumns], columns * sizeof(int32_t));
  }
  if (count == 2 && columns > kColumns) panels<T>(of, number + 1, 1);
}

// real: the rows from there on are padding, and zeros in y.
template <typename T>
ffi::Error product(ffi::ThreadPool pool, ffi::AnyBuffer x, ffi::AnyBuffer w, ffi::Buffer<ffi::S32> real,
                   ffi::Result<ffi::AnyBuffer> y) {
  auto shape = w.dimensions();
  Operands<typename T::Sum> of{static_cast<const int32_t*>(x.untyped_data()),
                               static_cast<const int32_t*>(w.untyped_data()),
                               static_cast<int32_t*>(y->untyped_data()),
                               nullptr,
                               static_cast<int64_t>(x.dimensions()[0]),
                               static_cast<int64_t>(shape[1]),
                               static_cast<int64_t>(y->dimensions()[1])};
  int64_t num_panels = shape[0];
  if (shape[2] != kColumns || x.size_bytes() != static_cast<size_t>(of.rows * of.depth * 4) ||
      (of.columns + kColumns - 1) / kColumns != num_panels)
    return ffi::Error::InvalidArgument("these operands do not belong together");
  int64_t rows = std::min<int64_t>(of.rows, real.typed_data()[0]);
  std::fill(of.y + rows * of.columns, of.y + of.rows * of.columns, 0);
  of.rows = rows;
  std::vector<int32_t> sums(of.rows);
  if constexpr (std::is_same_v<T, Int8>) {
    auto* bytes = static_cast<const int8_t*>(x.untyped_data());
    for (int64_t row = 0; row < of.rows; row++)
      for (int64_t i = 0; i < of.depth * 4; i++) sums[row] += bytes[row * of.depth * 4 + i];
  }
  of.sum_of_x = sums.data();
  int64_t threads = 1 + of.rows * of.depth * num_panels * kColumns / kGrain;
  int64_t each = of.rows >= kMany && kRows[2] > 1 ? 2 : 1;
  in_parallel(pool, threads, (num_panels + each - 1) / each, [=](int64_t i) { panels<T>(of, i * each, each); });
  return ffi::Error::Success();
}

auto binding() {
  return ffi::Ffi::Bind()
      .Ctx<ffi::ThreadPool>()
      .Arg<ffi::AnyBuffer>()
      .Arg<ffi::AnyBuffer>()
      .Arg<ffi::Buffer<ffi::S32>>()
      .Ret<ffi::AnyBuffer>();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(lemur_product_float32, product<Float32>, binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(lemur_product_bfloat16, product<Bfloat16>, binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(lemur_product_int8, product<Int8>, binding());
