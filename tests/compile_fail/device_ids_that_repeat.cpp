// expect: is given twice
#include <tessera/mesh/mesh.hpp>

namespace ts = tessera;

#ifdef TESSERA_TWIN
constexpr ts::Mesh mesh({{"x", 4}}, {0, 2, 1, 3});
#else
constexpr ts::Mesh mesh({{"x", 4}}, {0, 1, 1, 2});
#endif
static_assert(mesh.size() == 4);
