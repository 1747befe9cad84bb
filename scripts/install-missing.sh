# Installs what is missing, and only that. Sourced; then: need PACKAGE TEST…, want PACKAGE TEST…,
# install_needed, install_wanted.
#
# A TEST is a command to be found in PATH or, with a slash, a file to exist (a glob may be used).
# What is needed and cannot be installed ends the script; what is wanted is said to be missing, and
# the tests that would use it skip themselves.

needed=()
wanted=()

present() {
    case $1 in
    */*) compgen -G "$1" >/dev/null ;;
    *) command -v "$1" >/dev/null 2>&1 ;;
    esac
}

lacks() {
    local test
    for test in "$@"; do present "$test" || return 0; done
    return 1
}

need() { if lacks "${@:2}"; then needed+=("$1"); fi; }
want() { if lacks "${@:2}"; then wanted+=("$1"); fi; }

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null 2>&1; then
        sudo "$@"
    else
        echo "not root and no sudo: cannot run $*" >&2
        return 1
    fi
}

apt_updated=
apt_install() {
    if ! command -v apt-get >/dev/null 2>&1; then
        echo "this is no Debian or Ubuntu (no apt-get); please install by hand: $*" >&2
        return 1
    fi
    if [ -z "$apt_updated" ]; then
        as_root apt-get -qq update </dev/null || echo "apt-get update failed; trying with the lists at hand" >&2
        apt_updated=1
    fi
    echo "installing: $*"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "$@" </dev/null >/dev/null
}

install_needed() {
    [ ${#needed[@]} = 0 ] && return 0
    if ! apt_install "${needed[@]}"; then
        echo "cannot go on without: ${needed[*]}" >&2
        echo "on Debian or Ubuntu: sudo apt-get install ${needed[*]}" >&2
        exit 1
    fi
    needed=()
}

install_wanted() {
    local package
    for package in "${wanted[@]}"; do
        # One by one: what one release lacks must not keep the others away.
        apt_install "$package" || echo "without $package: the tests that use it skip themselves"
    done
    wanted=()
}

# What building takes.
need_build_tools() {
    need gcc gcc cc
    need g++ g++ c++
    need libc6-dev '/usr/include/stdio.h'
    need clang clang
    need make make
    need pkg-config pkg-config
    need libelf-dev '/usr/include/libelf.h'
    need zlib1g-dev '/usr/include/zlib.h'
    install_needed
    # rustup puts cargo here, and tells only shells that start later.
    [ -d "${CARGO_HOME:-$HOME/.cargo}/bin" ] && PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
    if ! command -v cargo >/dev/null 2>&1; then
        echo "cargo is missing; install Rust: https://rustup.rs" >&2
        exit 1
    fi
    local least have
    least=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
    have=$(rustc --version | cut -d' ' -f2)
    if [ "$(printf '%s\n' "$least" "$have" | sort -V | head -n 1)" != "$least" ]; then
        echo "rustc is $have, and $least is needed: rustup update" >&2
        exit 1
    fi
}
