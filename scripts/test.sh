#!/usr/bin/env bash
# All tests. Installs what is missing; what cannot run here says so in one line beginning `skipped`.
#
# One profile (release) serves lints, tests and the browser's pages, so that everything, and
# libbpf's C code with it, is compiled once. The tests that measure use the binary built here.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/install-missing.sh
export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-auto}

# One step's failure does not hide what the next ones say.
begun=$SECONDS
failed=()
step() {
    printf '\n== %s (at %d s)\n' "$1" $((SECONDS - begun))
    "${@:2}" || failed+=("$1")
}

need_build_tools
want binutils objcopy nm strip addr2line readelf
want dwz dwz
want golang-go go
want libc6-dbg '/usr/lib/debug/.build-id/*'
want default-jdk-headless javac
want nodejs node
want npm npm
want php-cli php
want ruby ruby
want tmux tmux
want chromium '/usr/bin/chromium*'
install_wanted
rustup component list --installed >/dev/null 2>&1 && rustup -q component add rustfmt clippy 2>/dev/null || true

if cargo fmt --version >/dev/null 2>&1; then
    step "format" cargo fmt --all --check
else
    echo "skipped: rustfmt is not installed"
fi
if cargo clippy --version >/dev/null 2>&1; then
    step "lints" cargo clippy --quiet --release --workspace --all-targets -- -D warnings
else
    echo "skipped: clippy is not installed"
fi
step "build" cargo build --quiet --release --workspace --bins

# The output of tests that pass is left out, but for what they could not test.
quietly() {
    awk '
        /^successes:$/ { hidden = 1; next }
        /^failures:$/ || /^test result/ { hidden = 0 }
        /^running 0 tests$/ || /^$/ || /ok\. 0 passed/ { next }
        !hidden || /^skipped/ { print; fflush() }'
}

# Tests that measure share the machine with others: what fails is tried once more, by itself, and
# said to have failed at first. Not so where wallscope itself panicked: that is nobody else's doing.
tests() {
    local log again status=0
    log=$(mktemp)
    cargo test --quiet --release --workspace --no-fail-fast -- --show-output 2>&1 |
        tee "$log" | quietly && { rm -f "$log"; return 0; }
    # What a test that passes has printed does not count: one makes such a panic.
    if quietly <"$log" | grep 'wallscope panicked' >/dev/null; then
        rm -f "$log"
        return 1
    fi
    again=$(grep -oE '`-p [^`]+`' "$log" | tr -d '`' | sort -u)
    rm -f "$log"
    [ -n "$again" ] || return 1
    while read -r target; do
        printf '\n-- once more: %s\n' "$target"
        # shellcheck disable=SC2086
        if cargo test --quiet --release $target -- --show-output 2>&1 </dev/null | quietly; then
            echo "failed at first, then passed: $target"
        else
            status=1
        fi
    done <<<"$again"
    return $status
}
step "tests" tests

# What the page is tested with; false if npm cannot install it.
page_tools() { [ -d node_modules/playwright-core ] || npm ci --silent --no-audit --no-fund; }

page() (
    local major
    if ! command -v npm >/dev/null 2>&1; then
        echo "skipped: the page's tests (npm is not installed)"
        return
    fi
    major=$(node --version | sed 's/^v\([0-9]*\).*/\1/')
    if [ "$major" -lt 18 ]; then
        echo "skipped: the page's tests (node is $(node --version), and 18 is needed)"
        return
    fi
    cd crates/render/web && npm run --silent unit || return
    if ! page_tools; then
        echo "skipped: the page's types and browser tests (npm could not install their tools)"
        return
    fi
    npm run --silent types || return
    if [ "$major" -lt 20 ]; then
        echo "skipped: the page in a browser (node is $(node --version), and its driver needs 20)"
    elif ! compgen -G '/usr/bin/chromium*' >/dev/null; then
        echo "skipped: the page in a browser (chromium is not installed)"
    else
        npm run --silent pages && npm run --silent browser
    fi
)

step "page" page

if [ ${#failed[@]} != 0 ]; then
    printf '\nfailed, in %d s: %s\n' $((SECONDS - begun)) "${failed[*]}"
    exit 1
fi
printf '\nall passed, in %d s\n' $((SECONDS - begun))
