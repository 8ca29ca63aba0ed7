// Shardings of HLO: parse_hlo_sharding.
#include "fuzz.hpp"

#include <tessera/mesh/sharding_string.hpp>

namespace ts = tessera;
using fuzz::expect;

namespace {

void check(const ts::HloSharding& sharding, const std::string& input) {
  // Equality, hashes and the first form spell out every device.
  if (sharding.devices.size() > 4096) return;
  for (const ts::HloForm form : {ts::HloForm::iota, ts::HloForm::v1}) {
    const std::string text = sharding.text(form);
    const ts::HloSharding again = ts::parse_hlo_sharding(text);
    expect(again == sharding && again.hash() == sharding.hash() && again.type() == sharding.type() &&
               again.text(form) == text,
           "a sharding reads back as itself", input, text);
  }
  const ts::HloSharding canonical = sharding.canonical();
  expect(canonical == sharding && canonical.canonical().text() == canonical.text(),
         "the canonical form is equal, and its own canonical form", input, canonical.text());
  if (sharding.kind != ts::HloSharding::Kind::tiled || canonical.kind != ts::HloSharding::Kind::tiled) return;
  ts::Shape shape;
  for (std::size_t dim = 0; dim < sharding.rank(); ++dim) shape.push_back(7);
  for (int device = 0; device < 4 && device < sharding.devices.size(); ++device)
    expect(ts::device_box(shape, sharding, device) == ts::device_box(shape, canonical, device),
           "the canonical form gives each device the same box", input, canonical.text());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  fuzz::read_and_check([&] { return ts::parse_hlo_sharding(input); },
                       [&](const ts::HloSharding& sharding) { check(sharding, input); });
  return 0;
}
