// With TESSERA_TEST_PROCESSES=3 a test binary runs in three processes that divide the devices of each mesh: each runs
// all tests, and the first of them reports whether all succeeded. What one process prints is what a test prints; the
// others print failures.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "socket_communicator.hpp"
#include <gtest/gtest.h>

#include <tessera/runtime/transport/process_transport.hpp>

namespace {

class SeveralProcesses final : public ::testing::Environment {
 public:
  void SetUp() override {
    const char* const text = std::getenv("TESSERA_TEST_PROCESSES");
    const int processes = text == nullptr ? 1 : std::atoi(text);
    if (processes <= 1) return;
    std::fflush(nullptr);
    communicator_ = std::make_unique<tests::SocketCommunicator>(tests::SocketCommunicator::fork(processes));
    if (communicator_->index() != 0) {
      auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
      delete listeners.Release(listeners.default_result_printer());
      listeners.Append(new Failures(communicator_->index()));
    }
    tessera::runtime::join_processes(*communicator_);
  }
  void TearDown() override {
    if (!communicator_) return;
    tessera::runtime::leave_processes();
    if (communicator_->index() == 0) EXPECT_TRUE(communicator_->wait()) << "a test failed in another process";
  }

 private:
  class Failures final : public ::testing::EmptyTestEventListener {
   public:
    explicit Failures(int process) : process_(process) {}
    void OnTestStart(const ::testing::TestInfo& test) override {
      test_ = std::string(test.test_suite_name()) + "." + test.name();
    }
    // Called with a lock of GoogleTest, which does not say here which test runs.
    void OnTestPartResult(const ::testing::TestPartResult& result) override {
      if (!result.failed()) return;
      std::fprintf(stderr, "process %d: %s: %s:%d: %s\n", process_, test_.c_str(),
                   result.file_name() ? result.file_name() : "", result.line_number(), result.message());
    }

   private:
    int process_;
    std::string test_;
  };
  std::unique_ptr<tests::SocketCommunicator> communicator_;
};

[[maybe_unused]] auto* const environment = ::testing::AddGlobalTestEnvironment(new SeveralProcesses);

}  // namespace
