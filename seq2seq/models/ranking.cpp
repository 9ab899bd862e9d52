// What a beam search asks of rows of logits, in float32 on a CPU: their norm, and the best pieces of each.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "lanes.h"

namespace {

typedef int32_t Integers __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

// Vectors that are looked at together.
constexpr int64_t VECTORS = 4, BLOCK = VECTORS * LANES;
// Blocks whose exponentials are added up in float32, before their sum goes to the others' in float64.
constexpr int64_t TERMS = 16;
// Below this difference to the highest logit an exponential counts for nothing, and would be subnormal.
constexpr float LOWEST = -87.0f;

inline Lanes all(float value) { return value - Lanes{}; }

inline Lanes higher(Lanes one, Lanes other) { return one > other ? one : other; }

inline float highest(Lanes lanes) {
  float found = lanes[0];
  for (int lane = 1; lane < LANES; ++lane) found = std::max(found, lanes[lane]);
  return found;
}

inline bool any_above(Lanes lanes, float value) {
  const Integers above = lanes > all(value);
  int64_t words[LANES / 2], found = 0;
  std::memcpy(words, &above, sizeof above);
  for (const int64_t word : words) found |= word;
  return found != 0;
}

// e^x for x <= 0, to two units in the last place; NaN for NaN. Cody and Waite 1980: x = n ln 2 + r, and a polynomial
// of r, that of Moshier's Cephes library.
inline Lanes exponential(Lanes x) {
  x = x < LOWEST ? all(LOWEST) : x;
  const float shift = 12582912.0f;  // 1.5 * 2^23: what is added to it is rounded to a whole number
  const Lanes shifted = x * 1.44269504f + shift;
  const Lanes n = shifted - shift;
  const Lanes r = x - n * 0.693359375f + n * 2.12194440e-4f;
  Lanes sum = all(1.9875691500e-4f);
  sum = sum * r + 1.3981999507e-3f;
  sum = sum * r + 8.3334519073e-3f;
  sum = sum * r + 4.1665795894e-2f;
  sum = sum * r + 1.6666665459e-1f;
  sum = sum * r + 5.0000001201e-1f;
  sum = sum * (r * r) + r + 1.0f;
  // the last bits of what has been shifted are n
  Integers bits;
  std::memcpy(&bits, &shifted, sizeof bits);
  bits = (bits << 23) + (127 << 23);
  Lanes power;
  std::memcpy(&power, &bits, sizeof power);
  return sum * power;
}

float highest_of(const float* row, int64_t width) {
  const float none = -std::numeric_limits<float>::infinity();
  int64_t at = 0;
  Lanes found[VECTORS];
  for (auto& one : found) one = all(none);
  for (; at + BLOCK <= width; at += BLOCK)
    for (int64_t number = 0; number < VECTORS; ++number)
      found[number] = higher(load(row + at + number * LANES), found[number]);
  float top = none;
  for (const auto& one : found) top = std::max(top, highest(one));
  for (; at < width; ++at) top = std::max(top, row[at]);
  return top;
}

double log_sum_exp(const float* row, int64_t width) {
  const float top = highest_of(row, width);
  double sum = 0;
  int64_t at = 0;
  while (at + BLOCK <= width) {
    Lanes sums[VECTORS] = {};
    for (int64_t block = 0; block < TERMS && at + BLOCK <= width; ++block, at += BLOCK)
      for (int64_t number = 0; number < VECTORS; ++number)
        sums[number] += exponential(load(row + at + number * LANES) - top);
    for (int lane = 0; lane < LANES; ++lane)
      for (const auto& one : sums) sum += one[lane];
  }
  for (; at < width; ++at) sum += std::exp(row[at] - top);
  return top + std::log(sum);
}

// The best pieces so far, best first, of equally good ones the lower id first.
struct Best {
  int64_t count;
  int64_t* pieces;
  float* values;
  int64_t found = 0;

  // Pieces come in the order of their ids.
  void offer(int64_t piece, float value) {
    if (found == count && !(value > values[count - 1])) return;
    int64_t at = found < count ? found++ : count - 1;
    for (; at > 0 && values[at - 1] < value; --at) {
      values[at] = values[at - 1];
      pieces[at] = pieces[at - 1];
    }
    values[at] = value;
    pieces[at] = piece;
  }
};

void best_of(const float* row, int64_t width, Best best) {
  int64_t at = 0;
  for (; at < best.count; ++at) best.offer(at, row[at]);
  for (; at + BLOCK <= width; at += BLOCK) {
    Lanes top = load(row + at);
    for (int64_t number = 1; number < VECTORS; ++number) top = higher(load(row + at + number * LANES), top);
    if (!any_above(top, best.values[best.count - 1])) continue;
    for (int64_t piece = at; piece < at + BLOCK; ++piece) best.offer(piece, row[piece]);
  }
  for (; at < width; ++at) best.offer(at, row[at]);
}

}  // namespace

extern "C" {

// The logarithm of the sum of exponentials of each row of logits [count, width]; NaN where one is NaN or plus infinity,
// or all are minus infinity.
void seq2seq_log_sum_exp(const float* logits, int64_t count, int64_t width, double* norms) {
  for (int64_t row = 0; row < count; ++row) norms[row] = log_sum_exp(logits + row * width, width);
}

// The `most` best pieces of each row, 0 < most <= width, best first, of equally good ones the lower id first, into
// pieces [count, most]; `values` has room for `most`. No logit is NaN.
void seq2seq_best_pieces(
    const float* logits, int64_t count, int64_t width, int64_t most, int64_t* pieces, float* values) {
  for (int64_t row = 0; row < count; ++row)
    best_of(logits + row * width, width, Best{most, pieces + row * most, values});
}

}  // extern "C"
