// expect: is negative; axes count from 0
#include <tessera/mesh/partition_spec.hpp>

namespace ts = tessera;

#ifdef TESSERA_TWIN
constexpr ts::PartitionSpec spec({"data", 1});
#else
constexpr ts::PartitionSpec spec({"data", -1});
#endif
static_assert(spec.entries.size() == 2);
