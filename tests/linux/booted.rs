//! systemd as process 1 in its own namespaces, with a fstab and the units of zarrfs.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::place::*;
use crate::support::*;

/// Creates a control group, in which systemd behaves like the first process of a machine. `$1` is
/// the scratch directory, `$2` the script of the namespaces.
const OUTSIDE: &str = r#"
    # Those of other tests: here, they would keep their daemons, and systemd would ask those that hang.
    umount --no-canonicalize --lazy --all --types fuse.zarrfs || true
    groups="$1/groups"
    mkdir "$groups"
    mount -t cgroup2 none "$groups"
    own="$groups/zarrfs-test-$$"
    mkdir "$own"
    trap 'echo $$ > "$groups/cgroup.procs"; find "$own" -depth -type d -exec rmdir {} +' EXIT
    echo $$ > "$own/cgroup.procs"
    timeout -k 5 60 unshare --cgroup --pid --fork --kill-child --mount --uts --ipc \
        bash -euc "$2" bash "$1"
"#;

/// Gives the machine its own /etc and units, and only `$1/script` to start, whose output goes to
/// `$1/output`.
const INSIDE: &str = r#"
    mount -t proc proc /proc
    mount -t cgroup2 none /sys/fs/cgroup
    mount -t tmpfs none /run
    mkdir "$1/etc"
    cp -a /etc/. "$1/etc"
    rm -rf "$1/etc/systemd/system" "$1/etc/zarrfs"
    mkdir -p "$1/etc/systemd/system" "$1/etc/zarrfs"
    cp "$1/fstab" "$1/etc/fstab"
    cp "$1/units/"* "$1/etc/systemd/system"
    install -m 600 "$1/ocean.env" "$1/etc/zarrfs/ocean.env"
    ln -s /dev/null "$1/etc/systemd/system/tmp.mount"
    mount --bind "$1/etc" /etc
    sbin=$(realpath /sbin)
    mkdir "$1/sbin"
    cp -a "$sbin/." "$1/sbin"
    ln -sf "$(cat "$1/binary")" "$1/sbin/mount.zarrfs"
    mount --bind "$1/sbin" "$sbin"
    for wanted in sysinit.target.wants local-fs.target.wants; do
        for units in /lib/systemd/system /usr/lib/systemd/system; do
            [ ! -d "$units/$wanted" ] || mount -t tmpfs none "$units/$wanted"
        done
    done
    cat > /etc/systemd/system/zarrfs-test.service <<END
[Unit]
DefaultDependencies=no
[Service]
Type=oneshot
StandardOutput=file:$1/output
StandardError=file:$1/output
ExecStart=/bin/bash -eu $1/script
ExecStopPost=/bin/kill -RTMIN+14 1
END
    export container=docker
    exec /lib/systemd/systemd --system --unit=zarrfs-test.service --log-target=console
"#;

/// Boots with a fstab, runs a script and returns its output.
fn boot(place: &Place, fstab: &str, script: &str) -> String {
    let write = |name: &str, text: &str| fs::write(place.join(name), text).unwrap();
    write("fstab", fstab);
    write("script", &format!("{script}\necho all of it\n"));
    let binary = zarrfs();
    let binary = binary.get_program().to_str().unwrap();
    write("binary", binary);
    fs::create_dir(place.join("units")).unwrap();
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/systemd/system/zarrfs@.service");
    let unit = fs::read_to_string(unit).unwrap();
    write(
        "units/zarrfs@.service",
        &unit.replace("/usr/bin/zarrfs", binary),
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "bash", "-euc", OUTSIDE, "bash"]);
    command.arg(place.dir()).arg(INSIDE);
    let console = run_for(
        command.stdin(Stdio::null()),
        std::time::Duration::from_secs(80),
    );
    let output = fs::read_to_string(place.join("output"));
    let output = output.unwrap_or_else(|e| panic!("systemd ran no script ({e}): {console:?}"));
    assert!(output.ends_with("all of it\n"), "{output}\n{console:?}");
    output
}

/// Returns the reason why systemd cannot be started here, if any.
fn lacks_systemd() -> Option<&'static str> {
    if !is_root() {
        return Some("needs root");
    }
    let mut probe = Command::new("unshare");
    let script = "mount -t cgroup2 none /mnt && [ -x /lib/systemd/systemd ]";
    let flags = ["--cgroup", "--pid", "--fork", "--mount", "--uts", "--ipc"];
    probe.args(flags).args(["sh", "-c", script]);
    let can = run_for(&mut probe, std::time::Duration::from_secs(10));
    (!can.status.success()).then_some("needs systemd, namespaces and control groups")
}

