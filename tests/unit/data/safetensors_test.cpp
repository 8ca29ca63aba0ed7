#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "../../support/scratch_folder.hpp"
#include "../base/expect_error.hpp"
#include <gtest/gtest.h>

#include <tessera/data/safetensors.hpp>
#include <tessera/nn/cast_model.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/normalization/layer_norm.hpp>
#include <tessera/nn/sharding_strategy.hpp>
#include <tessera/optim/optim.hpp>
#include <tessera/tensor/evaluate.hpp>

namespace {

namespace ts = tessera;
namespace nn = tessera::nn;
using namespace std::string_literals;
using tessera_test::expect_error;

class Safetensors : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_.path / name).string(); }
  std::string write(const std::string& bytes) {
    const std::string made = path("file" + std::to_string(next_++));
    std::ofstream(made, std::ios::binary) << bytes;
    return made;
  }
  static std::string read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  static std::string file(const std::string& header, const std::string& elements) {
    std::string length(8, '\0');
    const std::uint64_t n = header.size();
    std::memcpy(length.data(), &n, 8);
    return length + header + elements;
  }

 private:
  ScratchFolder folder_;
  int next_ = 0;
};

struct Model {
  nn::Linear<> up;
  nn::Linear<ts::bf16> down;
  ts::ShardedTensor<bool, 1> mask;
  ts::Dim heads;
  ts::Scalar rate;
  static constexpr std::array field_names{"up", "down", "mask", "heads", "rate"};
};
Model model(int seed, const nn::ShardingStrategy& strategy) {
  const auto [a, b] = ts::split<2>(ts::Key(static_cast<std::uint64_t>(seed)));
  return {nn::linear(a, 3, 5, strategy, nn::Role::column),
          ts::cast_model<ts::bf16>(nn::linear(b, 5, 2, strategy, nn::Role::row)),
          ts::shard<bool>({true, false, true}, strategy.mesh), ts::Dim(seed), ts::Scalar(seed / 4.0)};
}

struct Two {
  ts::ShardedTensor<float, 2> b;
  ts::ShardedTensor<double, 0> a;
  static constexpr std::array field_names{"b", "a"};
};

struct Old {
  nn::Linear<> body, head;
  static constexpr std::array field_names{"body", "head"};
};

struct New {
  nn::Linear<> body, classes;
  static constexpr std::array field_names{"body", "classes"};
};

void expect_same(const ts::StateDict& a, const ts::StateDict& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].name, b[i].name);
    EXPECT_EQ(a[i].dtype, b[i].dtype) << a[i].name;
    EXPECT_EQ(a[i].shape, b[i].shape) << a[i].name;
    EXPECT_EQ(a[i].box, b[i].box) << a[i].name;
    EXPECT_EQ(a[i].bytes, b[i].bytes) << a[i].name;
  }
}

// A model of uneven shards and the state of its optimizer, saved on three devices, are loaded on two; so are parts.
TEST_F(Safetensors, StatesAreSavedAndLoadedOnAnotherMesh) {
  const nn::ShardingStrategy three = nn::fsdp(ts::Mesh({{"data", 3}})), two = nn::fsdp(ts::Mesh({{"data", 2}}));
  const ts::optim::AdamW config;
  const auto saved = std::pair(model(1, three), ts::optim::init_state(config, model(2, three)));
  const ts::StateDict dict = ts::full_state_dict(saved);
  ts::save_file(dict, path("whole"));
  expect_same(ts::load_file(path("whole")), dict);
  ts::save_file(ts::sharded_state_dict(saved), path("parts"));
  EXPECT_EQ(read(path("parts")), read(path("whole")));

  const auto fresh = std::pair(model(3, two), ts::optim::init_state(config, model(4, two)));
  const auto loaded = ts::load_state_dict(fresh, ts::load_file(path("whole")));
  expect_same(ts::full_state_dict(loaded), dict);
  EXPECT_EQ(ts::sharding(loaded.first.up.weight), ts::sharding(fresh.first.up.weight));
  EXPECT_EQ(loaded.first.heads.value(), 1);
  EXPECT_EQ(loaded.first.rate.value(), 0.25);
}

