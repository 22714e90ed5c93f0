#!/usr/bin/env bash
# Trains a detector as the shipped one was: large teachers first, then a small detector that learns from them,
# in two legs. Called again, it keeps the runs that had ended and begins the one that was cut anew.
#
#   train/recipes/distilled.sh OUTPUT VAL DATA...
#
# writes OUTPUT/detector.safetensors; VAL and DATA are folders or tar shards in the WIDER FACE layout. `lensbox`
# must be on the PATH, as in an activated virtual environment. From the environment, with the values of the shipped
# weights:
#   DEVICE           cuda
#   SOURCES          a configuration for the data, such as train/recipes/shared_faces.json (none)
#   OPTIONS          more options, the same for all runs, such as "--steps 2000" (none)
set -euo pipefail

if [ $# -lt 3 ]; then
  sed -n '2,12s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
output=$1 val=$2
shift 2
recipes=$(cd "$(dirname "$0")" && pwd)

# train NAME RECIPE ARGUMENT...: one run, unless its weights are there
train() {
  local name=$1 recipe=$2
  shift 2
  [ -f "$output/$name/weights.safetensors" ] && return
  echo "== $name"
  # shellcheck disable=SC2086 # SOURCES and OPTIONS are lists of words
  lensbox train --data "${data[@]}" --val "$val" --device "${DEVICE:-cuda}" --output "$output/$name" \
    --config ${SOURCES:-} "$recipes/$recipe.json" "$@" ${OPTIONS:-}
}

data=("$@")
teachers=()
for fold in 1 2 3 4; do # the student asks each teacher about the fourth that it never saw
  train "without_$fold" teacher --leave-out "$fold/4" --seed "$fold"
  teachers+=("$output/without_$fold/best.safetensors")
done
train whole teacher \
  --seed 6 --soft-chance 0.4 --light-chance 0.4 --cover-chance 0.4 --rotate-chance 0.5 --mosaic-share 0.35
teachers+=("$output/whole/best.safetensors")

train student student --teacher "${teachers[@]}" --model base
train refined student_refined --teacher "${teachers[@]}" \
  --weights "$output/student/weights.safetensors" --model base
cp "$output/refined/weights.safetensors" "$output/detector.safetensors"
echo "wrote $output/detector.safetensors"
