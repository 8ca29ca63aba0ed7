#ifndef TESSERA_TESTS_UNIT_PROGRAMS_RANDOM_CASE_HPP
#define TESSERA_TESTS_UNIT_PROGRAMS_RANDOM_CASE_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "../../support/random_program.hpp"
#include "../../support/random_stencil.hpp"

#include <tessera/graph/ir/print.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/partition_spec.hpp>

namespace random_programs {

namespace ts = tessera;
using namespace oracle;

/// A program and everything that it runs on.
struct Case {
  ts::Module module;
  std::vector<Array> values;
  std::vector<std::size_t> stacked;
  ts::Mesh mesh;
  std::vector<ts::PartitionSpec> specs;  ///< of the arguments
  bool held = false;                     ///< arguments are not given up
  bool rounds = false;                   ///< to bf16
};

/// Up to `most` devices on up to three axes, of even and odd sizes.
inline ts::Mesh random_mesh(std::mt19937& random, int most) {
  const char* names[] = {"x", "y", "z"};
  ts::AxisTable axes;
  int devices = 1;
  for (int axis = 0, rank = static_cast<int>(random() % 4); axis < rank; ++axis) {
    const int sizes[] = {2, 2, 3, 4, 4, 1};
    const int size = std::min(sizes[random() % 6], most / devices);
    axes.push_back({names[axis], size});
    devices *= size;
  }
  std::vector<std::int32_t> order;
  if (random() % 3 == 0) {
    for (int device = 0; device < devices; ++device) order.push_back(device);
    std::shuffle(order.begin(), order.end(), random);
  }
  return ts::Mesh(axes, ts::DeviceOrder(order.data(), order.size()));
}

/// Gives each axis, or each half of an axis of four, to a random dim or to none.
inline ts::PartitionSpec random_spec(std::mt19937& random, const ts::Mesh& mesh, int rank) {
  std::vector<std::string> parts;
  for (const ts::Axis& axis : mesh.axes()) {
    const std::string name(axis.name.view());
    if (axis.size == 4 && random() % 4 == 0) {
      parts.push_back(name + ":(1)2");
      if (random() % 2 == 0) parts.push_back(name + ":(2)2");
    } else {
      parts.push_back(name);
    }
  }
  std::shuffle(parts.begin(), parts.end(), random);
  ts::PartitionSpec spec;
  for (int d = 0; d < rank; ++d) spec.entries.push_back(ts::SpecEntry());
  for (const std::string& part : parts)
    if (const auto d = static_cast<std::size_t>(random() % static_cast<unsigned>(rank + 1));
        d < static_cast<std::size_t>(rank) && spec.entries[d].axes.size() < ts::max_axes_per_dim)
      spec.entries[d].axes.push_back(ts::Name(part));
  // Parts of one axis in one dim are written major first.
  for (ts::SpecEntry& entry : spec.entries) {
    std::vector<ts::Name> names(entry.axes.begin(), entry.axes.end());
    std::stable_sort(names.begin(), names.end(),
                     [](const ts::Name& a, const ts::Name& b) { return a.view() < b.view(); });
    if (std::any_of(names.begin(), names.end(), [](const ts::Name& n) { return n.view().find(':') != n.view().npos; }))
      for (std::size_t i = 0; i < names.size(); ++i) entry.axes[i] = names[i];
  }
  return random() % 6 == 0 ? spec.gathered_on_use() : spec;
}

inline const Node& argument_of(const Case& c, std::size_t index) {
  for (const Node& node : c.module.main().nodes)
    if ((node.is_argument() || node.is_dim() || node.is_scalar()) && node.index() == static_cast<int>(index))
      return node;
  throw std::logic_error("an argument that the program lacks");
}

/// `Made`: RandomProgram or RandomStencil.
template <class Made = RandomProgram>
Case random_case(unsigned seed, bool gradients, bool smooth, int most_devices = 16) {
  std::mt19937 random(seed);
  Case c;
  c.mesh = random_mesh(random, most_devices);
  RandomProgramOptions options;
  options.every_operation = true;
  options.smooth = smooth;
  options.type = smooth || random() % 3 > 0 ? ts::DType::f64 : ts::DType::f32;
  options.spec = [&](int rank) { return random_spec(random, c.mesh, rank); };
  Made made(seed, 3 + static_cast<int>(random() % 10), options);
  c.module = made.finish(gradients, false).module;
  c.values = made.arguments;
  c.stacked = made.stacked_arguments;
  c.rounds = made.rounds;
  c.held = random() % 2 == 0;
  for (std::size_t i = 0; i < c.values.size(); ++i) {
    const bool stacked = std::find(c.stacked.begin(), c.stacked.end(), i) != c.stacked.end();
    c.specs.push_back(random_spec(random, c.mesh, static_cast<int>(c.values[i].shape.size()) - (stacked ? 1 : 0)));
  }
  for (std::size_t i = 0; i < c.values.size(); ++i)
    if (argument_of(c, i).dtype == ts::DType::f32)
      for (double& v : c.values[i].data) v = static_cast<double>(static_cast<float>(v));
  return c;
}

inline std::string text_of_case(const Case& c) {
  std::string text = "on " + c.mesh.text() + (c.held ? ", arguments held" : "") + "\n";
  for (std::size_t i = 0; i < c.values.size(); ++i)
    text += ts::concat_text("  argument ", i, ": ", ts::shape_text(argument_of(c, i).dtype, c.values[i].shape),
                            c.specs[i].text(), "\n");
  return text + ts::text_of(Program(c.module, static_cast<int>(c.values.size())).view());
}

}  // namespace random_programs

#endif
