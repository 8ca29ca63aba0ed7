#ifndef TESSERA_TESTS_UNIT_PROGRAMS_SHRINKER_HPP
#define TESSERA_TESTS_UNIT_PROGRAMS_SHRINKER_HPP

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "random_case.hpp"

namespace random_programs {

/// A failing program, made as small as it stays failing: each node in turn becomes the only result, then an argument
/// that has the node's value, and arguments are replicated one after the other.
class Shrinker {
 public:
  /// `defect_of` says what is wrong with a run of a program; empty: nothing.
  Shrinker(Case failing, std::function<std::string(const Case&)> defect_of)
      : best_(std::move(failing)), defect_of_(std::move(defect_of)) {}

  Case shrunk() {
    keep_one_result();
    for (int round = 0; round < 3; ++round) {
      const int before = best_.module.main().size();
      cut();
      keep_one_result();
      if (best_.module.main().size() == before) break;
    }
    replicate();
    return best_;
  }

 private:
  Case best_;
  std::function<std::string(const Case&)> defect_of_;

  bool fails(const Case& c) const {
    try {
      const std::string found = defect_of_(c);
      return !found.empty() && found.find("the program is none") == std::string::npos;
    } catch (const std::exception&) {
      return false;
    }
  }
  bool take(Case candidate) {
    if (!fails(candidate)) return false;
    best_ = std::move(candidate);
    return true;
  }
  void keep_one_result() {
    const ts::Graph& graph = best_.module.main();
    const int size = graph.size();
    for (int id = 0; id < size; ++id) {
      const Node& node = best_.module.main()[id];
      if (node.is_repeat() || (node.rank == 0 && !node.is_projection() &&
                               ts::host_scalars(best_.module.main().view())[static_cast<std::size_t>(id)]))
        continue;
      Case candidate = best_;
      candidate.module.main().outputs = {id};
      if (take(without_dead_nodes(std::move(candidate)))) return;
    }
  }
  /// Only what the results need, and only the arguments that are read.
  static Case without_dead_nodes(Case c) {
    const ts::Graph old = c.module.main();
    std::vector<bool> needed(static_cast<std::size_t>(old.size()), false);
    for (const std::int32_t id : old.outputs) needed[static_cast<std::size_t>(id)] = true;
    for (int id = old.size() - 1; id >= 0; --id)
      for (int i = 0; needed[static_cast<std::size_t>(id)] && i < old[id].arity; ++i)
        if (old.operand(id, i) >= 0) needed[static_cast<std::size_t>(old.operand(id, i))] = true;
    return rebuilt(std::move(c), needed, -1, {});
  }
  /// The nodes that are needed; node `argument` is an argument that has this value.
  static Case rebuilt(Case c, const std::vector<bool>& needed, int argument, const Array& value) {
    const ts::Graph old = c.module.main();
    ts::Graph made;
    std::vector<std::int32_t> to(static_cast<std::size_t>(old.size()), -1);
    std::vector<Array> values;
    std::vector<ts::PartitionSpec> specs;
    for (int id = 0; id < old.size(); ++id) {
      if (!needed[static_cast<std::size_t>(id)]) continue;
      Node node = old[id];
      std::vector<std::int32_t> operands;
      if (id == argument) {
        node = ts::argument_node(static_cast<int>(values.size()), node.dtype, node.rank, node.singletons);
        values.push_back(value);
        specs.push_back({});
      } else {
        for (int i = 0; i < node.arity; ++i)
          operands.push_back(old.operand(id, i) < 0 ? -1 : to[static_cast<std::size_t>(old.operand(id, i))]);
        if (node.is_argument() || node.is_dim() || node.is_scalar()) {
          values.push_back(c.values[static_cast<std::size_t>(node.index())]);
          specs.push_back(c.specs[static_cast<std::size_t>(node.index())]);
          node.value = static_cast<double>(values.size() - 1);
        }
      }
      to[static_cast<std::size_t>(id)] = made.add(node, operands.data(), static_cast<int>(operands.size()));
    }
    for (const std::int32_t id : old.outputs) made.outputs.push_back(to[static_cast<std::size_t>(id)]);
    c.module.main() = std::move(made);
    c.values = std::move(values);
    c.specs = std::move(specs);
    return c;
  }
  void cut() {
    for (int id = best_.module.main().size() - 2; id >= 0; --id) {
      if (id >= best_.module.main().size() - 1) continue;
      const Node node = best_.module.main()[id];
      const auto host = ts::host_scalars(best_.module.main().view());
      if (node.is_argument() || node.is_repeat() || host[static_cast<std::size_t>(id)] != 0) continue;
      Case all = best_;
      all.module.main().outputs = {id};
      std::vector<Array> value;
      try {
        value = run(Program(all.module, static_cast<int>(all.values.size())).view(), all.values, draw_philox);
      } catch (const std::exception&) {
        continue;
      }
      // An argument has values of its type; others would differ from the argument itself.
      with_type(node.dtype, [&]<class T>() {
        for (double& v : value[0].data) v = static_cast<double>(static_cast<T>(v));
      });
      std::vector<bool> everything(static_cast<std::size_t>(best_.module.main().size()), true);
      take(without_dead_nodes(rebuilt(best_, everything, id, value[0])));
    }
  }
  void replicate() {
    for (std::size_t i = 0; i < best_.specs.size(); ++i) {
      Case candidate = best_;
      candidate.specs[i] = {};
      take(std::move(candidate));
    }
  }
};

}  // namespace random_programs

#endif
