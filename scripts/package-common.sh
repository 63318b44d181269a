# Sourced by the scripts that make packages of installed files.
# shellcheck shell=bash
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$root/Cargo.toml" | head -n 1)
# shellcheck disable=SC2034
url=$(sed -n 's/^repository = "\(.*\)"$/\1/p' "$root/Cargo.toml")

# Ends with the usage unless there is one argument, a directory, or none.
package_usage() {
    case $#:${1-} in
    0: | 1:[!-]*) ;;
    *)
        echo "usage: [ZARRFS_BINARY=FILE] scripts/$(basename "$0") [DIRECTORY]" >&2
        exit 2
        ;;
    esac
}

# stage DIRECTORY PREFIX SBINDIR: installs to DIRECTORY what scripts/install installs, with the binary of
# ZARRFS_BINARY, or a new one, without its symbols.
stage() {
    local binary=${ZARRFS_BINARY:-$root/target/release/zarrfs} stripped
    if [ -z "${ZARRFS_BINARY-}" ]; then
        (cd "$root" && cargo build --release --locked --features mongodb --target-dir "$root/target") >&2
    fi
    stripped=$(mktemp)
    cp -- "$binary" "$stripped"
    chmod 755 "$stripped"
    # Without symbols it is a fraction of its size.
    if command -v strip >/dev/null; then strip "$stripped"; fi
    DESTDIR=$1 PREFIX=$2 SBINDIR=$3 ZARRFS_BINARY=$stripped "$root/scripts/install" 2>/dev/null
    rm -f "$stripped"
}
