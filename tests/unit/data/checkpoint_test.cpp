#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "../../support/scratch_folder.hpp"
#include "../base/expect_error.hpp"
#include <gtest/gtest.h>

#include <tessera/data/checkpoint/checkpoint_manager.hpp>
#include <tessera/data/checkpoint/load_checkpoint.hpp>
#include <tessera/data/checkpoint/save_checkpoint.hpp>
#include <tessera/data/safetensors.hpp>
#include <tessera/nn/cast_model.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/sharding_strategy.hpp>
#include <tessera/optim/optim.hpp>
#include <tessera/parallel/process_group.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/deferred_init.hpp>
#include <tessera/tensor/evaluate.hpp>
#include <tessera/tensor/sharded_tensor.hpp>

namespace {

namespace ts = tessera;
namespace nn = tessera::nn;
namespace fs = std::filesystem;
using tessera_test::expect_error;

class Checkpoint : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return (fs::path(folder_) / name).string(); }
  static std::string read(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  static void write(const fs::path& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }
  static std::vector<std::string> names_in(const fs::path& folder) {
    std::vector<std::string> names;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  ScratchFolder own_;
  // Where tests run in several processes, all use the folder of the first.
  std::string folder_ = ts::SessionProcesses().rendezvous("folder", own_.path.string())[0];
};

struct Model {
  nn::Linear<> up;
  nn::Linear<ts::bf16> down;
  ts::ShardedTensor<bool, 1> mask;
  ts::ShardedTensor<double, 0> temperature;
  ts::ShardedTensor<std::int32_t, 2> nothing;
  ts::Stack<nn::Linear<>> blocks;
  ts::Dim heads;
  ts::Scalar rate;
  static constexpr std::array field_names{"up", "down", "mask", "temperature", "nothing", "blocks", "heads", "rate"};
};
Model model(int seed, const nn::ShardingStrategy& strategy) {
  const auto [a, b, c] = ts::split<3>(ts::Key(static_cast<std::uint64_t>(seed)));
  std::vector<nn::Linear<>> blocks;
  for (std::uint64_t i = 0; i < 3; ++i) blocks.push_back(nn::linear(ts::fold_in(c, i), 5, 5, strategy));
  return {nn::linear(a, 7, 5, strategy, nn::Role::column),
          ts::cast_model<ts::bf16>(nn::linear(b, 5, 2, strategy, nn::Role::row)),
          ts::shard<bool>({true, seed % 2 == 0, true}, strategy.mesh),
          ts::full<double, 0>({}, seed / 8.0, strategy.mesh),
          ts::zeros<std::int32_t>({0, 4}, strategy.mesh),
          ts::Stack<nn::Linear<>>(blocks),
          ts::Dim(seed),
          ts::Scalar(seed / 4.0)};
}

struct Two {
  ts::ShardedTensor<float, 2> w;
  ts::ShardedTensor<double, 0> a;
  static constexpr std::array field_names{"w", "a"};
};
struct Other {
  nn::Linear<> head;
  static constexpr std::array field_names{"head"};
};
struct Twice {
  nn::Linear<> a, b;
  static constexpr std::array field_names{"head", "head"};
};

template <class A, class B> void expect_same(const A& a, const B& b) {
  const ts::StateDict first = ts::full_state_dict(a), second = ts::full_state_dict(b);
  ASSERT_EQ(first.size(), second.size());
  for (std::size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(first[i].name, second[i].name);
    EXPECT_EQ(first[i].dtype, second[i].dtype) << first[i].name;
    EXPECT_EQ(first[i].shape, second[i].shape) << first[i].name;
    EXPECT_EQ(first[i].bytes, second[i].bytes) << first[i].name;
  }
}

// Parts of three devices, uneven ones among them, of a model and of its optimizer.
TEST_F(Checkpoint, IsLoadedOnAnyMesh) {
  const ts::optim::AdamW config;
  const auto state_of = [&](int seed, const nn::ShardingStrategy& strategy) {
    const Model made = model(seed, strategy);
    return std::tuple(made, ts::optim::init_state(config, made));
  };
  const ts::Mesh three({{"data", 3}}), four({{"data", 2}, {"model", 2}});
  const auto saved = state_of(1, nn::fsdp(three));
  ts::save_checkpoint(saved, path("1"));
  for (const nn::ShardingStrategy& strategy :
       {nn::fsdp(three), nn::fsdp(ts::Mesh({{"data", 2}})), nn::single(ts::Mesh({{"data", 1}})),
        nn::fsdp_tensor_parallel(four), nn::data_parallel(three)}) {
    const auto fresh = state_of(2, strategy);
    const auto loaded = ts::load_checkpoint(fresh, path("1"));
    expect_same(loaded, saved);
    EXPECT_EQ(ts::sharding(std::get<0>(loaded).up.weight), ts::sharding(std::get<0>(fresh).up.weight));
    EXPECT_EQ(std::get<0>(loaded).heads.value(), 1);
    EXPECT_EQ(std::get<0>(loaded).rate.value(), 0.25);
    ts::save_checkpoint(loaded, path("2/"));  // in place of the one before
    expect_same(ts::load_checkpoint(state_of(3, nn::fsdp(three)), path("2")), saved);
  }
  EXPECT_FALSE(fs::exists(path("2.partial")));
  EXPECT_FALSE(fs::exists(path("2.replaced")));
}

// Of replicas one is written, of a whole tensor on each of two devices none twice.
TEST_F(Checkpoint, FilesArePyTorchsDistributedCheckpoint) {
  if (ts::process_count() > 1) GTEST_SKIP() << "files have other numbers";
  const ts::Mesh mesh({{"x", 2}, {"y", 2}});
  ts::save_checkpoint(Two{ts::shard<float>({{1, 2}, {3, 4}, {5, 6}}, mesh, {"x"}), ts::full<double, 0>({}, 1.0, mesh)},
                      path("two"));
  EXPECT_EQ(names_in(path("two")),
            (std::vector<std::string>{"manifest.json", "shard-00001-model-00001-of-00001.safetensors",
                                      "shard-00002-model-00001-of-00001.safetensors"}));
  const auto header_of = [&](const std::string& name) {
    const std::string bytes = read(fs::path(path("two")) / name);
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), 8);
    std::string header = bytes.substr(8, length);
    header.resize(header.find_last_not_of(' ') + 1);
    return header;
  };
  EXPECT_EQ(header_of("shard-00001-model-00001-of-00001.safetensors"),
            R"({"__metadata__":{"format":"pt","DCP_VERSION":"1.0","DCP_SHARDING_INFO":)"
            R"("{\"w\": {\"saved_offsets\": [0, 0]}, \"a\": {\"saved_offsets\": []}}"},)"
            R"("w":{"dtype":"F32","shape":[2,2],"data_offsets":[8,24]},)"
            R"("a":{"dtype":"F64","shape":[],"data_offsets":[0,8]}})");
  EXPECT_EQ(header_of("shard-00002-model-00001-of-00001.safetensors"),
            R"({"__metadata__":{"format":"pt","DCP_VERSION":"1.0","DCP_SHARDING_INFO":)"
            R"("{\"w\": {\"saved_offsets\": [2, 0]}}"},"w":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}})");
  const std::string manifest = read(fs::path(path("two")) / "manifest.json");
  EXPECT_NE(manifest.find("\"w\": \"f32[3,2]{x,-}\""), std::string::npos) << manifest;
  for (const std::string name :
       {"shard-00001-model-00001-of-00001.safetensors", "shard-00002-model-00001-of-00001.safetensors"})
    EXPECT_NE(manifest.find("\"" + name + "\": {\"bytes\": " +
                            std::to_string(fs::file_size(fs::path(path("two")) / name)) + ", \"checksums\": {\""),
              std::string::npos)
        << manifest;
}

