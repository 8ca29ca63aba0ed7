#ifndef TESSERA_KERNELS_ATTENTION_BLOCK_ATTENTION_GRADIENT_HPP
#define TESSERA_KERNELS_ATTENTION_BLOCK_ATTENTION_GRADIENT_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <limits>

#include <tessera/kernels/attention/attention.hpp>
#include <tessera/kernels/attention/attention_blocks.hpp>
#include <tessera/kernels/attention/half_attention_gradient.hpp>

TESSERA_KERNEL_CODE_BEGIN
namespace tessera::kernels::inline TESSERA_ISA {

namespace detail {

#if defined(__x86_64__)
/// What block_attend_gradient() computes, in its phases. Gradients of keys and values are accumulated in scratch
/// memory, in whole blocks.
template <std::same_as<bf16> T> class BlockGradientOfHead {
 public:
  BlockGradientOfHead(const AttentionShape& shape, const HalfAttentionGradient<T>& g, std::int64_t first_key,
                      std::int64_t end_key, CpuLevel level)
      : kernels_(attention_kernels<float>(level)), shape_(shape), g_(g), unit_(level), first_key_(first_key),
        end_key_(end_key), part_(end_key - first_key), width_(whole_blocks(shape.width)),
        value_width_(whole_blocks(shape.value_width)) {
    const std::int64_t padded = padded_keys();
    AttentionRoom room(padded * (width_ + value_width_ / 2 + width_ + value_width_) +
                       row * (2 * width_ + value_width_) + row * row * 7 / 2 + 2 * row + row * width_);
    k_sums_ = room.take<float>(padded * width_), v_sums_ = room.take<float>(padded * value_width_);
    weights_ = room.take<float>(row * row), slopes_ = room.take<float>(row * row);
    query_sums_ = room.take<float>(width_ * row);
    logarithms_ = room.take<float>(row), products_ = room.take<float>(row);
    keys_ = room.take<bf16>(padded * width_), values_ = room.take<bf16>(padded * value_width_);
    turned_keys_ = room.take<bf16>(padded * width_);
    queries_ = room.take<bf16>(row * width_), cotangents_ = room.take<bf16>(row * value_width_);
    query_rows_ = room.take<bf16>(row * width_), cotangent_rows_ = room.take<bf16>(row * value_width_);
    weights_room_ = room.take<bf16>(row * row), slopes_room_ = room.take<bf16>(row * row);
    pairs_room_ = room.take<bf16>(row * row);
  }

  void run() const {
    std::fill_n(k_sums_, padded_keys() * (width_ + value_width_), 0.0f);
    pack_keys();
    for (std::int64_t first = 0; first < shape_.queries; first += row) {
      const std::int64_t count = std::min(row, shape_.queries - first);
      const std::int64_t visible = std::min(shape_.visible(first + count), end_key_);
      if (wants_q()) std::fill_n(query_sums_, width_ * row, 0.0f);
      if (visible > first_key_) load(first, count);
      for (std::int64_t key = first_tile(shape_, first, first_key_); key < visible; key += attention_keys) {
        const std::int64_t seen = std::min(attention_keys, visible - key);
        find_slopes(first, count, key, seen);
        add_products(whole_blocks(count), key, whole_blocks(seen));
      }
      if (wants_q())
        transpose_tile<float>(kernels_, g_.q_gradient.at(first), g_.q_gradient.row, query_sums_, row, 1, shape_.width,
                              count, shape_.width, 1.0f);
    }
    copy(g_.k_gradient, k_sums_, width_, shape_.width);
    copy(g_.v_gradient, v_sums_, value_width_, shape_.value_width);
  }

 private:
  static constexpr std::int64_t row = attention_queries;

  bool wants_q() const { return g_.q_gradient.data != nullptr; }
  bool wants_k() const { return g_.k_gradient.data != nullptr; }
  bool wants_v() const { return g_.v_gradient.data != nullptr; }
  std::int64_t padded_keys() const { return (part_ + attention_keys - 1) / attention_keys * attention_keys; }

  void pack_keys() const {
    for (std::int64_t key = 0; key < part_; key += attention_keys) {
      const std::int64_t own = std::min(attention_keys, part_ - key), at = first_key_ + key;
      pack_blocks<false>({g_.k.at(at), g_.k.row, g_.k.col}, own, shape_.width, keys_ + key * width_);
      pack_blocks<false>({g_.v.at(at), g_.v.row, g_.v.col}, own, shape_.value_width, values_ + key * value_width_);
      if (wants_q())
        pack_blocks<false>({g_.k.at(at), g_.k.col, g_.k.row}, shape_.width, own, turned_keys_ + key * width_);
    }
  }

  /// Packs a tile of queries and their cotangents, and finds the products of cotangents and outputs.
  void load(std::int64_t first, std::int64_t count) const {
    const HeadRows<const T>&q = g_.q, &cotangent = g_.cotangent;
    pack_blocks<true>({q.at(first), q.row, q.col}, count, shape_.width, queries_);
    pack_blocks<true>({cotangent.at(first), cotangent.row, cotangent.col}, count, shape_.value_width, cotangents_);
    if (wants_k()) pack_blocks<true>({q.at(first), q.col, q.row}, shape_.width, count, query_rows_);
    if (wants_v())
      pack_blocks<true>({cotangent.at(first), cotangent.col, cotangent.row}, shape_.value_width, count,
                        cotangent_rows_);
    row_products(cotangent, g_.out, first, count, shape_.value_width, products_);
    for (std::int64_t i = 0; i < row; ++i) {
      logarithms_[i] = i < count ? std::max(*g_.row_lse.at(first + i), static_cast<float>(least_score)) : 0.0f;
      if (i >= count) products_[i] = 0.0f;
    }
  }

  /// The softmax weights of queries [first, first + count) for keys [key, key + seen), and the gradients of the scores.
  void find_slopes(std::int64_t first, std::int64_t count, std::int64_t key, std::int64_t seen) const {
    const std::int64_t at = key - first_key_, whole = whole_blocks(seen), cols = whole_blocks(count);
    multiply_tile(unit_, {keys_ + at * width_, width_}, {queries_, width_}, whole, cols, shape_.width, weights_, row,
                  false);
    multiply_tile(unit_, {values_ + at * value_width_, value_width_}, {cotangents_, value_width_}, whole, cols,
                  shape_.value_width, slopes_, row, false);
    scale_and_mask(kernels_, weights_, shape_, first, cols, key, seen, -std::numeric_limits<float>::infinity());
    // Padding queries and keys get weight 0: computed, their weights could be arbitrarily large.
    const std::int64_t columns = (count + kernels_.lanes - 1) & -kernels_.lanes;
    kernels_.find_slopes({weights_, slopes_, logarithms_, products_, static_cast<float>(shape_.scale)}, seen, columns);
    for (float* const tile : {weights_, slopes_}) {
      for (std::int64_t i = 0; i < seen; ++i) std::fill(tile + i * row + columns, tile + i * row + cols, 0.0f);
      std::fill(tile + seen * row, tile + whole * row, 0.0f);
    }
  }

  /// Adds to the gradients of values, keys and queries the products of `cols` columns of weights and slopes for `whole`
  /// keys.
  void add_products(std::int64_t cols, std::int64_t key, std::int64_t whole) const {
    const std::int64_t at = key - first_key_, own = whole_blocks(std::min(attention_keys, end_key_ - key));
    if (wants_v())
      multiply_tile(unit_, round_to_rows(weights_, whole, cols, weights_room_), {cotangent_rows_, cols}, whole,
                    value_width_, cols, v_sums_ + at * value_width_, value_width_, true);
    if (wants_k())
      multiply_tile(unit_, round_to_rows(slopes_, whole, cols, slopes_room_), {query_rows_, cols}, whole, width_, cols,
                    k_sums_ + at * width_, width_, true);
    if (wants_q())
      multiply_tile(unit_, {turned_keys_ + at * width_, own}, round_to_pairs(slopes_, whole, cols, pairs_room_), width_,
                    cols, whole, query_sums_, row, true);
  }

  void copy(const HeadRows<float>& to, const float* from, std::int64_t from_row, std::int64_t columns) const {
    for (std::int64_t i = 0; to.data != nullptr && i < part_; ++i)
      std::copy_n(from + i * from_row, columns, to.at(first_key_ + i));
  }

  const AttentionKernels<float>& kernels_;
  const AttentionShape& shape_;
  const HalfAttentionGradient<T>& g_;
  Bf16Blocks unit_;
  std::int64_t first_key_, end_key_, part_, width_, value_width_;
  float *k_sums_ = nullptr, *v_sums_ = nullptr, *weights_ = nullptr, *slopes_ = nullptr, *query_sums_ = nullptr,
        *logarithms_ = nullptr, *products_ = nullptr;
  bf16 *keys_ = nullptr, *values_ = nullptr, *turned_keys_ = nullptr, *queries_ = nullptr, *cotangents_ = nullptr,
       *query_rows_ = nullptr, *cotangent_rows_ = nullptr, *weights_room_ = nullptr, *slopes_room_ = nullptr,
       *pairs_room_ = nullptr;
};

/// attend_gradient() with AMX or AVX512_BF16.
template <std::same_as<bf16> T>
void block_attend_gradient(const AttentionShape& shape, const HalfAttentionGradient<T>& g, std::int64_t first_key,
                           std::int64_t end_key, CpuLevel level) {
  BlockGradientOfHead<T>(shape, g, first_key, end_key, level).run();
}
#endif

}  // namespace detail

}  // namespace tessera::kernels::inline TESSERA_ISA
TESSERA_KERNEL_CODE_END

#include <tessera/base/pop_macros.hpp>

#endif