// As the format says: 8 bytes with the length of the header, JSON, elements. Elements of 8 bytes come first.
TEST_F(Safetensors, BytesOfAFile) {
  const ts::Mesh mesh({{"x", 2}});
  const Two two{ts::shard<float>({{1, 2}, {-1, 0.5f}}, mesh, {"x"}), ts::full<double, 0>({}, 1.0, mesh)};
  ts::save_file(ts::full_state_dict(two), path("two"));
  const std::string header =
      R"({"b":{"dtype":"F32","shape":[2,2],"data_offsets":[8,24]},"a":{"dtype":"F64","shape":[],"data_offsets":[0,8]}})";
  const std::string elements = "\0\0\0\0\0\0\xf0\x3f\0\0\x80\x3f\0\0\0\x40\0\0\x80\xbf\0\0\0\x3f"s;
  std::string padded = header;
  padded.resize((header.size() + 7) / 8 * 8, ' ');
  EXPECT_EQ(read(path("two")), file(padded, elements));
  EXPECT_FALSE(std::filesystem::exists(path("two.partial")));
  // Written by others: spaces, another order, metadata, escapes.
  const ts::StateDict read = ts::load_file(
      write(file(" {\"__metadata__\": {\"format\": \"pt\\n\"},\r\n\t\"w\\u00e4\\\"\": {\"shape\": [ 2 , 1 ], "
                 "\"data_offsets\": [0, 4], "
                 "\"dtype\": \"BF16\"}, \"none\": {\"dtype\": \"I64\", \"shape\": [0, 3], \"data_offsets\": [4, 4]}}  ",
                 "\x80\x3f\x00\x40"s)));
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read[0].name, "w\xc3\xa4\"");
  EXPECT_EQ(read[0].dtype, ts::DType::bf16);
  EXPECT_EQ(read[0].shape, (ts::Shape{2, 1}));
  EXPECT_EQ(read[0].bytes.size(), 4u);
  EXPECT_EQ(read[1].shape, (ts::Shape{0, 3}));
  ts::save_file(read, path("again"));
  expect_same(ts::load_file(path("again")), read);
}

