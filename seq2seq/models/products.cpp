// Products of few or many rows with a matrix that has been laid out for them once: x W^T + b in float32, on a CPU.
//
// W [width, depth] is cut into panels of WIDE of its rows, as many as two vector registers hold: panels[p][k][j] is
// W[p * WIDE + j][k], and 0 behind the last row, so that a panel is read from its beginning to its end. A tile of the
// output, TALL rows of WIDE numbers, stays in registers while one column of x after another is multiplied in. This is
// the layout of Goto and van de Geijn 2008, "Anatomy of high-performance matrix multiplication", section 4, but that x,
// which is small in decoding, is read where it is, and W is never copied.
//
// Each number is bias + x[0] w[0] + x[1] w[1] + ..., added up in this order, whatever the number of rows and threads.

#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <algorithm>
#include <cstdint>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "lanes.h"

namespace {

constexpr int64_t WIDE = 2 * LANES;
// With 2 TALL sums, two registers of W and one of x, the 16 or 32 registers are full.
constexpr int TALL = LANES == 16 ? 12 : 6;
// Columns of x at a time: that much of a panel stays in the first cache while it is multiplied with all rows.
constexpr int64_t DEEP = 4096 / WIDE;
// Rows of x at a time, which stay in the second cache while they are multiplied with all panels.
constexpr int64_t MANY = 20 * TALL;
// Below so many products threads take longer to begin than to compute.
constexpr int64_t WORTH_THREADS = 1 << 15;
// How many columns ahead W is asked for. One or two rows are through before that helps.
constexpr int64_t AHEAD = 16;

struct Matrix {
  const float* panels;
  const float* bias;
  int64_t depth, width;

  int64_t count() const { return (width + WIDE - 1) / WIDE; }
  const float* panel(int64_t number) const { return panels + number * depth * WIDE; }
};

struct Rows {
  const float* x;
  int64_t x_stride;
  float* out;
  int64_t out_stride;

  Rows from(int64_t row) const { return {x + row * x_stride, x_stride, out + row * out_stride, out_stride}; }
};

// out = begin + x W^T for ROWS rows and PANELS panels that lie `panel` numbers apart.
template <int ROWS, int PANELS>
inline void tile(Rows rows, const float* panels, int64_t panel, int64_t depth, const float* begin, int64_t begin_stride) {
  Lanes sums[ROWS][PANELS][2];
#pragma GCC unroll 12
  for (int row = 0; row < ROWS; ++row)
#pragma GCC unroll 4
    for (int number = 0; number < PANELS; ++number)
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half)
        sums[row][number][half] = load(begin + row * begin_stride + number * WIDE + half * LANES);
  for (int64_t k = 0; k < depth; ++k) {
    Lanes weights[PANELS][2];
#pragma GCC unroll 4
    for (int number = 0; number < PANELS; ++number) {
      const float* at = panels + number * panel + k * WIDE;
      if (ROWS > 2) __builtin_prefetch(at + AHEAD * WIDE);
      weights[number][0] = load(at);
      weights[number][1] = load(at + LANES);
    }
#pragma GCC unroll 12
    for (int row = 0; row < ROWS; ++row) {
      const float factor = rows.x[row * rows.x_stride + k];
#pragma GCC unroll 4
      for (int number = 0; number < PANELS; ++number) {
        sums[row][number][0] += weights[number][0] * factor;
        sums[row][number][1] += weights[number][1] * factor;
      }
    }
  }
#pragma GCC unroll 12
  for (int row = 0; row < ROWS; ++row)
#pragma GCC unroll 4
    for (int number = 0; number < PANELS; ++number)
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half)
        store(rows.out + row * rows.out_stride + number * WIDE + half * LANES, sums[row][number][half]);
}

// One panel for up to MOST rows.
template <int MOST>
inline void up_to(int64_t count, Rows rows, const float* panel, int64_t depth, const float* begin, int64_t stride) {
  if constexpr (MOST > 0) {
    if (count >= MOST)
      tile<MOST, 1>(rows, panel, 0, depth, begin, stride);
    else
      up_to<MOST - 1>(count, rows, panel, depth, begin, stride);
  }
}

// The columns of one panel.
void whole_panel(int64_t count, Rows rows, const Matrix& matrix, int64_t number) {
  rows.out += number * WIDE;
  for (int64_t k = 0; k < matrix.depth; k += DEEP) {
    const float* panel = matrix.panel(number) + k * WIDE;
    const int64_t depth = std::min(DEEP, matrix.depth - k);
    for (int64_t row = 0; row < count; row += TALL) {
      Rows some = rows.from(row);
      some.x += k;
      if (k == 0)
        up_to<TALL>(count - row, some, panel, depth, matrix.bias + number * WIDE, 0);
      else
        up_to<TALL>(count - row, some, panel, depth, some.out, some.out_stride);
    }
  }
}