struct Layer {
  nn::Linear<> body;
  static constexpr std::array field_names{"body"};
};
Layer layer(int seed, const nn::ShardingStrategy& strategy) {
  return {nn::linear(ts::Key(static_cast<std::uint64_t>(seed)), 6, 3, strategy)};
}

// Files of other programs: one file, several with an index, several of PyTorch.
TEST_F(Checkpoint, ReadsWhatOthersWrite) {
  const nn::ShardingStrategy two = nn::fsdp(ts::Mesh({{"data", 2}}));
  const Layer saved = layer(1, two), fresh = layer(2, two);
  const ts::StateDict dict = ts::full_state_dict(saved);
  ts::SessionProcesses processes;
  if (ts::process_index() == 0) {
    ts::save_file(dict, path("whole.safetensors"));
    fs::create_directory(path("index"));
    ts::save_file({dict[0]}, path("index/model-00001-of-00002.safetensors"));
    ts::save_file({dict[1]}, path("index/model-00002-of-00002.safetensors"));
    write(path("index/model.safetensors.index.json"),
          R"({"metadata": {"total_size": 84, "more": [1.5e3, {"a": null}, true, "x"]}, "weight_map": {
             "body.weight": "model-00001-of-00002.safetensors", "body.bias": "model-00002-of-00002.safetensors"}})");
    write(path("index/other.safetensors"), "not of the model");
  }
  (void)processes.rendezvous("written", "");
  expect_same(ts::load_checkpoint(fresh, path("whole.safetensors")), saved);
  expect_same(ts::load_checkpoint(fresh, path("index")), saved);
  ts::save_checkpoint(saved, path("pytorch"));
  if (ts::process_index() == 0) fs::remove(path("pytorch/manifest.json"));
  (void)processes.rendezvous("removed", "");
  expect_same(ts::load_checkpoint(fresh, path("pytorch")), saved);

  // Without memory for the model that is replaced.
  const auto without = ts::deferred_init([&] { return layer(3, two); });
  expect_same(ts::load_checkpoint(without, path("pytorch")), saved);
}

