# Sourced by the benchmarks: builds what they measure, in release.
# shellcheck shell=bash
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

need_compilers
need python3:python3
need_fuse
programs=$root/target/bench
mkdir -p "$programs"

# Not `cd`: file names in the arguments are relative to where the caller is.
release_build() {
    cargo build --release --locked --manifest-path "$root/Cargo.toml" "$@"
}

# has_option OPTION ARGUMENT...: whether the option is one of the arguments.
has_option() {
    local option=$1 argument
    shift
    for argument; do
        [ "$argument" != "$option" ] || return 0
    done
    return 1
}

# build_zarrfs ARGUMENT...: builds zarrfs, unless the arguments name another one.
build_zarrfs() {
    has_option --zarrfs "$@" || release_build --bin zarrfs
}

# build_bare ARGUMENT...: sets `bare` to the option for the bare file system, unless the arguments have it or need none.
build_bare() {
    bare=()
    if ! has_option --bare "$@" && ! has_option --only-zarrfs "$@"; then
        # shellcheck disable=SC2034
        bare=(--bare "$(
            release_build --quiet --bench bare --message-format=json | python3 -c 'import json, sys
built = [json.loads(line) for line in sys.stdin]
print(next(b["executable"] for b in built if b.get("target", {}).get("name") == "bare" and b["executable"]))'
        )")
    fi
}

# build_programs NAME...: compiles programs of tests/bench.
build_programs() {
    local name
    for name; do
        cc -O2 -Wall -Wextra -pthread -o "$programs/$name" "$root/tests/bench/$name.c"
    done
}

# Sets `python` to that of the libraries beside remote sources.
need_remote_python() {
    "$root/tests/servers/setup.sh"
    need_venv "$programs/remote-venv" zarr tensorstore fsspec aiohttp
    # shellcheck disable=SC2034
    python=$programs/remote-venv/bin/python
}
