// expect: no match(ing function|ing constructor)
// lines: 8
#include <tessera/mesh/partition_spec.hpp>

namespace ts = tessera;

#ifdef TESSERA_TWIN
const ts::PartitionSpec spec({"a", {"b", "c", "d"}});
#else
const ts::PartitionSpec spec({"a", {"b", {"c", "d"}}});
#endif
