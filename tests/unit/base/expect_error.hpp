#ifndef TESSERA_TESTS_UNIT_BASE_EXPECT_ERROR_HPP
#define TESSERA_TESTS_UNIT_BASE_EXPECT_ERROR_HPP

#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include <tessera/base/error.hpp>

namespace tessera_test {

/// Runs `f` and expects a tessera::error with this id, whose text contains all given parts.
template <class F, class... Parts> void expect_error(tessera::errc id, F&& f, const Parts&... parts) {
  try {
    f();
  } catch (const tessera::error& e) {
    EXPECT_EQ(static_cast<int>(e.id()), static_cast<int>(id)) << e.what();
    const std::string what = e.what();
    for (std::string_view part : {std::string_view("["), std::string_view(parts)...})
      EXPECT_NE(what.find(part), std::string::npos) << "'" << part << "' is missing in: " << what;
    return;
  }
  ADD_FAILURE() << "no error, expected one with id " << static_cast<int>(id);
}

/// The id of the error that `f` throws; errc{} when it throws none.
template <class F> tessera::errc error_of(F&& f) {
  try {
    f();
  } catch (const tessera::error& e) {
    return e.id();
  }
  return {};
}

}  // namespace tessera_test

#endif
