// expect: ts::abstract of a structure takes it by its value only if it has no tensors, such as hyper-parameters
// lines: 10
#include <tessera/partition/plan/static_plan.hpp>

namespace ts = tessera;

#ifdef TESSERA_TWIN
struct Config {
  ts::Scalar rate = 0.1;
  ts::Dim size = 3;
};
constexpr auto made = ts::abstract(Config{});
static_assert(sizeof(made.leaves) / sizeof(made.leaves[0]) == 2 && made.leaves[1].number.integer() == 3);
#else
struct Model {
  ts::ShardedTensor<float, 2> weight;
};
const auto made = ts::abstract(Model{});
#endif
