// expect: a loop takes batches out of a DataLoader, and so changes its position; declare the loader without const
#include <cstdint>
#include <vector>

#include <tessera/data/data.hpp>

namespace ts = tessera;

#ifdef TESSERA_TWIN
inline void visit(auto& loader) {
#else
inline void visit(const auto& loader) {
#endif
  for (const auto& batch : loader) (void)batch;
}
inline void run(const ts::Mesh& mesh, const std::vector<float>& values) {
  auto loader = ts::data::data_loader(mesh, {.batch_size = 2}, ts::data::array(values));
  visit(loader);
}
