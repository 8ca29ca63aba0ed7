// Meshes: parse_mesh, and the Shardy form of what it reads.
#include "fuzz.hpp"

#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/shardy.hpp>

namespace ts = tessera;
using fuzz::expect;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  const auto check_shardy = [&](const ts::Mesh& mesh) {
    const std::string text = ts::shardy_mesh_text(mesh);
    const ts::Mesh again = ts::parse_shardy_mesh(text);
    expect(ts::shardy_mesh_text(again) == text, "a mesh of Shardy reads back as itself", input, text);
  };
  fuzz::read_and_check([&] { return ts::parse_mesh(input); },
                       [&](const ts::Mesh& mesh) {
                         if (mesh.size() > 4096) return;
                         const std::string text = mesh.text();
                         const ts::Mesh again = ts::parse_mesh(text);
                         expect(again == mesh && again.hash() == mesh.hash() && again.text() == text,
                                "a mesh reads back as itself", input, text);
                         for (int device = 0; device < 8 && device < mesh.size(); ++device)
                           expect(mesh.device_at(mesh.coordinates_of(device)) == device,
                                  "a device is at its coordinates", input, text);
                         check_shardy(mesh);
                       });
  fuzz::read_and_check([&] { return ts::parse_shardy_mesh(input); },
                       [&](const ts::Mesh& mesh) {
                         if (mesh.size() <= 4096) check_shardy(mesh);
                       });
  return 0;
}
