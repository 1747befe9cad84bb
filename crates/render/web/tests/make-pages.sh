#!/bin/sh
# Makes the pages that the browser's tests open. WALLSCOPE and PAGES: built programs, else cargo builds them.
set -e
wallscope=${WALLSCOPE:-cargo run --quiet --release -p wallscope --}
pages=${PAGES:-cargo run --quiet --release -p wallscope-render --example pages --}
to=../../../target/pages
mkdir -p $to
for name in demo labels waits recursion tasks; do
    $wallscope view --no-open tests/fixtures/$name.pb.gz -o $to/$name.html
done
$wallscope diff tests/fixtures/demo.pb.gz -- tests/fixtures/demo-crowded.pb.gz --format html -o $to/delta.html
$pages $to shop coarse deep hostile empty
