#!/usr/bin/env bash
# Runs a program in 1, 2 and 3 processes and compares the losses that it prints: they are equal bit for bit.
#   same_losses.sh <mpiexec> <option for the number of processes> <program>
set -euo pipefail
losses() { "$1" "$2" "$3" "$4" | grep '^step '; }
one=$(losses "$1" "$2" 1 "$3")
(($(wc -l <<<"$one") == 4))
for processes in 2 3; do
  diff <(echo "$one") <(losses "$1" "$2" "$processes" "$3")
done
echo "$one"