// The columns of the last panel, where the output has fewer.
void part_of_panel(int64_t count, Rows rows, const Matrix& matrix, int64_t number) {
  const int64_t width = matrix.width - number * WIDE;
  float space[TALL * WIDE];
  for (int64_t row = 0; row < count; row += TALL) {
    const Rows some = rows.from(row);
    const Rows beside{some.x, some.x_stride, space, WIDE};
    up_to<TALL>(count - row, beside, matrix.panel(number), matrix.depth, matrix.bias + number * WIDE, 0);
    for (int64_t one = 0; one < std::min<int64_t>(TALL, count - row); ++one)
      std::copy_n(space + one * WIDE, width, some.out + one * some.out_stride + number * WIDE);
  }
}

// A row or two have too few sums to keep the processor busy, so several panels are multiplied with at once.
template <int ROWS, int PANELS>
int64_t side_by_side(Rows rows, const Matrix& matrix, int64_t first, int64_t last) {
  for (; first + PANELS <= last; first += PANELS) {
    Rows some = rows;
    some.out += first * WIDE;
    tile<ROWS, PANELS>(some, matrix.panel(first), matrix.depth * WIDE, matrix.depth, matrix.bias + first * WIDE, 0);
  }
  return first;
}

// Panels `first` to `last` - 1.
void range(int64_t count, Rows rows, const Matrix& matrix, int64_t first, int64_t last) {
  const int64_t whole = std::min(last, matrix.width / WIDE);
  if (count == 1) first = side_by_side<1, 4>(rows, matrix, first, whole);
  if (count == 2) first = side_by_side<2, 2>(rows, matrix, first, whole);
  for (int64_t row = 0; row < count; row += MANY) {
    const int64_t some = std::min(MANY, count - row);
    for (int64_t number = first; number < whole; ++number) whole_panel(some, rows.from(row), matrix, number);
    if (whole < last) part_of_panel(some, rows.from(row), matrix, whole);
  }
}

void product(int64_t count, Rows rows, const Matrix& matrix) {
  const int64_t panels = matrix.count();
#ifdef _OPENMP
  const int64_t most = std::min<int64_t>(omp_get_max_threads(), panels);
  if (most > 1 && count * matrix.depth * matrix.width >= WORTH_THREADS) {
    // A loop, as the number of a thread may come from another OpenMP library than the thread.
#pragma omp parallel for schedule(static) num_threads(static_cast<int>(most))
    for (int64_t own = 0; own < most; ++own)
      range(count, rows, matrix, panels * own / most, panels * (own + 1) / most);
    return;
  }
#endif
  range(count, rows, matrix, 0, panels);
}

}  // namespace

extern "C" {

// Rows of W in a panel.
int64_t seq2seq_panel_width() { return WIDE; }

// out [count, width] = x [count, depth] W^T + bias; the bias has a number for each row of all panels.
void seq2seq_packed_product(
    const float* x, int64_t count, int64_t depth, const float* panels, const float* bias, int64_t width, float* out) {
  product(count, Rows{x, depth, out, width}, Matrix{panels, bias, depth, width});
}

// The same for code that torch has compiled, as the operator seq2seq::packed_product.
AOTITorchError aoti_torch_cpu_packed_product(
    AtenTensorHandle x, AtenTensorHandle panels, AtenTensorHandle bias, int64_t width, AtenTensorHandle* out) {
  int64_t count, depth, x_stride, one;
  void *x_at, *panels_at, *bias_at, *out_at;
  if (aoti_torch_get_size(x, 0, &count) || aoti_torch_get_size(x, 1, &depth) || aoti_torch_get_stride(x, 0, &x_stride) ||
      aoti_torch_get_stride(x, 1, &one) || (one != 1 && depth > 1))
    return AOTI_TORCH_FAILURE;
  const int64_t sizes[] = {count, width}, strides[] = {width, 1};
  if (aoti_torch_empty_strided(
          2, sizes, strides, aoti_torch_dtype_float32(), aoti_torch_device_type_cpu(), 0, out) ||
      aoti_torch_get_data_ptr(x, &x_at) || aoti_torch_get_data_ptr(panels, &panels_at) ||
      aoti_torch_get_data_ptr(bias, &bias_at) || aoti_torch_get_data_ptr(*out, &out_at))
    return AOTI_TORCH_FAILURE;
  const Rows rows{static_cast<const float*>(x_at), x_stride, static_cast<float*>(out_at), width};
  product(
      count, rows, Matrix{static_cast<const float*>(panels_at), static_cast<const float*>(bias_at), depth, width});
  return AOTI_TORCH_SUCCESS;
}

}  // extern "C"
