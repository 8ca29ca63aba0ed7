// expect: an entry of a spec is ts::none, the name or the index of an axis, or a list of axes
#include <tessera/mesh/partition_spec.hpp>

namespace ts = tessera;

#ifdef TESSERA_TWIN
const ts::PartitionSpec spec({"data", 1});
#else
const ts::PartitionSpec spec({"data", 1.5});
#endif