TEST_F(Checkpoint, RefusesWhatIsNotWhole) {
  if (ts::process_count() > 1) GTEST_SKIP() << "files have other numbers";
  const nn::ShardingStrategy two = nn::fsdp(ts::Mesh({{"data", 2}}));
  const Layer saved = layer(1, two);
  int next = 0;
  const auto refused = [&](const auto& spoil, ts::errc id, const std::string& why) {
    const std::string folder = path(std::to_string(next++));
    ts::save_checkpoint(saved, folder);
    spoil(fs::path(folder));
    expect_error(
        id, [&] { (void)ts::load_checkpoint(saved, folder); }, why, "checkpoint_test.cpp");
  };
  const std::string second = "shard-00002-model-00001-of-00001.safetensors";
  const auto spoil_last_byte = [&](const fs::path& folder) {
    std::string bytes = read(folder / second);
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    write(folder / second, bytes);
  };
  refused(spoil_last_byte, ts::errc::file, "body.weight: its bytes do not have the checksum of the manifest");
  refused([&](const fs::path& folder) { fs::resize_file(folder / second, 100); }, ts::errc::file,
          second + " has 100 bytes, in its manifest ");
  refused([&](const fs::path& folder) { fs::remove(folder / second); }, ts::errc::file, "can't be opened");
  refused([&](const fs::path& folder) { fs::remove_all(folder); }, ts::errc::file, "there is no such file or folder");
  refused(
      [&](const fs::path& folder) {
        fs::remove(folder / second);
        fs::remove(folder / "manifest.json");
      },
      ts::errc::shape_mismatch, "body.weight: the model has f32[6,3], the checkpoint f32[3,3]");
  refused(
      [&](const fs::path& folder) {
        fs::remove(folder / "shard-00001-model-00001-of-00001.safetensors");
        fs::remove(folder / "manifest.json");
      },
      ts::errc::file, "body.weight: a part is missing: 9 of the elements of f32[6,3] are there");
  refused(
      [&](const fs::path& folder) {
        fs::copy(folder / second, folder / "copy.safetensors");
        fs::remove(folder / "manifest.json");
      },
      ts::errc::file, "body.weight: two parts have its elements [3:6,0:3]");
  refused(
      [&](const fs::path& folder) {
        for (const std::string& name : names_in(folder)) fs::remove(folder / name);
      },
      ts::errc::file, "has neither a manifest.json nor safetensors files");
  refused([&](const fs::path& folder) { write(folder / "manifest.json", "{\"format\": \"x\"}"); }, ts::errc::file,
          "has the format 'x' instead of 'tessera checkpoint 1'");
  refused([&](const fs::path& folder) { write(folder / "manifest.json", "{\"format\""); }, ts::errc::file,
          "manifest.json: is not the expected JSON: : is missing");
  refused(
      [&](const fs::path& folder) {
        write(folder / "manifest.json", R"({"format": "tessera checkpoint 1", "files": {"../x": {"bytes": 1}}})");
      },
      ts::errc::file, "names the file '../x', which is not in its folder");
  refused(
      [&](const fs::path& folder) {
        fs::remove(folder / "manifest.json");
        write(folder / "model.safetensors.index.json", R"({"weight_map": {"a": "/etc/passwd"}})");
      },
      ts::errc::file, "names the file '/etc/passwd', which is not in its folder");

  const std::string folder = path("unverified");
  ts::save_checkpoint(saved, folder);
  spoil_last_byte(folder);
  const Layer loaded = ts::load_checkpoint(saved, folder, {.verify = false});
  EXPECT_NE(ts::to_host(loaded.body.weight), ts::to_host(saved.body.weight));
}

