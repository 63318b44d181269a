# Sourced by the other scripts: installs what is missing on Debian or Ubuntu, and leaves what is
# there alone. As an ordinary user it asks sudo.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() {
    echo "zarrfs: $*" >&2
}

die() {
    say "$*"
    exit 1
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif [ -t 0 ]; then
        sudo "$@"
    else
        sudo -n "$@"
    fi
}

can_install() {
    command -v apt-get >/dev/null && { [ "$(id -u)" = 0 ] || command -v sudo >/dev/null; }
}

apt_get() {
    as_root env DEBIAN_FRONTEND=noninteractive DEBCONF_NOWARNINGS=yes apt-get -qq \
        -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 -o Acquire::Retries=3 "$@" >/dev/null
}

lists_are_new=

update_lists() {
    [ -z "$lists_are_new" ] || return 0
    say "updating the package lists"
    # One broken source must not matter if the others have what is needed.
    apt_get update || say "not all package lists could be updated"
    lists_are_new=yes
}

# install_packages PACKAGE...
install_packages() {
    can_install || die "missing here, please install: $*"
    update_lists
    say "installing $*"
    apt_get install -y --no-install-recommends "$@" || die "could not install $*"
    hash -r
}

# need PROBE:PACKAGE...: installs the packages of which the probe, a command or an absolute path, is
# missing.
need() {
    local item probe missing=()
    for item; do
        probe=${item%%:*}
        if [ "${probe#/}" = "$probe" ]; then
            command -v "$probe" >/dev/null || missing+=("${item#*:}")
        else
            [ -e "$probe" ] || missing+=("${item#*:}")
        fi
    done
    [ ${#missing[@]} = 0 ] || install_packages "${missing[@]}"
}

# at_least MINIMUM VERSION
at_least() {
    [ "$(printf '%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]
}

minimum_rust=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' "$root/Cargo.toml")

rust_is_new_enough() {
    local tool version
    for tool in cargo rustc; do
        version=$("$tool" --version 2>/dev/null | cut -d ' ' -f 2)
        [ -n "$version" ] && at_least "$minimum_rust" "$version" || return 1
    done
}

# The Rust packages of this distribution that are new enough. Debian 12 has a second, newer set of
# them, named -web because browsers are built with it.
rust_packages() {
    local names version
    for names in "cargo rustc rust-clippy rustfmt" "cargo-web rustc-web rust-web-clippy rustfmt-web"; do
        version=$(apt-cache policy "$(cut -d ' ' -f 2 <<<"$names")" | sed -n 's/^ *Candidate: //p')
        if [ -n "$version" ] && at_least "$minimum_rust" "$version"; then
            echo "$names"
            return
        fi
    done
    return 1
}

need_rust() {
    local packages bin=${CARGO_HOME:-${HOME-}/.cargo}/bin
    rust_is_new_enough && return
    if [ -x "$bin/cargo" ]; then
        # Where rustup installs, which is on the PATH of login shells only.
        PATH=$bin:$PATH
        hash -r
        rust_is_new_enough && return
    fi
    if command -v rustup >/dev/null; then
        die "needs Rust $minimum_rust or newer: run 'rustup update stable && rustup default stable'"
    fi
    if can_install; then
        update_lists
        packages=$(rust_packages | cut -d ' ' -f 1,2) || packages=
        # shellcheck disable=SC2086
        [ -z "$packages" ] || install_packages $packages
    fi
    rust_is_new_enough || die "needs Rust $minimum_rust or newer: install it with rustup (rustup.rs)"
}

rust_has_lints() {
    cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1
}

# rustfmt and clippy, of the same toolchain.
need_rust_lints() {
    local packages
    rust_has_lints && return
    if command -v rustup >/dev/null; then
        say "adding rustfmt and clippy to the toolchain"
        rustup component add rustfmt clippy
    elif can_install && [ "$(command -v rustc)" = /usr/bin/rustc ]; then
        update_lists
        packages=$(rust_packages) || packages=
        # shellcheck disable=SC2086
        [ -z "$packages" ] || install_packages $packages
    fi
    rust_has_lints || die "needs the rustfmt and clippy of $(rustc --version)"
}

# What compiles zarrfs and the C and C++ code of its codecs.
need_compilers() {
    need cc:gcc c++:g++ make:make pkg-config:pkg-config /usr/include/stdio.h:libc6-dev \
        /etc/ssl/certs/ca-certificates.crt:ca-certificates
    need_rust
}

fuse_opens() {
    [ -c /dev/fuse ] && (: <>/dev/fuse) 2>/dev/null
}

# What a mount needs.
need_fuse() {
    need fusermount3:fuse3
    fuse_opens && return
    if [ ! -e /dev/fuse ]; then
        say "/dev/fuse is absent: loading the module"
        as_root modprobe fuse 2>/dev/null || true
        # Where no udev runs, the module alone makes no node.
        [ -e /dev/fuse ] || as_root mknod -m 666 /dev/fuse c 10 229 2>/dev/null || true
    fi
    fuse_opens || die "/dev/fuse cannot be opened for reading and writing (a container needs --device /dev/fuse --privileged)"
}

# need_venv DIRECTORY REQUIREMENT...: a Python environment with these packages, made anew if the list has changed.
need_venv() {
    need_venv_of python3 "$@"
}

# need_venv_of PYTHON DIRECTORY REQUIREMENT...: as need_venv, for this Python.
need_venv_of() {
    local python=$1 directory=$2
    shift 2
    [ "$(cat "$directory/stamp" 2>/dev/null)" != "$*" ] || return 0
    "$python" -c 'import ensurepip, venv' 2>/dev/null || install_packages python3-venv
    say "creating $directory"
    rm -rf "$directory"
    "$python" -m venv "$directory"
    "$directory/bin/pip" install --quiet --disable-pip-version-check "$@"
    echo "$*" >"$directory/stamp"
}

# python_of N: the Python 3.N of the PATH, or of pyenv, if there is one that can make environments.
python_of() {
    local python
    for python in "python3.$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/3.$1".*/bin/python; do
        if "$python" -c 'import ensurepip, venv' 2>/dev/null; then
            echo "$python"
            return
        fi
    done
    return 1
}

# Installs what writes the databases of the tests: db_load, and packages of the system's Python.
need_databases() {
    need /usr/bin/python3:python3 db_load:db-util
    /usr/bin/python3 -c 'import dbm.gnu, dbm.ndbm' 2>/dev/null || install_packages python3-gdbm
    # Not in every release; its databases are written by db_load where it is not.
    /usr/bin/python3 -c 'import bsddb3' 2>/dev/null || ! apt-cache show python3-bsddb3 >/dev/null 2>&1 ||
        install_packages python3-bsddb3
}