#[test]
fn systemd_mounts_an_fstab_entry_on_access_and_unmounts_it_when_idle() {
    if let Some(reason) = lacks_systemd() {
        return skipped(reason);
    }
    if !Path::new("/dev/autofs").exists() {
        return skipped("needs /dev/autofs, without which systemd has no automounts");
    }
    let place = Place::named("ocean");
    place.zip_of(&place.store());
    fs::write(place.join("ocean.env"), "AWS_ACCESS_KEY_ID=x\n").unwrap();
    let fstab = format!(
        "{}/store.zip {} zarrfs _netdev,nofail,x-systemd.automount,x-systemd.idle-timeout=4,\
         env_file=/etc/zarrfs/ocean.env,allow_other 0 0\n",
        place.dir().display(),
        place.path.display(),
    );
    let script = format!(
        r#"
        ocean={}
        kinds() {{ findmnt -no FSTYPE "$ocean" | tr '\n' ' '; echo; }}
        systemctl start remote-fs.target
        kinds
        ls "$ocean"
        kinds
        unit=$(systemd-escape --path --suffix=mount "$ocean")
        systemctl is-active "$unit"
        i=0
        while systemctl --quiet is-active "$unit" && [ $i -lt 300 ]; do sleep 0.1; i=$((i + 1)); done
        kinds
        # An open file delays the unmount.
        exec 3< "$ocean/zarr.json"
        sleep 10
        kinds
        cat <&3
        exec 3<&-
        echo
        systemctl stop "$unit" 2>/dev/null
        # By hand, in place of systemd.
        mount "$ocean"
        kinds
        umount "$ocean"
        kinds
        "#,
        place.path.display()
    );
    let wanted = [
        "autofs ",
        "a",
        "zarr.json",
        "autofs fuse.zarrfs ",
        "active",
        "autofs ",
        "autofs fuse.zarrfs ",
        GROUP,
        "autofs fuse.zarrfs ",
        "autofs ",
        "all of it",
    ];
    let output = boot(&place, &fstab, &script);
    assert_eq!(output.lines().collect::<Vec<_>>(), wanted, "{output}");
    place.assert_untouched();
}

#[test]
fn systemd_starts_the_service_when_it_is_mounted_and_stops_it_by_unmounting() {
    if let Some(reason) = lacks_systemd() {
        return skipped(reason);
    }
    let place = Place::named("ocean");
    let store = place.store_named("a store");
    let environment = format!(
        "SOURCE={}\nMOUNTPOINT={}\nOPTIONS=--allow-other --ttl 5s\n",
        store.display(),
        place.path.display(),
    );
    fs::write(place.join("ocean.env"), environment).unwrap();
    let script = format!(
        r#"
        ocean={}
        systemctl start zarrfs@ocean
        findmnt -no FSTYPE "$ocean"
        setpriv --reuid=65534 --clear-groups cat "$ocean/zarr.json"
        echo
        systemctl restart zarrfs@ocean
        findmnt -no FSTYPE "$ocean"
        systemctl stop zarrfs@ocean
        findmnt "$ocean" || systemctl is-failed zarrfs@ocean || true
        # A daemon that is killed comes back.
        systemctl start zarrfs@ocean
        systemctl kill --signal=KILL zarrfs@ocean
        i=0
        while ! cat "$ocean/zarr.json" 2>/dev/null && [ $i -lt 300 ]; do sleep 0.1; i=$((i + 1)); done
        echo
        systemctl stop zarrfs@ocean
        # What cannot be mounted is a failure of the unit.
        mkdir "$ocean/in-the-way"
        systemctl start zarrfs@ocean 2>/dev/null || systemctl show -P ExecMainStatus zarrfs@ocean
        systemctl stop zarrfs@ocean
        rmdir "$ocean/in-the-way"
        "#,
        place.path.display()
    );
    let wanted = [
        "fuse.zarrfs",
        GROUP,
        "fuse.zarrfs",
        "inactive",
        GROUP,
        "32",
        "all of it",
    ];
    let output = boot(&place, "", &script);
    assert_eq!(output.lines().collect::<Vec<_>>(), wanted, "{output}");
    place.assert_untouched();
}
