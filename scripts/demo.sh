#!/usr/bin/env bash
# Builds wallscope, records a small web service that is slow for a reason no CPU profile shows, and
# puts what a CPU profile would say beside what wallscope says.
#
#   scripts/demo.sh [SECONDS]    how long to record; 10 unless told
#
# Changes nothing but this folder's target/, and installs the build tools that are missing.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-10}
case $seconds in
'' | *[!0-9]* | 0*)
    echo "usage: scripts/demo.sh [SECONDS], a whole number from 1; not: $seconds" >&2
    exit 2
    ;;
esac
. scripts/install-missing.sh

heading() { printf '\n\033[1m%s\033[0m\n' "$1"; }
[ -t 1 ] || heading() { printf '\n%s\n' "$1"; }

need_build_tools
echo "building (the first time takes some minutes)"
cargo build --quiet --release -p wallscope -p wallscope-testkit --bins
built=${CARGO_TARGET_DIR:-target}/release

work=$(mktemp -d)
service=
stop() {
    if [ -n "$service" ]; then
        kill "$service" 2>/dev/null || true
        wait "$service" 2>/dev/null || true
    fi
    rm -rf "$work"
}
trap stop EXIT

# It ends by itself; longer than the recording, and a little before.
"$built/wallscope-demo" --seconds $((seconds + 15)) >"$work/said" &
service=$!
until grep -q READY "$work/said"; do
    kill -0 "$service" 2>/dev/null || { echo "the demonstration service did not start" >&2; exit 1; }
    sleep 0.05
done

heading "Recording a web service (pid $service) for $seconds s"
recording=demo.pb.gz
status=0
record() { "$@" "$built/wallscope" record -p "$service" -d "$seconds" -o "$recording"; }
if [ "$(id -u)" = 0 ]; then
    record env || status=$?
elif command -v sudo >/dev/null 2>&1; then
    record sudo || status=$?
    # Where root wrote it, it is given to who asked.
    [ $status = 0 ] && sudo chown "$(id -u):$(id -g)" "$recording"
else
    echo "not root and no sudo: recording by /proc alone, which sees less and says so"
    record env || status=$?
fi
if [ $status = 3 ]; then
    echo
    "$built/wallscope" doctor || true
fi
[ $status = 0 ] || exit $status

heading "What wallscope reports"
"$built/wallscope" report "$recording"

# Each stack of the workers counts for the innermost of the service's own functions on it. Printed:
# function, share of computing, share of wall time, and which part of the latter is waiting, in
# percent.
by_function() {
    "$built/wallscope" export "$recording" --format folded --view wall --with thread,state |
        grep '^worker-' | awk '
        {
            value = $NF; sub(/ [0-9]+$/, ""); n = split($0, frames, ";"); name = "(outside of it)"
            for (i = n; i > 0; i--) if (frames[i] ~ /^wallscope_demo::service::[a-z_]+$/) {
                name = frames[i]; sub(/.*::/, "", name); break
            }
            wall[name] += value; all += value
            if (frames[n] == "on_cpu") { cpu[name] += value; computed += value }
            if (frames[n] == "blocked") blocked[name] += value
        }
        END { for (name in wall) printf "%s %.1f %.1f %.1f\n", name, 100 * cpu[name] / computed,
                  100 * wall[name] / all, 100 * blocked[name] / all }' | sort -k3,3 -rn
}
heading "The same recording, seen by a CPU profiler, and by wall time"
by_function >"$work/shares"
printf '  %-18s %14s %14s %14s\n' "worker threads in" "CPU profile" "wall time" "of it waiting"
while read -r name cpu wall blocked; do
    printf '  %-18s %12s %% %12s %% %12s %%\n' "$name" "$cpu" "$wall" "$blocked"
done <"$work/shares"
top=$(sort -k2,2 -rn "$work/shares" | head -n 1 | cut -d' ' -f1)
cat <<END

To a CPU profile this service is $top: one would make that faster, and requests
would stay nearly as slow as they are. The threads wait: for the lock that cache_get takes while
compaction holds it, and for upstream.

The recording: $recording
  $built/wallscope view $recording          to look at it in a browser
  $built/wallscope export $recording --format folded --view off-cpu
END