TEST_F(Checkpoint, NamesMustBeThoseOfTheModel) {
  const nn::ShardingStrategy two = nn::fsdp(ts::Mesh({{"data", 2}}));
  const Other other{nn::linear(ts::Key(2), 6, 3, two)};
  ts::save_checkpoint(layer(1, two), path("1"));
  expect_error(
      ts::errc::structure, [&] { (void)ts::load_checkpoint(other, path("1")); },
      "[load_checkpoint] names: the checkpoint lacks head.weight, head.bias; the model lacks body.weight, body.bias");
  expect_error(
      ts::errc::structure,
      [&] {
        ts::save_checkpoint(std::tuple(), path("2"));
        (void)ts::load_checkpoint(other, path("2"), {.strict = false});
        (void)ts::load_checkpoint(other, path("1"), {.strict = false});
      },
      "the model has no name of the checkpoint, body.weight, ...; the checkpoint lacks head.weight");
  expect_error(
      ts::errc::structure,
      [&] {
        ts::save_checkpoint(Twice{other.head, other.head}, path("3"));
      },
      "head.bias: two tensors have this name");
  EXPECT_FALSE(fs::exists(path("3")));
}

// What can't be written leaves the folder that was there; a save that was killed between its two renames is undone.
TEST_F(Checkpoint, AnErrorLeavesTheFolderBefore) {
  const nn::ShardingStrategy two = nn::fsdp(ts::Mesh({{"data", 2}}));
  const Layer saved = layer(1, two);
  ts::save_checkpoint(saved, path("1"));
  ts::SessionProcesses processes;
  if (ts::process_index() == 0) write(path("file"), "");
  (void)processes.rendezvous("written", "");
  expect_error(
      ts::errc::file, [&] { ts::save_checkpoint(saved, path("file/1")); }, "file/1.partial: can't be made",
      "checkpoint_test.cpp");
  if (ts::process_index() == 0) {
    fs::rename(path("1"), path("1.replaced"));
    fs::create_directory(path("1.partial"));
    write(path("1.partial/shard-00009-model-00001-of-00001.safetensors"), "");
  }
  (void)processes.rendezvous("renamed", "");
  ts::save_checkpoint(layer(2, two), path("1"));
  expect_same(ts::load_checkpoint(saved, path("1")), layer(2, two));
  EXPECT_FALSE(fs::exists(path("1.replaced")));
}

