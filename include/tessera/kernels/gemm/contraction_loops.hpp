#ifndef TESSERA_KERNELS_GEMM_CONTRACTION_LOOPS_HPP
#define TESSERA_KERNELS_GEMM_CONTRACTION_LOOPS_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/base/inline_vector.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/kernels/gemm/loop_gemm.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/kernels/long_sums.hpp>
#include <tessera/kernels/scratch.hpp>
#include <tessera/kernels/strided.hpp>

namespace tessera::kernels::inline TESSERA_ISA::detail {

/// One loop of a contraction: its extent, and the stride of each tensor along it (0 if the tensor lacks the label).
struct ContractionDim {
  std::int64_t extent = 1;
  std::int64_t a = 0, b = 0, out = 0;
  std::int8_t out_dim = -1;  ///< the dim of out, or negative for a contracted label

  /// Whether this loop merges with the loop `inner`: in every tensor, its stride is inner's stride times its extent.
  constexpr bool steps_over(const ContractionDim& inner) const {
    return a == inner.a * inner.extent && b == inner.b * inner.extent && out == inner.out * inner.extent;
  }
  friend constexpr bool operator==(const ContractionDim&, const ContractionDim&) = default;
};

using ContractionDims = InlineVector<ContractionDim, 3 * max_rank>;

/// Some dims of the output, outermost first, divided into blocks. A block is a box: one dim is divided into ranges; a
/// block has a single index of the dims outside of it and the full extent of the dims inside.
struct BlockAxis {
  /// A range of row-major indices of the dims.
  struct Range {
    std::int64_t begin = 0, count = 1;
  };

  ContractionDims dims;

  constexpr void push_inside(const ContractionDim& dim) { dims.push_back(dim); }
  constexpr void push_outside(const ContractionDim& dim) { dims.insert(0, dim); }
  constexpr bool has(std::int8_t out_dim) const {
    for (const ContractionDim& dim : dims)
      if (dim.out_dim == out_dim) return true;
    return false;
  }
  /// Inserts a dim so that the strides in out descend.
  constexpr void insert_by_out_stride(const ContractionDim& dim) {
    const auto far = [](std::int64_t stride) { return stride < 0 ? -stride : stride; };
    std::size_t at = dims.size();
    while (at > 0 && far(dims[at - 1].out) < far(dim.out)) --at;
    dims.insert(at, dim);
  }
  constexpr std::int64_t volume() const {
    std::int64_t product = 1;
    for (const ContractionDim& dim : dims) product *= dim.extent;
    return product;
  }
  /// The dims merged into one; requires that they merge, see steps_over().
  constexpr ContractionDim fused() const {
    if (dims.empty()) return {};
    ContractionDim dim = dims.back();
    dim.extent = volume();
    return dim;
  }

  /// Divides the dims into blocks of about `target` indices. Dim `whole` of out is not divided; negative for none.
  constexpr void cut(std::int64_t target, int whole) {
    level_ = 0, inner_ = chunk_ = chunk_count_ = outer_ = 1;
    if (volume() == 0) {
      outer_ = 0;
      return;
    }
    std::size_t kept = dims.size();
    for (std::size_t d = 0; d < dims.size(); ++d)
      if (whole >= 0 && dims[d].out_dim == whole) kept = d;
    for (std::size_t d = dims.size(); d-- > 0;) {
      const std::int64_t extent = dims[d].extent;
      level_ = d;
      chunk_ = extent;
      if (d < kept && 2 * inner_ * extent > 3 * target) {
        const std::int64_t blocks = std::clamp((inner_ * extent + target / 2) / target, std::int64_t(1), extent);
        chunk_ = (extent + blocks - 1) / blocks;
        // A multiple of 32, so that all blocks but the last consist of whole tiles.
        if (inner_ == 1 && chunk_ > 32) chunk_ = std::min((chunk_ + 31) / 32 * 32, extent);
        break;
      }
      if (d > 0) inner_ *= extent;
    }
    if (dims.empty()) return;
    chunk_count_ = (dims[level_].extent + chunk_ - 1) / chunk_;
    for (std::size_t d = 0; d < level_; ++d) outer_ *= dims[d].extent;
  }

