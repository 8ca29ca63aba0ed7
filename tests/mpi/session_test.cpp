// Runs in each of several processes: mpirun -n 3 test_mpi.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "../support/page.hpp"
#include <gtest/gtest.h>

#include <tessera/data/checkpoint/checkpoint_manager.hpp>
#include <tessera/interop/mpi.hpp>
#include <tessera/parallel/mesh_reduce.hpp>
#include <tessera/parallel/process_group.hpp>
#include <tessera/tensor/deferred_init.hpp>
#include <tessera/tessera.hpp>

namespace {

namespace ts = tessera;

const ts::mpi::Session* session = nullptr;

template <class F> std::string message_of(ts::errc id, const F& f) {
  try {
    f();
  } catch (const ts::error& e) {
    EXPECT_EQ(e.id(), id) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

std::vector<float> values(std::int64_t count, int seed) {
  std::vector<float> made;
  for (std::int64_t i = 0; i < count; ++i) made.push_back(static_cast<float>((i * 37 + seed * 11) % 101) / 50.f - 1.f);
  return made;
}

TEST(Session, DividesDevicesAmongProcesses) {
  EXPECT_EQ(ts::process_count(), session->process_count());
  EXPECT_EQ(ts::process_index(), session->process_index());
  const ts::Mesh mesh({{"data", 6}});
  const auto x = ts::arange<float>(12, mesh, {"data"});
  std::int64_t devices = 0;
  for (const auto& shard : ts::local_shards(x)) {
    EXPECT_EQ(ts::process_of(mesh, shard.device), ts::process_index());
    EXPECT_EQ(shard.data[0], static_cast<float>(shard.box.begin[0]));
    ++devices;
  }
  EXPECT_EQ(ts::stored_bytes(x), devices * 2 * 4);
  const std::vector<float> all = ts::to_host(x);
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], static_cast<float>(i));
  if (ts::process_count() > 1) EXPECT_NE(ts::to_string(x).find("in process"), std::string::npos);
}

struct Mlp {
  ts::nn::Linear<> up, down;
  constexpr auto operator()(const auto& x) const { return down(ts::gelu(up(x))); }
};

/// Losses of a model that trains on rows which 3 does not divide.
std::vector<float> train(const ts::nn::ShardingStrategy& strategy) {
  const auto [up, down] = ts::split<2>(ts::Key(3));
  Mlp model{ts::nn::linear(up, 10, 14, strategy), ts::nn::linear(down, 14, 5, strategy, ts::nn::Role::row)};
  const ts::optim::AdamW config{.learning_rate = 0.01};
  auto state = ts::optim::init_state(config, model);
  const auto x = ts::shard(values(13 * 10, 1), {13, 10}, strategy.mesh, strategy.batch);
  const auto target = ts::shard(values(13 * 5, 2), {13, 5}, strategy.mesh, strategy.batch);
  constexpr auto step = ts::compile([](auto m, auto own, auto in, auto out, auto of) {
    const auto loss_of = [](const auto& net, const auto& a, const auto& b) { return ts::mse(net(a), b); };
    const auto [loss, gradient] = ts::value_and_grad(loss_of)(m, in, out);
    const auto [next, next_state] = ts::adamw(m, gradient, own, of);
    return std::tuple(next, next_state, loss);
  });
  std::vector<float> losses;
  for (int i = 0; i < 8; ++i) {
    auto [next, next_state, loss] = step(std::move(model), std::move(state), x, target, config);
    model = std::move(next);
    state = std::move(next_state);
    losses.push_back(ts::item(loss));
  }
  return losses;
}

TEST(Session, TrainsAsOneDeviceDoes) {
  const ts::Mesh mesh({{"data", 3}, {"model", 2}});
  const std::vector<float> want = train(ts::nn::single(ts::Mesh{}));  // each process has all of it
  EXPECT_LT(want.back(), want.front());
  for (const auto& strategy : {ts::nn::data_parallel(mesh), ts::nn::fsdp(mesh), ts::nn::fsdp_tensor_parallel(mesh)}) {
    const std::vector<float> got = train(strategy);
    for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 4e-6f * want[0]) << "step " << i;
  }
}

TEST(Session, SendsLargeArraysInPlace) {
  const ts::Mesh mesh({{"data", 4}});
  const std::int64_t rows = 4 * 1000, columns = 257;
  const auto x = ts::shard(values(rows * columns, 4), {rows, columns}, mesh, {"data"});
  const auto whole = ts::reshard(x, mesh, {});
  EXPECT_EQ(ts::to_host(whole), values(rows * columns, 4));
  const auto turned = ts::reshard(x, mesh, {ts::none, "data"});
  EXPECT_TRUE(ts::all_equal(turned, x));
}

