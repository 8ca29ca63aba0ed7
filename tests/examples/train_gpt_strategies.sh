#!/usr/bin/env bash
# Every strategy of train_gpt, and what it is combined with, trains to the losses of one device, on up to 16 devices.
#   train_gpt_strategies.sh TRAIN_GPT
source "$(dirname "${BASH_SOURCE[0]}")/common.sh" "$1"
train_gpt=$program
head -c 20000 "$root/LICENSE" >text.txt

# compare BOUND ARGUMENT...   a table of layouts, whose losses in 30 steps agree with the first row's
compare() {
  local bound=$1 rows=0 argument
  shift
  for argument in "$@"; do [[ $argument == -* || $argument == [0-9]* ]] || rows=$((rows + 1)); done
  "$train_gpt" --text text.txt --layers 4 --dim 24 --heads 4 --context 16 --batch 12 --microbatches 3 --seed 3 \
    --sample 0 --warmup 5 --steps 30 --compare "$@" >table.txt 2>&1 || fail "--compare $*: $(tail -n 1 table.txt)"
  # name, mesh, loss, difference, tokens/s, then two words each: stored, predicted, scratch
  awk -v bound="$bound" -v rows="$rows" '
    seen && NF { n++
      if (!($4 <= bound)) { bad = 1; print "  differs: " $0 }
      if ($6 " " $7 != $8 " " $9) { bad = 1; print "  stored and predicted bytes differ: " $0 } }
    /^strategy/ { seen = 1 }
    END { if (n != rows) print "  " n " rows, not " rows; exit bad || n != rows }' table.txt ||
    { fail "--compare $*"; cat table.txt; }
}

compare 1e-4 single \
  dp:data=1 dp dp:data=3 dp:data=4 dp:data=8 dp:data=16 \
  zero1 zero1:data=3 zero1:data=16 zero2 zero2:data=3 zero2:data=16 \
  fsdp fsdp:data=3 fsdp:data=4 fsdp:data=8 fsdp:data=16 hsdp hsdp:data=2,fsdp=3 hsdp:data=4,fsdp=4 \
  tp tp:model=3 tp:model=4 tp:model=8 sp sp:model=3 sp:model=4 \
  fsdp+tp fsdp+tp:data=3,model=2 fsdp+tp:data=4,model=4 \
  cp cp:context=3 cp:data=2,context=4 ulysses ulysses:context=3 ring ring:context=4 ring:data=2,context=8
compare 1e-4 single \
  pp:pipe=1 pp pp:pipe=3 pp:pipe=4 pp:pipe=8 pp:pipe=4:12 dp+pp dp+pp:data=4,pipe=4 tp+pp tp+pp:model=3,pipe=3 \
  fsdp+pp fsdp+pp:fsdp=3,pipe=3 fsdp+tp+pp fsdp+tp+pp:fsdp=4,model=2,pipe=2 cp+pp cp+pp:data=2,context=2,pipe=4

# The bubble: of 3 microbatches on 4 stages 3 / 6 of the ticks, on 3 stages (of 2, 1 and 1 layers) 1 - 3 * 4 / (5 * 6).
bubble() { awk -v mesh="$1" -v micro="$2" '$1 == "pp" && $2 == mesh && $(NF - 1) == micro { print $NF }' table.txt; }
[[ $(bubble pipe=1 3) == 0.0% ]] || fail "pipe=1: a bubble of '$(bubble pipe=1 3)'"
[[ $(bubble pipe=2 3) == 25.0% ]] || fail "pipe=2: a bubble of '$(bubble pipe=2 3)'"
[[ $(bubble pipe=4 3) == 50.0% ]] || fail "pipe=4: a bubble of '$(bubble pipe=4 3)'"
[[ $(bubble pipe=4 12) == 20.0% ]] || fail "pipe=4, 12 microbatches: a bubble of '$(bubble pipe=4 12)'"
[[ $(bubble pipe=3 3) == 60.0% ]] || fail "pipe=3: a bubble of '$(bubble pipe=3 3)'"

finish
