// expect first: add_lora finds no nn::Linear in the template arguments of this model
#include <tessera/nn/lora.hpp>

namespace ts = tessera;

struct Net {
  ts::nn::Linear<> up;
};
struct LoraNet {
  ts::nn::LoraLinear<> up;
};
inline auto adapted(const Net& net) {
#ifdef TESSERA_TWIN
  return ts::nn::add_lora<LoraNet>(net, ts::Key(1));
#else
  return ts::nn::add_lora(net, ts::Key(1));
#endif
}