TEST(Session, NamesTheFirstStepThatDiffers) {
  if (ts::process_count() == 1) GTEST_SKIP() << "one process";
  const ts::Mesh mesh({{"data", 4}});
  const auto x = ts::full<float>({8, 3}, 1.f, mesh, {"data"});
  const auto sum = ts::compile([](const auto& a) { return ts::sum(a * 2.f); });
  const auto rows = ts::compile([](const auto& a) { return ts::sum<1>(a * 2.f); });
  const std::string message = message_of(ts::errc::processes, [&] {
    if (ts::process_index() == 1)
      (void)rows(x);
    else
      (void)sum(x);
  });
  EXPECT_NE(message.find("process 1 runs another program than process 0"), std::string::npos) << message;
  EXPECT_NE(message.find("session_test.cpp"), std::string::npos) << message;
  EXPECT_EQ(ts::item(sum(x)), 48.f);  // and the processes go on together
}

TEST(Session, NoticesDimsThatDiffer) {
  if (ts::process_count() == 1) GTEST_SKIP() << "one process";
  const ts::Mesh mesh({{"data", 4}});
  const auto x = ts::arange<float>(8, mesh, {"data"});
  const auto rows = ts::compile([](const auto& a, const auto& first) { return ts::slice<0>(a, first, 4); });
  const std::string message =
      message_of(ts::errc::processes, [&] { (void)rows(x, ts::Dim(ts::process_index() == 1 ? 2 : 1)); });
  EXPECT_NE(message.find("another program"), std::string::npos) << message;
}

TEST(Session, OneProcessMayPlanAlone) {
  const ts::Mesh mesh({{"data", 4}});
  const auto x = ts::arange<float>(8, mesh, {"data"});
  const auto total = ts::compile([](const auto& a) { return ts::sum(a + 3.f); });
  if (ts::process_index() == 0) EXPECT_FALSE(total.explain(x).empty());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(ts::item(total(x)), 52.f);
    // As if the caches of the processes had reached their limits after different numbers of calls.
    if (ts::process_index() == i) ts::clear_plan_cache();
  }
}

TEST(Session, OneProcessMayReadDeferredTensors) {
  const ts::Mesh mesh({{"data", 4}});
  const auto x = ts::deferred_init([&] { return ts::normal<float>(ts::Key(2), {8, 3}, mesh, {"data"}); });
  const auto want = ts::normal<float>(ts::Key(2), {8, 3}, mesh, {ts::none, "data"});
  if (ts::process_index() == 0) (void)ts::to_string(x);
  const auto turned = ts::reshard(x, {ts::none, "data"});
  EXPECT_EQ(ts::is_deferred(turned), ts::process_count() > 1);
  EXPECT_TRUE(ts::all_equal(turned, want));
}

TEST(Session, ReshardsDeferredTensorsThatChanged) {
  const ts::Mesh mesh({{"data", 4}});
  auto x = ts::deferred_init([&] { return ts::zeros<float>({8}, mesh, {"data"}); });
  ts::update_shards(x, [](const ts::Box& box, std::span<float> data) {
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(box.begin[0]) + static_cast<float>(i);
  });
  EXPECT_TRUE(ts::all_equal(ts::reshard(x, ts::PartitionSpec{}), ts::arange<float>(8, mesh)));
}

TEST(Session, AnswersWhatOneProcessAsks) {
  const ts::Mesh mesh({{"data", 4}});
  auto x = ts::arange<float>(8, mesh, {"data"});
  const auto y = ts::arange<float>(8, mesh, {"data"});
  EXPECT_TRUE(ts::all_equal(x, y));
  ts::update_shards(x, [](const ts::Box& box, std::span<float> data) {
    if (box.begin[0] <= 7 && 7 < box.end[0]) data[static_cast<std::size_t>(7 - box.begin[0])] = -1;
  });
  EXPECT_FALSE(ts::all_equal(x, y));  // in every process, though one has the difference
}

TEST(Session, ExchangesValuesOfTheHost) {
  ts::SessionProcesses processes;
  const std::string own(static_cast<std::size_t>(3 * processes.rank()), static_cast<char>('a' + processes.rank()));
  const std::vector<std::string> all = processes.rendezvous("names", own);
  ASSERT_EQ(all.size(), static_cast<std::size_t>(ts::process_count()));
  for (std::size_t p = 0; p < all.size(); ++p) EXPECT_EQ(all[p], std::string(3 * p, static_cast<char>('a' + p)));
  const int sum = ts::mesh_reduce(processes, "ranks", processes.rank(), [](const std::vector<int>& ranks) {
    int total = 0;
    for (const int rank : ranks) total += rank;
    return total;
  });
  EXPECT_EQ(sum, processes.size() * (processes.size() - 1) / 2);
  if (ts::process_count() == 1) return;
  const std::string message =
      message_of(ts::errc::structure, [&] { processes.rendezvous(processes.rank() == 0 ? "save" : "load", ""); });
  EXPECT_NE(message.find("'save' and 'load'"), std::string::npos) << message;
}

