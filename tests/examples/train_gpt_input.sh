#!/usr/bin/env bash
# Nonsense given to train_gpt: exit code 2 and one line on stderr that names the option and its value.
#   train_gpt_input.sh TRAIN_GPT
source "$(dirname "${BASH_SOURCE[0]}")/common.sh" "$1"
train_gpt=$program

# refused WORD... -- ARGUMENT...   every word is in the message
refused() {
  local words=() word status=0
  while [[ $1 != -- ]]; do words+=("$1"); shift; done
  shift
  "$train_gpt" "$@" >out 2>err </dev/null || status=$?
  local problem=
  ((status == 2)) || problem="exit code $status, not 2"
  (($(wc -l <err) == 1)) || problem="stderr is not one line"
  for word in "${words[@]}"; do grep -qF -e "$word" err || problem="the message lacks '$word'"; done
  [[ -z $problem ]] && return
  fail "train_gpt $*: $problem"
  sed 's/^/  stderr: /' err
}

: >empty.txt
printf 'text with a \0 inside' >binary.txt
printf 'caf\xe9' >latin.txt
printf 'a short text' >short.txt
head -c 4000 /dev/urandom | base64 >text.txt
cp text.txt copy.txt
mkdir folder

refused --text missing.txt 'no such file' -- --text missing.txt
refused --text empty.txt empty -- --text empty.txt
refused --text binary.txt NUL 'byte 12' -- --text text.txt --text binary.txt
refused --text latin.txt UTF-8 'byte 3' -- --text latin.txt
refused --text folder -- --text folder
refused --text /dev/zero NUL -- --text /dev/zero
refused --context 64 12 -- --text short.txt
refused --context 12 -- --text short.txt --context 12
refused --prompt é -- --text text.txt --prompt é
refused --prompt UTF-8 -- --text text.txt --prompt $'\xff'
refused --strategy "'ddp'" fsdp+tp -- --text text.txt --strategy ddp
refused --mesh "'model'" 'mesh(data=2)' -- --text text.txt --strategy tp --mesh data=2
refused --mesh "'data'" -- --text text.txt --strategy fsdp+tp --mesh model=2
refused --mesh "'data:2'" -- --text text.txt --mesh data:2
refused --mesh "'data=-2'" -- --text text.txt --mesh data=-2
refused --heads 5 --dim 64 -- --text text.txt --heads 5 --dim 64
refused --experts "'ep'" -- --text text.txt --strategy ep --experts 0
refused --experts "'ring'" -- --text text.txt --strategy ring --experts 4
refused --mesh "'expert'" -- --text text.txt --strategy ep --experts 4 --mesh data=2
refused --microbatches 3 '--batch 4' -- --text text.txt --strategy pp --batch 4 --microbatches 3
refused --compare "'x'" microbatches -- --text text.txt --compare pp:pipe=2:x
refused --compare "'fsdp'" -- --text text.txt --compare fsdp+tp+pp:model=2,pipe=2
refused --csv folder -- --text text.txt --csv folder
refused --csv nowhere/x.csv -- --text text.txt --csv nowhere/x.csv
refused --svg nowhere/x.svg -- --text text.txt --svg nowhere/x.svg
refused --csv text.txt overwrite -- --text text.txt --csv text.txt
refused --csv /dev/full -- --text text.txt --csv /dev/full
for option in --layers --dim --heads --context --batch --steps --threads; do
  for value in 0 -1 x 1.5; do refused "$option" "$value" -- "$option" "$value"; done
done
for option in --lr --clip; do
  for value in 0 -1 nan; do refused "$option" "$value" -- "$option" "$value"; done
done
refused --unknown -- --unknown

cmp -s text.txt copy.txt || fail "the text was written to"
"$train_gpt" --help >out 2>err && grep -q -e --strategy out || fail "--help failed"

finish
