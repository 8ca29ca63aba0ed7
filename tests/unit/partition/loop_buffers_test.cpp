// The memory in which loops keep carried values between layers is in the plan: its size, its place, its text.
#include <cstdint>
#include <stdexcept>
#include <string>
#include <tuple>

#include "../base/expect_error.hpp"
#include "planned.hpp"
#include <gtest/gtest.h>

#include <tessera/ops/control_flow.hpp>
#include <tessera/partition/plan/plan_memory.hpp>

namespace {

namespace ts = tessera;
using namespace ts::tests;

const ts::Mesh mesh({{"data", 2}});

enum class Returned { carry, rows, both };
/// A loop over the layers of w [n, 16, 16] that carries h [6, 16] and a number of rank 0, and returns sums of rows.
template <Returned Of> struct Loop {
  constexpr auto operator()(auto h, auto w) const {
    const auto step = [](auto carry, auto layer) {
      const auto [x, total] = carry;
      const auto next = ts::tanh(ts::matmul(x, layer));
      return std::tuple(std::tuple(next, total + ts::sum(next)), ts::sum<-1>(next));
    };
    const auto [last, rows] = ts::scan(step, std::tuple(h, ts::sum(h)), w);
    if constexpr (Of == Returned::carry)
      return std::get<0>(last);
    else if constexpr (Of == Returned::rows)
      return rows;
    else
      return std::tuple(std::get<0>(last), std::get<1>(last), rows);
  }
};
template <Returned Of> Planned planned(std::int64_t layers) {
  return Planned(ts::Traced<Loop<Of>, Matrix, ts::ShardedTensor<float, 3>>::program(), mesh,
                 {tensor(mesh, {6, 16}, {"data"}), tensor(mesh, {layers, 16, 16})});
}
const ts::PlanStep& loop_of(const Planned& made) {
  for (const ts::PlanStep& step : made.plan.main().steps)
    if (step.kind == ts::StepKind::repeat) return step;
  throw std::logic_error("no loop");
}
/// "0 odd 192": the result, its layers and its bytes on a device, for each buffer.
std::string buffers(const Planned& made) {
  std::string text;
  for (const ts::LoopBuffer& buffer : loop_of(made).buffers)
    text +=
        ts::concat_text(text.empty() ? "" : ", ", buffer.result, buffer.odd ? " odd " : " even ", buffer.device_bytes);
  return text;
}
constexpr std::int64_t h_bytes = 3 * 16 * 4;  // of a device

TEST(LoopBuffers, CarriedValuesAlternateBetweenTheResultAndABuffer) {
  const Planned made = planned<Returned::both>(5);
  EXPECT_EQ(buffers(made), "0 odd 192, 1 odd 4");
  for (const ts::LoopBuffer& buffer : loop_of(made).buffers)
    EXPECT_NE(made.text().find(ts::concat_text("carries result ", buffer.result, " in scratch at ", buffer.offset)),
              std::string::npos)
        << made.text();
}
TEST(LoopBuffers, ResultsThatNoStepReadsHaveNoOtherMemory) {
  EXPECT_EQ(buffers(planned<Returned::carry>(5)), "0 odd 192, 1 even 4, 1 odd 4, 2 even 12");
  EXPECT_EQ(buffers(planned<Returned::rows>(5)), "0 even 192, 0 odd 192, 1 even 4, 1 odd 4");
}
TEST(LoopBuffers, OneLayerCarriesNothing) {
  EXPECT_EQ(buffers(planned<Returned::both>(1)), "");
  EXPECT_EQ(buffers(planned<Returned::rows>(1)), "0 even 192, 1 even 4");
}
TEST(LoopBuffers, TheMemoryOfAPlanHasThem) {
  const auto scratch = [](const Planned& made) { return ts::memory_of(made.plan).scratch; };
  // Each block is a multiple of 64 bytes: that of h, and that of the number.
  EXPECT_EQ(scratch(planned<Returned::both>(5)) - scratch(planned<Returned::both>(1)), h_bytes + 64);
  EXPECT_EQ(scratch(planned<Returned::rows>(5)) - scratch(planned<Returned::rows>(1)), h_bytes + 64);
}
TEST(LoopBuffers, OfAPlanOverlapNoOtherMemory) {
  Planned made = planned<Returned::rows>(5);
  for (ts::PlanStep& step : made.plan.graphs[0].steps)
    if (step.kind == ts::StepKind::repeat) step.buffers[1].offset = step.buffers[0].offset;
  tessera_test::expect_error(
      ts::errc::graph_invalid, [&] { ts::verify_plan(made.plan, made.program, made.units.views.data()); },
      "values that are needed at the same time do not overlap in memory");
}

}  // namespace