// An error that ends a run in one process alone ends the wait of the others.
TEST(Session, ProcessesReportErrors) {
  using namespace std::chrono_literals;
  if (ts::process_count() == 1) GTEST_SKIP() << "one process";
  ts::mpi::detail::Communicator own(session->communicator(), {.timeout_seconds = 60});
  const auto receive = [&] {
    int value = 0;
    const ts::runtime::Message message{0, &value, sizeof(value)};
    own.exchange({}, {&message, 1});
    return value;
  };
  const auto send = [&](int value) {
    std::vector<ts::runtime::Message> messages;
    for (int process = 1; process < ts::process_count(); ++process)
      messages.push_back({process, &value, sizeof(value)});
    own.exchange(messages, {});
  };
  own.runs = 1;
  if (ts::process_index() == 0) own.report("of a run before, which ended with an error in all processes");
  own.runs = 2;
  if (ts::process_index() == 0) {
    std::this_thread::sleep_for(1500ms);  // longer than the others wait before they look at reports
    send(7);
    own.report("[embedding] token 9");
  } else {
    EXPECT_EQ(receive(), 7);
    const std::string message = message_of(ts::errc::processes, receive);
    EXPECT_NE(message.find("an error ended this run in process 0: [embedding] token 9"), std::string::npos) << message;
    own.report(message);  // this process can't go on, whatever the run of the others
  }
  own.runs = 3;
  if (ts::process_index() == 0) {
    int value = 0;
    const ts::runtime::Message message{1, &value, sizeof(value)};
    const std::string answer = message_of(ts::errc::processes, [&] { own.exchange({}, {&message, 1}); });
    EXPECT_NE(answer.find("an error ended this run in process "), std::string::npos) << answer;
  }
}

TEST(Session, EachProcessSavesItsShards) {
  namespace fs = std::filesystem;
  ts::SessionProcesses processes;
  const std::string own =
      (fs::temp_directory_path() / ("tessera_mpi_" + std::to_string(std::random_device()()))).string();
  const fs::path folder = processes.rendezvous("folder", own)[0];
  const ts::Mesh six({{"data", 6}}), two({{"data", 2}});
  const std::vector<float> all = values(13 * 3, 4);
  const auto saved = ts::shard(all, {13, 3}, six, {"data"});
  const auto next = ts::eval(saved + 1.f);
  ts::CheckpointManager checkpoints(folder.string());
  EXPECT_TRUE(checkpoints.save(1, std::tuple(saved, ts::Dim(7))));
  EXPECT_EQ(ts::item(ts::eval(ts::sum(next - saved))), 39.f);  // messages, while files are written
  EXPECT_TRUE(checkpoints.save(2, std::tuple(next, ts::Dim(8))));
  EXPECT_EQ(checkpoints.all_steps(), (std::vector<std::int64_t>{1, 2}));
  std::size_t files = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder / "1"))
    files += entry.path().extension() == ".safetensors";
  EXPECT_EQ(files, 5u);  // rows of 13 in chunks of 3: the last device has none
  const auto [loaded, dim] = checkpoints.restore(1, std::tuple(ts::zeros<float>({13, 3}, two, {"data"}), ts::Dim(0)));
  EXPECT_EQ(ts::to_host(loaded), all);
  EXPECT_EQ(dim.value(), 7);

  // What one process finds wrong, all throw: of these files only one process reads the last rows.
  if (ts::process_index() == 0) {
    std::fstream file(folder / "2" / "shard-00005-model-00001-of-00001.safetensors",
                      std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(-1, std::ios::end);
    file.put('x');
  }
  (void)processes.rendezvous("spoilt", "");
  const std::string message =
      message_of(ts::errc::file, [&] { (void)checkpoints.restore(2, std::tuple(saved, ts::Dim(0))); });
  EXPECT_NE(message.find("do not have the checksum"), std::string::npos) << message;
  if (ts::process_index() == 0) fs::remove_all(folder);
}

TEST(Session, HasAPageWhoseCodeIsThatOfTheExample) {
  tessera_test::expect_lines({.name = "processes.md", .lines = 5, .left_out = tessera_test::is_message},
                             std::filesystem::path(__FILE__).parent_path() / "../../examples/processes/processes.cpp");
}

TEST(Session, IsTheFirstOfItsProcess) {
  const ts::Mesh mesh({{"data", 2}});
  (void)ts::full<float>({2}, 1.f, mesh, {"data"});
  const std::string message = message_of(ts::errc::processes, [] { const ts::mpi::Session second; });
  EXPECT_NE(message.find("already"), std::string::npos) << message;
}

/// Prints what the first process prints, and the failures of the others.
class Failures final : public ::testing::EmptyTestEventListener {
 public:
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::fprintf(stderr, "process %d: %s:%d: %s\n", ts::process_index(), result.file_name() ? result.file_name() : "",
                 result.line_number(), result.message());
  }
};

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const ts::mpi::Session own({.timeout_seconds = 60});
  session = &own;
  if (own.process_index() != 0) {
    auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new Failures);
  }
  return RUN_ALL_TESTS();
}
