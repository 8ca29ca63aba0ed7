// expect: with_sharding_names_an_axis_that_the_mesh_lacks.*"modle".*14
#include <tessera/ops/constraint.hpp>
#include <tessera/partition/plan/static_plan.hpp>

namespace ts = tessera;
#ifdef TESSERA_TWIN
constexpr ts::PartitionSpec layout{"data", "model"};
#else
constexpr ts::PartitionSpec layout{"data", "modle"};
#endif

constexpr auto layer = [](auto x) {
  const auto y = x + x;
  return ts::with_sharding(y, layout);
};
static_assert(ts::plan(layer, ts::Mesh({{"data", 2}, {"model", 4}}), ts::abstract<float>({8, 8})).implicit_count() ==
              0);
