#ifndef TRAIN_GPT_TEXT_HPP
#define TRAIN_GPT_TEXT_HPP

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

namespace train_gpt {

/// "1,234,567".
inline std::string grouped(std::int64_t number) {
  const std::string digits = std::to_string(number);
  std::string out;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    const bool first = i == 0 || digits[i - 1] == '-';
    if (!first && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

/// "512 B", "1.5 KiB", "20 MiB".
inline std::string bytes_text(std::int64_t bytes) {
  constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double amount = static_cast<double>(bytes);
  int unit = 0;
  while (amount >= 1023.5 && unit < 4) amount /= 1024, ++unit;
  char text[32];
  std::snprintf(text, sizeof text, unit > 0 && amount < 99.95 ? "%.1f %s" : "%.0f %s", amount, units[unit]);
  return text;
}

/// "0:07", "12:34", "1:02:03".
inline std::string duration_text(double seconds) {
  if (!(seconds < 3.6e8)) return "-:--";
  const auto total = static_cast<long long>(std::ceil(std::max(0.0, seconds)));
  char text[32];
  if (total < 3600)
    std::snprintf(text, sizeof text, "%lld:%02lld", total / 60, total % 60);
  else
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", total / 3600, total / 60 % 60, total % 60);
  return text;
}

/// A text without the control characters that a terminal would interpret.
inline std::string printable(std::string text) {
  for (char& c : text)
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7f) c = '?';
  return text;
}

}  // namespace train_gpt

#endif