  constexpr std::int64_t blocks() const { return outer_ * chunk_count_; }
  constexpr std::int64_t block_size() const { return chunk_ * inner_; }
  constexpr Range range(std::int64_t block) const {
    if (dims.empty()) return {0, 1};
    const std::int64_t extent = dims[level_].extent;
    // Small products are all one block: divisions would be a tenth of their time.
    if (block == 0) return {0, std::min(chunk_, extent) * inner_};
    const std::int64_t first = block % chunk_count_ * chunk_;
    return {(block / chunk_count_ * extent + first) * inner_, std::min(chunk_, extent - first) * inner_};
  }

  /// Calls f(dim, begin, count) for every dim, with the range of it that the block covers.
  template <class F> constexpr void for_each_dim(Range range, F f) const {
    std::int64_t begin = range.begin, count = range.count;
    for (std::size_t d = dims.size(); d-- > 0;) {
      const std::int64_t extent = dims[d].extent;
      const std::int64_t covered = d > level_ ? extent : d == level_ ? count : 1;
      f(dims[d], begin % extent, covered);
      begin /= extent;
      if (d > level_) count /= extent;
    }
  }

  /// Splits `range` into the fewest ranges that are boxes, at most two per dim, and calls f(range) in order.
  template <class F> constexpr void for_each_box(Range range, F f) const {
    while (range.count > 0) {
      std::int64_t taken = 1, inner = 1;
      for (std::size_t d = dims.size(); d-- > 0 && range.begin % inner == 0 && range.count >= inner;) {
        const std::int64_t index = range.begin / inner % dims[d].extent;
        taken = std::min(range.count / inner, dims[d].extent - index) * inner;
        inner *= dims[d].extent;
      }
      f(Range{range.begin, taken});
      range.begin += taken, range.count -= taken;
    }
  }

  /// for_each_dim for a range from for_each_box.
  template <class F> constexpr void for_each_dim_of_box(Range box, F f) const {
    std::int64_t inner = 1;
    for (std::size_t d = dims.size(); d-- > 0;) {
      const std::int64_t extent = dims[d].extent;
      f(dims[d], box.begin / inner % extent, std::clamp(box.count / inner, std::int64_t(1), extent));
      inner *= extent;
    }
  }

 private:
  std::size_t level_ = 0;         // the dim that is divided
  std::int64_t inner_ = 1;        // volume of the dims inside of it
  std::int64_t chunk_ = 1;        // extent of a block along it
  std::int64_t chunk_count_ = 1;  // number of blocks along it
  std::int64_t outer_ = 1;        // volume of the dims outside of it
};

/// Iterates over nested loops in row-major order, with the offset in each tensor.
struct DimCounter {
  std::int64_t a = 0, b = 0, out = 0;

  DimCounter(const ContractionDims& dims, std::int64_t begin) : dims_(dims) {
    for (std::size_t d = dims.size(); d-- > 0 && begin > 0;) {
      index_[d] = begin % dims[d].extent;
      begin /= dims[d].extent;
      move(d, index_[d]);
    }
  }
  void next() {
    for (std::size_t d = dims_.size(); d-- > 0;) {
      move(d, 1);
      if (++index_[d] < dims_[d].extent) return;
      move(d, -dims_[d].extent);
      index_[d] = 0;
    }
  }

