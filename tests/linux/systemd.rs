//! The systemd units: their command lines are run as by systemd, with a listener for readiness.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::place::*;
use crate::support::*;

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts")
}

/// Returns the value of a setting in a unit.
fn value(unit: &str, name: &str) -> String {
    let mut lines = unit.lines();
    let found = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    found.unwrap_or_else(|| panic!("no {name}")).to_owned()
}

/// Returns the command of a unit: `${NAME}` is one word, `$NAME` is split into words.
fn command(line: &str, variables: &[(&str, &str)]) -> Command {
    let of = |name: &str| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.unwrap_or_else(|| panic!("no variable {name}")).1
    };
    let mut words = line.split(' ').flat_map(|word| {
        let whole = word.strip_prefix("${").and_then(|w| w.strip_suffix('}'));
        match (whole, word.strip_prefix('$')) {
            (Some(name), _) => vec![of(name).to_owned()],
            (None, Some(name)) => of(name).split_whitespace().map(str::to_owned).collect(),
            (None, None) => vec![word.to_owned()],
        }
    });
    assert_eq!(words.next().as_deref(), Some("/usr/bin/zarrfs"));
    let mut command = zarrfs();
    command.args(words);
    command
}

#[test]
fn the_service_is_ready_when_it_is_mounted_and_its_stop_line_unmounts() {
    for kind in ["system", "user"] {
        let place = Place::named("a mountpoint");
        let store = place.store_named("a store");
        let unit = scripts().join(format!("systemd/{kind}/zarrfs@.service"));
        let unit = fs::read_to_string(unit).unwrap();
        assert_eq!(value(&unit, "Type"), "notify");
        let variables = [
            ("SOURCE", store.to_str().unwrap()),
            ("MOUNTPOINT", place.path.to_str().unwrap()),
            ("OPTIONS", "--ttl 5s --umask 077"),
        ];
        let path = place.join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let stderr = place.join("stderr");
        let mut start = command(&value(&unit, "ExecStart"), &variables);
        start.env("NOTIFY_SOCKET", &path).stdout(Stdio::null());
        start.stderr(fs::File::create(&stderr).unwrap());
        let mut daemon = Daemon::new(&mut start, stderr);
        let mut message = [0; 4096];
        let length = socket.recv(&mut message).expect("no READY=1");
        let text = std::str::from_utf8(&message[..length]).unwrap();
        assert!(text.lines().any(|line| line == "READY=1"), "{text}");
        assert_serves(&place.path);
        output_of(&mut command(&value(&unit, "ExecStop"), &variables)).ok();
        daemon.ends_well(Duration::from_secs(5));
        place.assert_untouched();
    }
}

#[test]
fn systemd_accepts_the_units() {
    let probe = Command::new("systemd-analyze").arg("--version").output();
    if !probe.is_ok_and(|output| output.status.success()) {
        return skipped("needs systemd-analyze");
    }
    let dir = scratch();
    for unit in [
        "system/zarrfs@.service",
        "user/zarrfs@.service",
        "examples/mnt-ocean.mount",
        "examples/mnt-ocean.automount",
        "examples/zarrfs-metrics.service",
        "examples/zarrfs-metrics.timer",
    ] {
        let text = fs::read_to_string(scripts().join("systemd").join(unit)).unwrap();
        let name = Path::new(unit).file_name().unwrap().to_str().unwrap();
        let binary = zarrfs();
        // systemd-analyze checks that the program exists.
        let text = text.replace("/usr/bin/zarrfs", binary.get_program().to_str().unwrap());
        let file = dir.path().join(name.replace('@', "@ocean"));
        fs::write(&file, text).unwrap();
        let mut verify = Command::new("systemd-analyze");
        verify.args(["verify", "--man=no"]).arg(&file);
        // systemd-analyze needs a runtime directory.
        let verdict = output_of(verify.env("XDG_RUNTIME_DIR", dir.path()));
        let ours: Vec<_> = verdict.err.lines().filter(|l| l.contains(name)).collect();
        assert!(ours.is_empty(), "{unit}: {ours:?}");
    }
}
