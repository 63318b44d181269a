# Sourced by the scripts that build for other systems: zig as the compiler of C and C++ and as the linker, and
# the standard library of the target.
# shellcheck shell=bash

# Installs zig and cargo-zigbuild into the checkout, and puts them into the PATH.
need_zig() {
    local tools="ziglang==0.17.1 cargo-zigbuild==0.24.0" venv=$root/target/portable-tools
    # Build scripts run here: they need this machine's compiler.
    need_compilers
    need python3:python3
    python3 -c 'import ensurepip, venv' 2>/dev/null || install_packages python3-venv
    if [ "$(cat "$venv/stamp" 2>/dev/null)" != "$tools" ]; then
        say "installing $tools into $venv"
        rm -rf "$venv"
        python3 -m venv "$venv"
        # shellcheck disable=SC2086
        "$venv/bin/pip" install --quiet --disable-pip-version-check $tools
        echo "$tools" >"$venv/stamp"
    fi
    PATH=$venv/bin:$PATH
}

# need_target TARGET: has its standard library installed by rustup. Where rustup cannot, the compiler of Debian
# builds it from its sources; `build_std` has the options of cargo for that.
need_target() {
    build_std=()
    [ ! -d "$(rustc --print sysroot)/lib/rustlib/$1/lib" ] || return 0
    if command -v rustup >/dev/null; then
        say "adding the target $1"
        ! rustup target add "$1" >&2 || return 0
    fi
    say "building the standard library for $1 with Debian's compiler"
    need /usr/bin/rustc:rustc-web /usr/bin/cargo:cargo-web /usr/lib/rustlib/src/rust/library:rust-web-src
    # Only a nightly compiler takes the option by itself.
    export RUSTC_BOOTSTRAP=1 RUSTC=/usr/bin/rustc CARGO=/usr/bin/cargo
    PATH=/usr/bin:$PATH
    build_std=(-Z build-std=std,panic_unwind)
}
