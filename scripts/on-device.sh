#!/usr/bin/env bash
# Checks and measures Fulmar's kernels on the GPU of this machine: bash on-device.sh [--budget 540] [--only NAME] [--out FOLDER] [--seed NUMBER]
#
# It needs bash, coreutils, NVIDIA's driver and the files of its folder, which `node scripts/device-bundle.mjs` makes. nvcc, PyTorch,
# ncu and compute-sanitizer are used where they are. It changes no setting of the GPU. NAME is a part or a file of kernels. Parts run
# in the order below, each with a limit in seconds, and FOLDER/report.json is written anew after each: see docs/cuda.md. The inputs of
# checks are random by NUMBER, by default the time; the report has it.
#
# Exit status: 0 all checks passed, 1 one failed or did not run, 2 not built, 3 no GPU, 64 wrong arguments.
set -u
bundle=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export program=$bundle/fulmar-device
parts='here checks benches model rivals sanitizer ncu'
budget=540 only='' out=$PWD/device-report seed=$(date +%s)
PATH=$PATH:/usr/local/cuda/bin

refuse() { # status, sentence
  printf '%s\n' "$2"
  exit "$1"
}

while (($# > 0)); do
  (($# > 1)) || [[ $1 != --* ]] || refuse 64 "$1 must have a value, and be one of --budget, --only, --out, --seed"
  case $1 in
    --budget) budget=$2 ;;
    --only) only=$2 ;;
    --out) out=$2 ;;
    --seed) seed=$2 ;;
    *) refuse 64 "option must be one of --budget, --only, --out, --seed: got $1" ;;
  esac
  shift 2
done
[[ $budget =~ ^[1-9][0-9]{0,4}$ ]] || refuse 64 "--budget must be seconds, from 1 to 99999: got $budget"
[[ $seed =~ ^[0-9]{1,18}$ ]] || refuse 64 "--seed must be a whole number of at most 18 digits: got $seed"
kernels=() # options of fulmar-device
if [[ " $parts " == *" $only "* ]]; then
  parts=$only
elif [[ -n $only ]]; then
  kernels=(--only "$only")
fi

[[ -e $program ]] || refuse 2 "fulmar-device is not built: node scripts/device-bundle.mjs makes it, in the repository"
found=$(timeout 30 "$program" here "${kernels[@]}" 2>&1)
case $? in
  0) ;;
  124) refuse 1 "the GPU does not answer within 30 s" ;;
  3) refuse 3 "$found" ;;
  2) [[ $found != --only* ]] && refuse 2 "$found" || refuse 64 "$found; or a part, one of $parts" ;;
  *) refuse 2 "fulmar-device is not built for this machine ($(uname -m), $(getconf GNU_LIBC_VERSION 2>/dev/null)): $found" ;;
esac
mkdir -p "$out" && out=$(cd "$out" && pwd) || refuse 64 "--out must be a folder that can be written: got $out"
# Of an earlier run, by their names.
rm -f "$out"/{parts.txt,here.txt,ncu.csv,report.json} "$out"/{checks,benches,rivals}.jsonl \
  "$out"/{here,checks,benches,model,rivals,memcheck,racecheck,synccheck,ncu}.log

# Writes what there is, a name and a value a line.
describe() {
  printf 'time\t%s\n' "$(date -u +%FT%TZ)"
  printf 'system\t%s\n' "$(uname -srm), $(getconf GNU_LIBC_VERSION 2>/dev/null)"
  "$program" here
  local query=name,driver_version,memory.total,memory.free,clocks.max.sm,clocks.max.memory,power.limit,mig.mode.current
  version nvidia-smi nvidia-smi "--query-gpu=$query" --format=csv,noheader
  version nvcc nvcc --version
  version ncu ncu --version
  version compute-sanitizer compute-sanitizer --version
  version torch python3 -c 'import torch; print(torch.__version__, torch.version.cuda)'
}
# Writes the last line that a program prints, or that it is missing.
version() {
  local name=$1 found
  shift
  found=$("$@" 2>/dev/null) && found=$(printf '%s' "$found" | tail -n 1 | tr '\t' ' ') || found=missing
  printf '%s\t%s\n' "$name" "$found"
}
export -f describe version

