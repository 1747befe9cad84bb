#!/usr/bin/env bash
# Builds wallscope, measures a small web service that is slow for a reason no CPU profile shows, and
# puts what a CPU profile would say beside what there is (wallscope calibrate).
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
cargo build --quiet --release -p wallscope --bins
wallscope=${CARGO_TARGET_DIR:-target}/release/wallscope

heading "A web service, seen by a CPU profiler and by wall time ($seconds s)"
recording=demo.pb.gz
status=0
calibrate() { "$@" "$wallscope" calibrate -d "$seconds" -o "$recording"; }
if [ "$(id -u)" = 0 ]; then
    calibrate env || status=$?
elif command -v sudo >/dev/null 2>&1; then
    calibrate sudo || status=$?
    # Root wrote the recording: give it to the user.
    [ $status = 0 ] && sudo chown "$(id -u):$(id -g)" "$recording"
else
    echo "not root and no sudo: measuring with what an ordinary user may, which sees less and says so"
    calibrate env || status=$?
fi
if [ $status = 3 ]; then
    echo
    "$wallscope" doctor || true
fi
[ $status = 0 ] || exit $status

heading "The whole report"
"$wallscope" report "$recording"

cat <<END

The threads wait: for the lock that cache_get takes while compaction holds it, and for upstream.

The recording: $recording
  $wallscope view $recording          to look at it in a browser
  $wallscope export $recording --format folded --view off-cpu
END
