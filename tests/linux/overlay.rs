//! A writable tree: overlayfs over a mount.

use crate::place::*;
use crate::support::*;
use std::process::Command;

#[test]
fn writes_to_an_overlay_over_a_mount_leave_the_source_unchanged() {
    if !is_root() {
        return skipped("needs root");
    }
    let place = Place::new();
    let store = place.store();
    // On a tmpfs, because the directory of the tests may itself be on an overlay.
    let script = r#"
        rw=$2/rw; mkdir "$rw"; mount -t tmpfs none "$rw"
        mkdir "$rw/upper" "$rw/work" "$rw/merged"; cd "$rw/merged"; cd /
        mount -t overlay overlay -o "lowerdir=$1,upperdir=$rw/upper,workdir=$rw/work" "$rw/merged"
        cmp "$1/a/c/0" "$rw/merged/a/c/0"
        echo changed > "$rw/merged/zarr.json"
        mkdir "$rw/merged/b"; echo new > "$rw/merged/b/new"
        cp "$rw/merged/a/c/0" "$rw/merged/a/c/1"; cmp "$1/a/c/0" "$rw/merged/a/c/1"
        printf x | dd of="$rw/merged/a/c/0" conv=notrunc status=none
        head -c 1 "$rw/merged/a/c/0"
        rm "$rw/merged/a/c/1"
        ls "$rw/merged" "$rw/merged/a/c"
        cat "$rw/merged/zarr.json"
        ! touch "$1/new" 2>/dev/null
        umount "$rw/merged"
        (cd "$rw/upper" && find . -type f | sort)
    "#;
    for source in [&store, &place.zip_of(&store)] {
        place.mount(source, &[]);
        let mut command = Command::new("unshare");
        command.args(["-m", "bash", "-euc", script, "bash"]);
        let all = output_of(command.arg(&place.path).arg(place.dir()).env("LC_ALL", "C"));
        let merged = place.join("rw/merged");
        let merged = merged.display();
        let wanted = format!(
            "x{merged}:\na\nb\nzarr.json\n\n{merged}/a/c:\n0\nchanged\n./a/c/0\n./b/new\n./zarr.json\n"
        );
        assert_eq!(all.ok().out, wanted, "{all:?}");
        assert_serves(&place.path);
        place.unmount(&[]).ok();
        std::fs::remove_dir(place.join("rw")).unwrap();
    }
    place.assert_untouched();
}

/// Simulates `mountPropagation` of Kubernetes and `rshared` of Docker: a daemon in its own mount
/// namespace, whose mount propagates to the host, and from the host to other containers.
#[test]
fn a_mount_in_a_container_is_seen_by_the_host_and_by_other_containers() {
    if !is_root() {
        return skipped("needs root");
    }
    let place = Place::new();
    place.store();
    let script = r#"
        data=$2/data; mkdir "$data"; mount -t tmpfs none "$data"; mount --make-shared "$data"
        mkdir "$data/ocean"
        container() { unshare -m --propagation "$@"; }
        container unchanged "$3" "$2/store" "$data/ocean" --allow-other
        cat "$data/ocean/zarr.json"
        container slave cat "$data/ocean/zarr.json"
        container unchanged "$3" umount "$data/ocean"
        ! findmnt "$data/ocean"
        # Without the function, whose process would not be the daemon.
        unshare -m --propagation unchanged "$3" "$2/store" "$data/ocean" -f & daemon=$!
        until findmnt "$data/ocean" >/dev/null; do sleep 0.02; done
        kill $daemon; wait $daemon
        ! findmnt "$data/ocean"
    "#;
    let mut command = Command::new("unshare");
    command.args(["-m", "bash", "-euc", script, "bash"]);
    command.arg(&place.path).arg(place.dir());
    let all = output_of(command.arg(zarrfs().get_program()).env("LC_ALL", "C"));
    assert_eq!(all.ok().out, GROUP.repeat(2), "{all:?}");
    place.assert_untouched();
}
