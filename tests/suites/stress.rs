//! stress-ng: its stressors of file systems on an overlay above a mount, where the mount is the lower directory of
//! every lookup. On the mount itself none runs: each begins with a directory or file that it creates.

use std::process::Command;
use std::time::Duration;

use crate::has;
use crate::support::place::*;
use crate::support::*;

/// Stressors with `--verify` that make their files in a directory and change nothing else of the system. Of the class
/// `filesystem`, the others mount (bind-mount, binderfs), need a device or a file system with more calls than an
/// overlay (chattr, fiemap, verity, inode-flags, hdd, sync-file), or do not use the directory (procfs, eventfd, ioprio,
/// fpunch and so on).
const STRESSORS: [&str; 20] = [
    "access",
    "chdir",
    "chmod",
    "chown",
    "copy-file",
    "dentry",
    "dir",
    "dirdeep",
    "dirmany",
    "fcntl",
    "filename",
    "flock",
    "fstat",
    "getdent",
    "link",
    "open",
    "rename",
    "symlink",
    "touch",
    "utime",
];

#[test]
fn stressors_on_an_overlay_above_a_mount_change_nothing_below() {
    if !is_root() {
        return skipped("needs root");
    }
    if !has("stress-ng") {
        return skipped("needs stress-ng");
    }
    let place = Place::new();
    let store = place.store();
    place.mount(place.zip_of(&store), &[]);
    let script = r#"
        rw=$2/rw; mkdir "$rw"; mount -t tmpfs none "$rw"
        mkdir "$rw/upper" "$rw/work" "$rw/merged"
        mount -t overlay overlay -o "lowerdir=$1,upperdir=$rw/upper,workdir=$rw/work" "$rw/merged"
        shift 2
        for stressor; do set -- "$@" "--$stressor" 1; shift; done
        cd "$rw/merged"
        status=0
        stress-ng --verify --timeout 3s --temp-path "$rw/merged" "$@" 2>&1 || status=$?
        cmp "$rw/merged/a/c/0" "$OLDPWD/a/c/0" || status=9
        cd /; umount "$rw/merged"
        exit "$status"
    "#;
    let mut command = Command::new("unshare");
    command.args(["-m", "bash", "-euc", script, "bash"]);
    command.arg(&place.path).arg(place.dir()).args(STRESSORS);
    let output = run_for(command.current_dir(&place.path), Duration::from_secs(90));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && !text.contains("fail:"),
        "{} {text}",
        output.status
    );
    assert_serves(&place.path);
    place.unmount(&[]).ok();
    std::fs::remove_dir(place.join("rw")).unwrap();
    place.assert_untouched();
}
