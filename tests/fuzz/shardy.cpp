// Shardings of Shardy on meshes whose axes are whole and in parts: parse_shardy and shardy_mesh.
#include "fuzz.hpp"

#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/named_sub_axis.hpp>
#include <tessera/mesh/shardy.hpp>

namespace ts = tessera;
using fuzz::expect;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  static const ts::Mesh meshes[] = {ts::Mesh({{"x", 2}, {"y", 3}, {"z", 4}}),
                                    ts::split_axis(ts::Mesh({{"x", 8}, {"y", 3}}), "x", {2, 4}),
                                    ts::split_axis(ts::Mesh({{"x", 8}, {"y", 3}}), "x", {2, 2, 2})};
  const auto check_on = [&](const ts::Mesh& mesh, const ts::ShardySharding& sharding) {
    const std::string text = ts::shardy_text(sharding, mesh);
    const ts::ShardySharding again = ts::parse_shardy(text, mesh);
    expect(again == sharding && ts::shardy_text(again, mesh) == text, "a sharding reads back as itself", input, text);
  };
  for (const ts::Mesh& mesh : meshes) {
    fuzz::read_and_check([&] { return ts::parse_shardy(input, mesh); },
                         [&](const ts::ShardySharding& sharding) { check_on(mesh, sharding); });
    // The mesh that has the parts that a text names reads that text, unless it names an axis that there is none of.
    try {
      const ts::Mesh parts = ts::shardy_mesh(mesh, {input});
      expect(parts.size() == mesh.size(), "a mesh of parts has as many devices", input, parts.text());
      fuzz::read_and_check([&] { return ts::parse_shardy(input, parts); },
                           [&](const ts::ShardySharding& sharding) { check_on(parts, sharding); });
    } catch (const ts::error&) {
    }
  }
  return 0;
}