constexpr auto doubled = ts::compile([](auto model) {
  model.body.weight = 2.0f * model.body.weight;
  return model;
});

// A program that updates a model in place while it is written changes nothing in the file.
TEST_F(Checkpoint, ManagerKeepsWhatWasSaved) {
  const nn::ShardingStrategy two = nn::fsdp(ts::Mesh({{"data", 2}}));
  ts::CheckpointManager checkpoints(path("run"), {.save_interval_steps = 2, .max_to_keep = 3});
  EXPECT_EQ(checkpoints.latest_step(), std::nullopt);
  expect_error(
      ts::errc::file, [&] { (void)checkpoints.restore(layer(1, two)); }, "there is no checkpoint",
      "checkpoint_test.cpp");
  Layer trained = layer(1, two);
  std::vector<std::vector<float>> weights{{}};
  for (std::int64_t step = 1; step <= 11; ++step) {
    trained = doubled(std::move(trained));
    weights.push_back(ts::to_host(trained.body.weight));
    EXPECT_EQ(checkpoints.save(step, trained), step % 2 == 0);
  }
  EXPECT_EQ(checkpoints.all_steps(), (std::vector<std::int64_t>{6, 8, 10}));
  EXPECT_EQ(checkpoints.latest_step(), 10);
  for (const std::int64_t step : {6, 8, 10})
    EXPECT_EQ(ts::to_host(checkpoints.restore(step, layer(2, two)).body.weight),
              weights[static_cast<std::size_t>(step)]);
  EXPECT_EQ(ts::to_host(checkpoints.restore(layer(2, two)).body.weight), weights[10]);
  expect_error(
      ts::errc::file, [&] { (void)checkpoints.save(10, trained); }, "step 10 is saved already", "checkpoint_test.cpp");

  // Another job goes on, without a thread.
  if (ts::process_index() == 0) {
    fs::create_directory(path("run/12.partial"));
    fs::create_directory(path("run/notes"));
  }
  ts::CheckpointManager second(path("run"), {.max_to_keep = 2, .enable_async_checkpointing = false});
  EXPECT_EQ(second.latest_step(), 10);
  EXPECT_TRUE(second.save(11, trained));
  EXPECT_EQ(second.all_steps(), (std::vector<std::int64_t>{10, 11}));
}

TEST_F(Checkpoint, ManagerThrowsWhatAThreadCouldNotWrite) {
  if (ts::process_count() > 1) GTEST_SKIP() << "files have other numbers";
  const nn::ShardingStrategy two = nn::fsdp(ts::Mesh({{"data", 2}}));
  ts::CheckpointManager checkpoints(path("run"));
  // A folder in the place of the manifest, which the rename at the end can't replace.
  Layer large = layer(1, two);
  EXPECT_TRUE(checkpoints.save(1, large));
  checkpoints.wait_until_finished();
  fs::remove_all(path("run"));
  write(path("run"), "a file");
  expect_error(
      ts::errc::file, [&] { (void)checkpoints.save(2, large); }, "can't be made", "checkpoint_test.cpp");
  fs::remove(path("run"));
  EXPECT_TRUE(checkpoints.save(3, large));
  EXPECT_EQ(checkpoints.all_steps(), (std::vector<std::int64_t>{3}));
  for (const auto& options :
       {ts::CheckpointManagerOptions{.save_interval_steps = 0}, ts::CheckpointManagerOptions{.max_to_keep = -1}})
    expect_error(
        ts::errc::option, [&] { ts::CheckpointManager(path("other"), options); }, "checkpoint_test.cpp");
}

}  // namespace