# Writes how a part ended, and the report anew.
note() { # name, result, seconds
  printf '%s\t%s\t%s\n' "$1" "$2" "$3" >>"$out/parts.txt"
  printf '%s: %s (%s s)\n' "$1" "$2" "$3"
  "$program" report "$out" >/dev/null
}

# Runs a part. Returns its exit status, or 4 if it is skipped because something is missing, 5 if there is no time left.
patience=1 # a processor takes longer for the work of a GPU
[[ $found == *'emulated GPU'* ]] && patience=20
run_part() { # name, seconds, command
  local name=$1 limit=$(($2 * patience)) left=$((budget - SECONDS)) start=$SECONDS status
  shift 2
  command -v "$1" >/dev/null || { note "$name" "skipped: $1 is missing" 0 && return 4; }
  ((left > 0)) || { note "$name" "skipped: the $budget s are over" 0 && return 5; }
  ((left < limit)) && limit=$left
  timeout --kill-after=5 "$limit" "$@" >"$out/$name.log" 2>&1
  status=$?
  case $status in
    0) note "$name" 'done' $((SECONDS - start)) ;;
    4) note "$name" "skipped: $(tail -n 1 "$out/$name.log")" $((SECONDS - start)) ;;
    124 | 137) note "$name" "ended after $limit s" $((SECONDS - start)) ;;
    *) note "$name" "failed (exit status $status)" $((SECONDS - start)) ;;
  esac
  return $status
}
has() { [[ " $parts " == *" $1 "* ]]; }

result=0
if has here; then
  run_part here 10 bash -c describe
  cp "$out/here.log" "$out/here.txt"
fi
if has checks; then
  run_part checks 150 "$program" check --records "$out/checks.jsonl" --seed "$seed" "${kernels[@]}" || result=1
fi
if has benches; then
  run_part benches 140 "$program" bench --records "$out/benches.jsonl" "${kernels[@]}"
fi
model=() # options of rivals.py
if has model && [[ -z $only || $only == model || $only == decoder ]]; then
  # A gigabyte that the report has no use for.
  folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT
  run_part model 20 "$program" model "$folder" && model=(--model "$folder")
fi
if has rivals; then
  run_part rivals 120 python3 "$bundle/rivals.py" --wheels "$bundle/wheels" --records "$out/rivals.jsonl" "${model[@]}" "${kernels[@]}"
fi
if has sanitizer; then
  for tool in memcheck racecheck synccheck; do
    run_part "$tool" 23 compute-sanitizer --tool "$tool" --error-exitcode 9 "$program" check --sizes small "${kernels[@]}"
    case $? in
      0 | 4 | 5 | 124 | 137) ;; # no answer is no failed check
      *) result=1 ;;
    esac
  done
fi
if has ncu; then
  stalled=smsp__average_warps_issue_stalled
  metrics=gpu__time_duration.sum,dram__bytes.sum,dram__throughput.avg.pct_of_peak_sustained_elapsed
  metrics+=,sm__throughput.avg.pct_of_peak_sustained_elapsed,smsp__inst_executed_pipe_tensor.sum,launch__registers_per_thread
  for cause in long_scoreboard short_scoreboard barrier mio_throttle math_pipe_throttle; do
    metrics+=,${stalled}_${cause}_per_issue_active.ratio
  done
  run_part ncu 40 ncu --clock-control none --csv --log-file "$out/ncu.csv" --metrics "$metrics" \
    --kernel-name "regex:$("$program" slowest "$out")" --launch-count 6 "$program" once "${kernels[@]}"
fi
"$program" report "$out"
exit $result