TEST_F(Safetensors, RefusesWhatIsNoFileOfTensors) {
  const auto refused = [&](const std::string& bytes, const std::string& why) {
    const std::string path = write(bytes);
    expect_error(
        ts::errc::file, [&] { ts::load_file(path); }, why, "safetensors_test.cpp");
  };
  const auto tensor = [](const std::string& fields) { return "{\"w\":{" + fields + "}}"; };
  const std::string good = R"("dtype":"F32","shape":[1],"data_offsets":[0,4])", one = "\0\0\x80\x3f"s;
  refused("", "is too short for a safetensors file");
  refused("\xff\xff\xff\xff\xff\xff\xff\xff{}", "is no safetensors file, or ends in its header");
  refused(file("", ""), "{ is missing");
  refused(file("{", ""), "\" is missing");
  refused(file(tensor(good), ""), "w: has elements outside of the file");
  refused(file(tensor(good), one + one), "has tensors that overlap, or bytes of no tensor");
  refused(file(tensor(good) + "x", one), "has text behind its JSON");
  refused(file("{\"w\":{" + good + "},\"v\":{" + good + "}}", one), "has tensors that overlap, or bytes of no tensor");
  refused(file("{\"w\":{" + good + "},\"w\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[4,4]}}", one),
          "w: is in the file twice");
  refused(file(tensor(R"("dtype":"U16","shape":[2],"data_offsets":[0,4])"), one), "w: has elements of the type U16");
  refused(file(tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"), one),
          "w: has 4 bytes, which are not those of f32[2]");
  refused(file(tensor(R"("dtype":"F32","shape":[4503599627370496,4],"data_offsets":[0,4])"), one),
          "w: has more elements than a tensor can have");
  refused(file(tensor(R"("dtype":"F32","shape":[1234567890123456789],"data_offsets":[0,4])"), one),
          "a number of more than 18 digits");
  refused(file(tensor(R"("dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4])"), one),
          "w: has more than 8 dims");
  refused(file(tensor(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])"), one), "a whole number is missing");
  refused(file(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])"), one),
          "w: has elements outside of the file");
  refused(file(tensor(R"("dtype":"F32","data_offsets":[0,4])"), one), "w: has no dtype, shape and data_offsets");
  refused(file(tensor(good + R"(,"sparse":1)"), one), "w: has a field that no tensor has, sparse");
  refused(file(tensor(R"("dtype":"BOOL","shape":[4],"data_offsets":[0,4])"), "\0\1\2\0"s),
          "w: has a bool that is neither 0 nor 1");
  const std::string bools = R"("dtype":"BOOL","shape":[2],"data_offsets":[0,2])";  // places first, then elements
  refused(file("{\"w\":{" + bools + "},\"v\":{" + bools + "}}", "\2\2"), "has tensors that overlap");
  refused(file("{\"\\ud800x\":{" + good + "}}", one), "half a pair of surrogates");
  expect_error(
      ts::errc::file, [&] { ts::load_file(path("missing")); }, "can't be opened", "safetensors_test.cpp");
  expect_error(
      ts::errc::file, [&] { ts::save_file({}, path("missing/file")); }, "can't be written", "safetensors_test.cpp");
  ts::StateDict dict = ts::load_file(write(file(tensor(good), one)));
  dict.push_back(dict[0]);
  expect_error(
      ts::errc::structure, [&] { ts::save_file(dict, path("twice")); }, "w: is in the dict twice");
  EXPECT_FALSE(std::filesystem::exists(path("twice")));
}

TEST_F(Safetensors, KeepsTheFileWhereADictIsWrong) {
  ts::StateDict dict{{"w", ts::DType::f32, {2}, {{0}, {2}}, std::vector<std::byte>(8)}};
  ts::save_file(dict, path("kept"));
  const std::string before = read(path("kept"));
  dict[0].bytes.resize(4);
  expect_error(
      ts::errc::structure, [&] { ts::save_file(dict, path("kept")); }, "w: a part has 4 bytes, not those of its box",
      "safetensors_test.cpp");
  EXPECT_EQ(read(path("kept")), before);
}

std::size_t files_in(const std::filesystem::path& folder) {
  const std::filesystem::directory_iterator files(folder);
  return static_cast<std::size_t>(std::distance(begin(files), end(files)));
}
// A large dict, so that writing it takes long enough for two savers to meet.
ts::StateDict dict_of(int value) {
  return {{"w", ts::DType::u8, {1 << 18}, {{0}, {1 << 18}}, std::vector<std::byte>(1 << 18, std::byte(value))}};
}

// Whoever reads while two threads save finds a whole file of one of them.
TEST_F(Safetensors, TwoSaversOfOnePathDoNotMix) {
  ts::save_file(dict_of(1), path("shared"));
  std::atomic<int> saving = 2;
  std::vector<std::thread> savers;
  for (const int value : {1, 2})
    savers.emplace_back([&, value] {
      for (int i = 0; i < 20; ++i) ts::save_file(dict_of(value), path("shared"));
      --saving;
    });
  int reads = 0;
  for (; saving > 0 || reads == 0; ++reads) {
    const ts::StateDict found = ts::load_file(path("shared"));
    ASSERT_EQ(found.size(), 1u);
    ASSERT_TRUE(found[0].bytes == dict_of(1)[0].bytes || found[0].bytes == dict_of(2)[0].bytes);
  }
  for (std::thread& saver : savers) saver.join();
  EXPECT_EQ(files_in(path("")), 1u);
}

// What a killed process or another saver has under the name of an unfinished file is not touched.
TEST_F(Safetensors, LeavesUnfinishedFilesOfOthers) {
  std::ofstream(path("state.partial")) << "of another";
  ts::save_file(dict_of(3), path("state"));
  expect_same(ts::load_file(path("state")), dict_of(3));
  EXPECT_EQ(read(path("state.partial")), "of another");
  EXPECT_EQ(files_in(path("")), 2u);
}

TEST_F(Safetensors, AFileThatCantBeWrittenLeavesNothing) {
  std::filesystem::create_directories(path("folder/inside"));
  expect_error(
      ts::errc::file, [&] { ts::save_file(dict_of(1), path("folder")); }, "[save_file]",
      "folder: can't be written: ", "safetensors_test.cpp");
  EXPECT_EQ(files_in(path("")), 1u);  // no folder.partial
  expect_error(
      ts::errc::file, [&] { ts::save_file(dict_of(1), path("missing/file")); }, "can't be written: No such file");
}

// A model with another head: what the dict lacks stays, what the model lacks is ignored.
TEST_F(Safetensors, NotStrict) {
  const nn::ShardingStrategy strategy = nn::single(ts::Mesh({{"x", 2}}));
  const auto layer = [&](int seed) {
    return nn::linear(ts::Key(static_cast<std::uint64_t>(seed)), 3, 2, strategy, nn::Role::column);
  };
  const ts::StateDict old = ts::full_state_dict(Old{layer(1), layer(2)});
  const New fresh{layer(3), layer(4)};
  expect_error(
      ts::errc::structure, [&] { ts::load_state_dict(fresh, old); },
      "names: the dict lacks classes.weight, classes.bias; the model lacks head.weight, head.bias");
  const New loaded = ts::load_state_dict(fresh, old, {.strict = false});
  EXPECT_EQ(ts::to_host(loaded.body.weight), ts::to_host(layer(1).weight));
  EXPECT_EQ(ts::to_host(loaded.classes.weight), ts::to_host(layer(4).weight));
  ts::StateDict renamed = old;
  for (ts::StateEntry& entry : renamed) entry.name = "module." + entry.name;
  expect_error(
      ts::errc::structure, [&] { ts::load_state_dict(fresh, renamed, {.strict = false}); },
      "names: the model has no name of the dict, module.body.weight, ...; the dict lacks body.weight");
  ts::StateDict wrong = old;
  wrong[0].shape = {2, 3};
  wrong[0].box.end = {2, 3};
  expect_error(
      ts::errc::shape_mismatch, [&] { ts::load_state_dict(fresh, wrong, {.strict = false}); },
      "body.weight: the model has f32[3,2], the dict f32[2,3]; ts::transposed(entry) has the dims in the "
      "opposite order");
}

// A dict of PyTorch has no epsilon and no number of heads: those of the model stay. A dict that has some is incomplete.
TEST_F(Safetensors, NumbersThatTheDictLacks) {
  const nn::ShardingStrategy strategy = nn::single(ts::Mesh({{"x", 2}}));
  const auto norms = [&](double epsilon) {
    return std::array{nn::layer_norm(3, strategy, epsilon), nn::layer_norm(3, strategy, 2 * epsilon)};
  };
  auto saved = norms(1e-3);
  saved[0].gain = ts::shard<float>({2, 3, 4}, strategy.mesh);
  ts::StateDict dict = ts::full_state_dict(saved);
  const auto without = [](ts::StateDict from, const std::string& name) {
    std::erase_if(from, [&](const ts::StateEntry& entry) { return entry.name.ends_with(name); });
    return from;
  };
  const auto loaded = ts::load_state_dict(norms(1e-5), without(dict, "epsilon"));
  EXPECT_EQ(ts::to_host(loaded[0].gain), (std::vector<float>{2, 3, 4}));
  EXPECT_EQ(loaded[0].epsilon.value(), 1e-5);
  EXPECT_EQ(loaded[1].epsilon.value(), 2e-5);
  EXPECT_EQ(ts::load_state_dict(norms(1e-5), dict)[1].epsilon.value(), 2e-3);
  expect_error(
      ts::errc::structure, [&] { ts::load_state_dict(norms(1e-5), without(dict, "1.epsilon")); },
      "names: the dict lacks 1.epsilon");
  expect_error(
      ts::errc::structure, [&] { ts::load_state_dict(norms(1e-5), without(dict, "gain")); },
      "names: the dict lacks 0.gain, 1.gain");
}

}  // namespace
