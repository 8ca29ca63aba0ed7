// expect: 'Element
#include <string>

#include <tessera/base/dtype.hpp>

#ifdef TESSERA_TWIN
constexpr auto type = tessera::dtype_v<float>;
#else
constexpr auto type = tessera::dtype_v<std::string>;
#endif

int main() { return static_cast<int>(type); }
