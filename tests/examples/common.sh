# What the tests of examples begin with: the program to test, this project, an empty folder to work in, and a count of failures.
#   source common.sh PROGRAM
set -uo pipefail
program=$1
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failures=0
fail() {
  echo "$*"
  failures=$((failures + 1))
}
# finish   the last line of a test
finish() {
  ((failures == 0)) || echo "$failures failures"
  exit $((failures > 0))
}
