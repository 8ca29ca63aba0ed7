#!/usr/bin/env bash
# A program of the examples that trains a model has the losses of one device when ts::fsdp splits the model.
#   fsdp.sh PROGRAM
source "$(dirname "${BASH_SOURCE[0]}")/common.sh" "$1"

for devices in 1 2 3; do
  "$program" --fsdp $devices --steps 5 >$devices.txt || fail "--fsdp $devices: exit code $?"
  awk '$1 == "step" && $3 == "loss" && $4 ~ /\.[0-9][0-9][0-9][0-9][0-9][0-9]$/ { print $4 }' $devices.txt >$devices.losses
  (($(wc -l <$devices.losses) == 5)) || fail "--fsdp $devices: not the losses of 5 steps: $(cat $devices.txt)"
  paste 1.losses $devices.losses | awk '{ d = ($1 - $2) / $1; if (d < 0) d = -d; if (!(d <= 2e-5)) { bad = 1; print "  " $0 } }
    END { exit bad }' || fail "--fsdp $devices: other losses than on one device"
done
grep -q '^collectives of a step: 0 bytes' 1.txt || fail "one device communicates"
grep -q '^collectives of a step: .* all_gather,.* reduce_scatter,' 3.txt || fail "three devices gather and scatter nothing"
[[ $(sort -u 1.losses | wc -l) == 5 ]] || fail "the loss does not change"

# refused WORD ARGUMENT...   exit code 2 and one line that has the word
refused() {
  local word=$1 status=0
  shift
  "$program" "$@" >out 2>err || status=$?
  ((status == 2 && $(wc -l <err) == 1)) && grep -qF -e "$word" err || fail "$*: exit code $status, $(cat err)"
}
refused --fsdp --fsdp 0
refused --fsdp --fsdp
refused 3x --steps 3x
refused --mesh --mesh data=2

finish
