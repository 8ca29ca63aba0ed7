// Partition specs: parse_spec, and the sharding that a spec is on a mesh.
#include "fuzz.hpp"

#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/partition_spec.hpp>
#include <tessera/mesh/sharding.hpp>

namespace ts = tessera;
using fuzz::expect;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  static const ts::Mesh meshes[] = {ts::Mesh({{"a", 2}, {"b", 3}, {"c", 1}}), ts::Mesh({{"a", 12}, {"b", 8}})};
  fuzz::read_and_check([&] { return ts::parse_spec(input); },
                       [&](const ts::PartitionSpec& spec) {
                         const std::string text = spec.text();
                         const ts::PartitionSpec again = ts::parse_spec(text);
                         expect(again == spec && again.text() == text, "a spec reads back as itself", input, text);
                         for (const ts::Mesh& mesh : meshes)
                           fuzz::read_and_check([&] { return ts::resolve(spec, mesh, 8); },
                                                [&](const ts::Sharding& sharding) {
                                                  const ts::PartitionSpec own = ts::spec_of(sharding, mesh);
                                                  expect(ts::resolve(own, mesh, 8) == sharding,
                                                         "the spec of a sharding is that sharding", input, own.text());
                                                });
                       });
  return 0;
}
