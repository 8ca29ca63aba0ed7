// expect: axis_of_spec_is_not_in_the_mesh
#include <tessera/mesh/sharding.hpp>

namespace ts = tessera;

constexpr ts::Mesh mesh({{"data", 2}, {"model", 4}});
#ifdef TESSERA_TWIN
constexpr ts::Sharding sharding = ts::resolve({"data", "model"}, mesh, 2);
#else
constexpr ts::Sharding sharding = ts::resolve({"data", "modle"}, mesh, 2);
#endif
static_assert(sharding.rank == 2);
