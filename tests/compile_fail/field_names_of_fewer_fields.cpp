// expect: field_names of a struct must have a name for each field of the struct
#include <array>

#include <tessera/graph/trace/named_leaves.hpp>
#include <tessera/ops/ops.hpp>

namespace ts = tessera;

struct Model {
  ts::ShardedTensor<float, 2> up, down;
#ifdef TESSERA_TWIN
  static constexpr std::array field_names{"up", "down"};
#else
  static constexpr std::array field_names{"up"};
#endif
};

void visit(const Model& model) {
  ts::detail::for_each_named_leaf(model, ts::detail::VisitLayers::each, [](auto, const auto&, int) {});
}
