//! The manifests for Kubernetes, run by crun in the order of a kubelet (`pods.py`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::json;

use crate::parts::{assert_file_is_whole, assert_results_are_whole, store_with_damage};
use crate::place::*;
use crate::servers::Moto;
use crate::support::*;

/// Its own mounts; crun refuses a machine that has control groups of both versions.
const INSIDE: &str = r#"
    # Those of other tests: here, they would keep their daemons.
    umount --no-canonicalize --lazy --all --types fuse.zarrfs || true
    mount -t cgroup2 none /sys/fs/cgroup
    exec /usr/bin/python3 "$0" "$@"
"#;

/// Returns the reason why crun cannot run a container here, if any.
fn lacks_crun() -> Option<String> {
    if !is_root() {
        return Some("needs root".into());
    }
    let mut probe = Command::new("unshare");
    let script = "crun --version && mount -t cgroup2 none /sys/fs/cgroup && /usr/bin/python3 -c 'import yaml'";
    probe.args(["--mount", "sh", "-euc", script]);
    let probe = output_of(&mut probe);
    (probe.code != Some(0)).then(|| {
        let last = probe.err.lines().last().unwrap_or_default().to_owned();
        format!("needs crun, python3-yaml and the right to mount cgroup2: {last}")
    })
}

/// A store in a bucket, and the directory of a pod that reads it.
struct Cluster {
    place: Place,
    store: PathBuf,
    moto: Moto,
}

impl Cluster {
    /// Uploads a store to `s3://bucket/ocean.zarr`, the source of the manifests.
    fn new() -> Self {
        let place = Place::new();
        let store = store_with_damage(&place);
        let tree = place.make_dir("tree");
        run(Command::new("cp")
            .arg("-r")
            .arg(&store)
            .arg(tree.join("ocean.zarr")));
        let moto = Moto::start();
        moto.put("bucket", &tree);
        Self { place, store, moto }
    }

    /// Runs a scenario of `pods.py`; returns its output.
    fn run(&self, scenario: &str) -> String {
        let secret = json!({
            "AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any", "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.moto.endpoint(),
        });
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/linux/pods.py");
        let mut command = Command::new("unshare");
        // With it end all containers, also when it is killed.
        command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
        command
            .args(["--mount", "bash", "-euc", INSIDE])
            .arg(script);
        command.arg(scenario).arg(self.place.join("pod"));
        command.arg(zarrfs().get_program()).arg(secret.to_string());
        let output = run_for(&mut command, Duration::from_secs(100));
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{error}");
        self.place.assert_untouched();
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns what the commands of the scenarios print that read.
    fn content(&self) -> String {
        let mut sum = Command::new("cksum");
        sum.stdin(fs::File::open(self.store.join("sst/c/15")).unwrap());
        format!("{GROUP}{}", run(&mut sum))
    }
}

#[test]
fn a_sidecar_mounts_for_its_pod_and_comes_back_under_a_running_program() {
    if let Some(reason) = lacks_crun() {
        return skipped(reason);
    }
    let cluster = Cluster::new();
    assert_eq!(cluster.run("sidecar"), cluster.content());
}

#[test]
fn a_sidecar_without_capabilities_serves_a_device_that_a_driver_passes() {
    if let Some(reason) = lacks_crun() {
        return skipped(reason);
    }
    let cluster = Cluster::new();
    assert_eq!(cluster.run("unprivileged"), cluster.content());
}

#[test]
fn the_mount_of_a_node_is_seen_by_its_pods_and_replaced_by_the_next_one() {
    if let Some(reason) = lacks_crun() {
        return skipped(reason);
    }
    let cluster = Cluster::new();
    assert_eq!(cluster.run("daemonset"), cluster.content());
}

#[test]
fn the_pods_of_an_indexed_job_share_one_check_and_one_file() {
    if let Some(reason) = lacks_crun() {
        return skipped(reason);
    }
    let cluster = Cluster::new();
    let names: Vec<_> = (0..8).map(|index| format!("check-{index}.json")).collect();
    assert_eq!(cluster.run("job"), format!("{} sst.npy\n", names.join(" ")));
    let results = cluster.place.join("pod/results");
    assert_results_are_whole(&results, &cluster.store);
    assert_file_is_whole(&results.join("sst.npy"), &cluster.store);
}