 private:
  void move(std::size_t d, std::int64_t steps) {
    a += steps * dims_[d].a;
    b += steps * dims_[d].b;
    out += steps * dims_[d].out;
  }
  const ContractionDims& dims_;
  std::int64_t index_[ContractionDims::capacity()] = {};
};

/// The innermost loop: c = alpha a b, or c += with Add. With dim.out == 0, a dot product.
template <bool Add, class T>
void contraction_row(const ContractionDim& dim, const T* a, const T* b, product_t<T>* c, product_t<T> alpha) {
  using R = product_t<T>;
  const std::int64_t count = dim.extent;
  const auto store = [](R& to, R value) {
    if constexpr (Add) {
      to = multiply_add(to, value, R(1));
    } else {
      to = value;
    }
  };
  if (dim.out == 0) {
    const R value = scale(dot(a, dim.a, b, dim.b, count), alpha);
    store(*c, value);
  } else if (dim.out == 1 && dim.a == 1 && dim.b == 1) {
    for (std::int64_t i = 0; i < count; ++i) store(c[i], scale<R>(scale<R>(a[i], alpha), b[i]));
  } else if (dim.out == 1 && dim.a == 1 && dim.b == 0) {
    const R factor = scale<R>(*b, alpha);
    for (std::int64_t i = 0; i < count; ++i) store(c[i], scale<R>(a[i], factor));
  } else if (dim.out == 1 && dim.a == 0 && dim.b == 1) {
    const R factor = scale<R>(*a, alpha);
    for (std::int64_t i = 0; i < count; ++i) store(c[i], scale<R>(b[i], factor));
  } else {
    for (std::int64_t i = 0; i < count; ++i)
      store(c[i * dim.out], scale<R>(scale<R>(a[i * dim.a], alpha), b[i * dim.b]));
  }
}

template <class T> void contraction_zero(const ContractionDims& dims, T* out) {
  Shape extents;
  Strides strides;
  for (const ContractionDim& dim : dims) {
    extents.push_back(dim.extent);
    strides.push_back(dim.out);
  }
  strided_fill_zero(out, strides, extents, sizeof(T));
}

/// Adds `terms` rows of products to each row of out, in runs whose sums are added in f64.
inline void add_long_rows(ContractionDim inner, DimCounter& position, std::int64_t rows, std::int64_t terms,
                          const float* a, const float* b, float* out, float alpha) {
  const std::int64_t step = inner.out, count = step == 0 ? 1 : inner.extent;
  if (step != 0) inner.out = 1;
  double* const sums = thread_scratch<Scratch::long_sums, double>(static_cast<std::size_t>(2 * count));
  float* const run = reinterpret_cast<float*>(sums + count);
  for (; rows > 0; --rows) {
    float* const to = out + position.out;
    for (std::int64_t i = 0; i < count; ++i) sums[i] = static_cast<double>(to[i * step]);
    for (std::int64_t left = terms; left > 0; left -= sum_run) {
      std::fill_n(run, count, 0.f);
      for (std::int64_t t = std::min(left, sum_run); t > 0; --t, position.next())
        contraction_row<true>(inner, a + position.a, b + position.b, run, alpha);
      for (std::int64_t i = 0; i < count; ++i) sums[i] += static_cast<double>(run[i]);
    }
    for (std::int64_t i = 0; i < count; ++i) to[i * step] = static_cast<float>(sums[i]);
  }
}

/// A contraction by plain loops. The innermost loop is along the dim that is contiguous in most tensors; contracted
/// dims are the next loops, so that their row of out stays in the cache. With contracted dims, `accumulate` must be
/// true.
template <class T>
void contraction_loops(ContractionDims dims, const T* a, const T* b, product_t<T>* out, bool accumulate,
                       product_t<T> alpha) {
  const auto merit = [](const ContractionDim& dim) {
    const auto of = [](std::int64_t stride) { return stride == 1 ? 2 : stride == 0 ? 1 : 0; };
    return (of(dim.a) + of(dim.b) + of(dim.out)) * std::min<std::int64_t>(dim.extent, 32);
  };
  const auto far = [](std::int64_t stride) { return stride < 0 ? -stride : stride; };
  ContractionDim inner;
  if (!dims.empty()) {
    std::size_t best = 0;
    for (std::size_t d = 0; d < dims.size(); ++d) {
      if (dims[d].extent == 0) return;
      if (merit(dims[d]) > merit(dims[best])) best = d;
    }
    inner = dims[best];
    dims.erase(best);
    for (std::size_t d = 1; d < dims.size(); ++d)  // by falling stride of the result; few dims, so by insertion
      for (std::size_t e = d; e > 0 && far(dims[e].out) > far(dims[e - 1].out); --e) std::swap(dims[e], dims[e - 1]);
  }
  std::int64_t rows = 1, terms = 1;  // `terms` consecutive rows of products are added to one row of out
  for (const ContractionDim& dim : dims) {
    rows *= dim.extent;
    if (dim.out_dim < 0) terms *= dim.extent;
  }
  DimCounter position(dims, 0);
  if constexpr (std::is_same_v<T, float>)
    if (terms > sum_run) return add_long_rows(inner, position, rows / terms, terms, a, b, out, alpha);
  for (std::int64_t i = 0; i < rows; ++i, position.next()) {
    if (accumulate) {
      contraction_row<true>(inner, a + position.a, b + position.b, out + position.out, alpha);
    } else {
      contraction_row<false>(inner, a + position.a, b + position.b, out + position.out, alpha);
    }
  }
}

}  // namespace tessera::kernels::inline TESSERA_ISA::detail

#include <tessera/base/pop_macros.hpp>

#endif
