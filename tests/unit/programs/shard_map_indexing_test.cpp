#include <cstdint>
#include <tuple>

#include "on_each_device.hpp"
#include <gtest/gtest.h>

// Operations at indices in the function of a shard_map, where the indices or the tensor may differ between devices.

namespace ts = tessera;
using on_each_device::compare;

namespace {

/// Indices from 0 to 2, which differ between devices and repeat.
constexpr auto indices_of(const auto& x) {
  return ts::cast<std::int32_t>(ts::floor(ts::minimum(ts::abs(ts::stop_gradient(ts::sum<1>(x))) * 2.0, 2.0)));
}
struct IndexPut {
  constexpr auto operator()(const auto& x, const auto& w) const {  // [K, N], [3, 3, N]
    const auto rows = indices_of(x);
    return ts::index_put(ts::sin(w), std::tuple(rows, 2 - rows), x);
  }
};
struct IndexPutAdds {
  constexpr auto operator()(const auto& x, const auto& w) const {
    const auto rows = indices_of(x);
    return ts::index_put<true>(ts::sin(w), std::tuple(rows, rows * 0), x * x);
  }
};
struct IndexPutShared {
  constexpr auto operator()(const auto& x, const auto& w) const {
    const auto rows = indices_of(w);
    return ts::index_put(x, std::tuple(rows * 0, rows), w);
  }
};
struct IndexCopy {
  constexpr auto operator()(const auto& x, const auto& w) const { return ts::index_copy<0>(w, indices_of(x), x); }
};
struct IndexAdd {
  constexpr auto operator()(const auto& x, const auto& w) const { return ts::index_add<0>(w * w, indices_of(x), x); }
};
struct Index {
  constexpr auto operator()(const auto& x, const auto& w) const {
    const auto rows = indices_of(x);
    return ts::index(w, std::tuple(rows, 2 - rows)) * x;
  }
};
struct Lookup {
  constexpr auto operator()(const auto& x, const auto& w) const {
    return ts::embedding(w, indices_of(x)) + ts::embedding(x * ts::sum<0>(w), indices_of(x));
  }
};
struct Masked {
  constexpr auto operator()(const auto& x, const auto& w) const {
    const auto positive = ts::masked_select(x * w, x > 0.0, 5);
    const auto put = ts::masked_scatter(w, w > 0.0, positive);
    const auto where = ts::cast<double>(std::get<0>(ts::nonzero(x > 0.0, 4)));
    return ts::broadcast_to(ts::sum(positive) + ts::sum(where), {ts::Dim(2), ts::Dim(3)}) + ts::sum(put);
  }
};
TEST(ShardMapIndexing, Indices) {
  compare<IndexPut>({12, 2}, {3, 3, 2}, "index_put");
  compare<IndexPutAdds>({12, 2}, {3, 3, 2}, "index_put that adds");
  compare<IndexPutShared>({4, 3, 2}, {4, 2}, "index_put at equal indices");
  compare<IndexCopy>({12, 2}, {3, 2}, "index_copy");
  compare<IndexAdd>({12, 2}, {3, 2}, "index_add");
  compare<Index>({12, 2}, {3, 3, 2}, "index");
  compare<Lookup>({12, 2}, {3, 2}, "embedding");
  compare<Masked>({12, 2}, {2}, "masked_select and others");
}

/// An index from 0 to 2, which differs between devices if x does.
constexpr auto index_of(const auto& x) {
  return ts::cast<std::int32_t>(ts::floor(ts::minimum(ts::abs(ts::stop_gradient(ts::sum(x))) * 2.0, 2.0)));
}
struct DynamicSlices {  // [B, 2], [3, 2]
  constexpr auto operator()(const auto& x, const auto& w) const {
    const auto of_w = ts::dynamic_slice<0>(w, index_of(x), 2) * ts::dynamic_slice<0>(w, index_of(w), 2);
    const auto of_x = ts::dynamic_index<0>(x, index_of(w)) + ts::dynamic_index<0>(x, index_of(x));
    const auto row = ts::dynamic_slice<0>(x, index_of(w) - 1, 1) * ts::dynamic_slice<0>(x, 0, 1);
    return x + ts::sum<0>(of_w) * of_x + ts::matmul(row, ts::matmul(ts::transpose<1, 0>(w), w));
  }
};
struct DynamicUpdates {
  constexpr auto operator()(const auto& x, const auto& w) const {
    const auto part = ts::sin(ts::slice<0>(w, 1, 2));
    const auto first = ts::dynamic_update_slice<0>(x, part, index_of(x));
    const auto second = ts::dynamic_update_slice<0>(w, ts::slice<0>(x, 0, 2), index_of(w));
    return ts::dynamic_update_index<0>(first, ts::sum<0>(second), index_of(w)) + ts::sum<0>(second);
  }
};
struct DynamicSlicesInALoop {
  constexpr auto operator()(const auto& x, const auto& w) const {
    const auto step = [&](const auto& i, const auto& carry) {
      const auto row = ts::dynamic_slice<0>(carry, i, 1) + ts::dynamic_slice<0>(w, i, 1);
      return ts::dynamic_update_slice<0>(carry, ts::sin(row), i + 1);
    };
    return ts::fori_loop(0, 2, step, x);
  }
};
TEST(ShardMapIndexing, DynamicSlices) {
  compare<DynamicSlices>({12, 2}, {3, 2}, "dynamic_slice");
  compare<DynamicUpdates>({12, 2}, {3, 2}, "dynamic_update_slice");
  compare<DynamicSlicesInALoop>({12, 2}, {3, 2}, "dynamic slices in a loop");
}

struct Rotary {  // [B, T, H, 4], [2]
  constexpr auto operator()(const auto& x, const auto& w) const {
    const auto turned = ts::rotary_embedding(x, index_of(x)) * ts::rotary_embedding(x, index_of(w));
    return turned + ts::rotary_embedding(ts::slice<1>(x, 1, 1), index_of(x)) * ts::sum(w);
  }
};
struct Segments {  // [K, 2], [3, 2]
  constexpr auto operator()(const auto& x, const auto& w) const {
    const auto sums = ts::segment_sum(x, indices_of(x), 3) * ts::maximum(ts::segment_max(w, indices_of(w), 3), -9.0);
    return x + ts::embedding(sums + ts::segment_sum(w, indices_of(w), 3), indices_of(x));
  }
};
struct Bags {
  constexpr auto operator()(const auto& x, const auto& w) const {
    const auto starts = ts::arange<std::int32_t>(2, x) * 2;
    return ts::embedding_bag(w, indices_of(x), starts) * ts::embedding_bag(x, indices_of(w), starts);
  }
};
struct BlockDiagonal {
  constexpr auto operator()(const auto& x, const auto& w) const {
    return ts::matmul(ts::block_diag(x, w),
                      ts::block_diag(ts::transpose<1, 0>(w), ts::matmul(ts::transpose<1, 0>(x), x)));
  }
};
struct RaggedProduct {  // [K, 2], [2, 2]
  constexpr auto operator()(const auto& x, const auto& w) const {
    const auto sizes = ts::cast<std::int32_t>(ts::bincount(indices_of(x), 3));
    const auto matrices = ts::stack<0>(w, ts::sin(w), w * ts::sum(x));
    return ts::ragged_dot(x, matrices, sizes) + ts::ragged_dot(x, ts::stack<0>(w, w * w, ts::sin(w)), sizes);
  }
};
TEST(ShardMapIndexing, OperandsThatDifferInWhatVaries) {
  compare<Rotary>({8, 2, 1, 4}, {2}, "rotary_embedding");
  compare<Segments>({12, 2}, {3, 2}, "segments");
  compare<Bags>({12, 2}, {3, 2}, "embedding_bag");
  compare<BlockDiagonal>({12, 2}, {3, 2}, "block_diag");
  compare<RaggedProduct>({12, 2}, {2, 2}, "ragged_dot");
}

}  // namespace
