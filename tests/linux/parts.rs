//! One check and one file by many processes, as in the manual: a job array on a SLURM cluster of one node that the test
//! starts and ends, and workers of Dask.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::place::*;
use crate::servers::Port;
use crate::support::*;

/// Starts munged, slurmctld and slurmd in the directory `$1`, with the ports `$2` and `$3`. Submits `$1/job` in
/// `$1/run` and waits for all tasks. Exits with 77 if the cluster does not start.
const CLUSTER: &str = r#"
    cd "$1"
    mkdir spool state run
    head -c 1024 /dev/urandom > key
    chmod 400 key
    host=$(uname -n | cut -d . -f 1)
    cat > slurm.conf <<END
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$2
SlurmdPort=$3
AuthInfo=socket=$1/munge.socket
CredType=cred/munge
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
StateSaveLocation=$1/state
SlurmdSpoolDir=$1/spool
SlurmctldPidFile=$1/slurmctld.pid
SlurmdPidFile=$1/slurmd.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,bf_interval=1,sched_min_interval=0
NodeName=$host NodeAddr=127.0.0.1 CPUs=8
PartitionName=all Nodes=ALL Default=YES
END
    export SLURM_CONF=$1/slurm.conf PATH=$1/bin:$PATH:/usr/sbin:/sbin
    trap 'kill $daemons 2>/dev/null || true; wait' EXIT
    within() { end=$((SECONDS + 20)); until "$@"; do [ $SECONDS -lt $end ] || exit 77; sleep 0.1; done; }
    munged --foreground --force --key-file "$1/key" --socket "$1/munge.socket" --pid-file "$1/munge.pid" \
        --log-file "$1/munge.log" --seed-file "$1/munge.seed" & daemons=$!
    within test -S munge.socket
    slurmctld -D -f "$1/slurm.conf" & daemons="$daemons $!"
    slurmd -D -f "$1/slurm.conf" & daemons="$daemons $!"
    is_idle() { [ "$(timeout 2 sinfo -ho %T)" = idle ]; }
    within is_idle
    cd run
    timeout 60 sbatch --wait ../job
"#;

/// Returns the code block of a page of the manual that contains a text.
fn code_block(page: &str, text: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/manual");
    let page = fs::read_to_string(path.join(page)).unwrap();
    let mut blocks = page.split("\n```").filter(|block| block.contains(text));
    let block = blocks.next().expect("a block with the text");
    // Its first line is the language.
    block.split_once('\n').unwrap().1.to_owned()
}

/// Writes an array of 16 chunks of 64 bytes, with another size of the last one if it is damaged.
fn write_array(path: &Path, is_damaged: bool) {
    fs::create_dir_all(path.join("c")).unwrap();
    let document = json!({
        "zarr_format": 3, "node_type": "array", "shape": [1024], "data_type": "uint8", "fill_value": 0,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [64]}},
        "chunk_key_encoding": {"name": "default"}, "codecs": ["bytes"],
    });
    fs::write(path.join("zarr.json"), document.to_string()).unwrap();
    for chunk in 0..16 {
        let size = if is_damaged && chunk == 15 { 10 } else { 64 };
        fs::write(path.join(format!("c/{chunk}")), vec![chunk + 1; size]).unwrap();
    }
}

/// Creates a store with an array `sst` and one whose last chunk is damaged.
pub fn store_with_damage(place: &Place) -> PathBuf {
    let store = place.store();
    write_array(&store.join("sst"), false);
    write_array(&store.join("damaged"), true);
    store
}

/// Asserts that the results in a directory are those of one process.
#[track_caller]
pub fn assert_results_are_whole(results: &Path, store: &Path) {
    let merge = r#"cd "$1" && "$2" check --merge check-*.json --json"#;
    let mut merged = Command::new("sh");
    merged.args(["-c", merge, "sh"]).arg(results);
    let merged = output_of(merged.arg(zarrfs().get_program()));
    let whole = output_of(zarrfs().args(["check", "--json"]).arg(store));
    assert_eq!((merged.code, whole.code), (Some(1), Some(1)), "{merged:?}");
    let counts = |output: &CommandOutput| {
        let document: Value = serde_json::from_str(&output.out).unwrap();
        assert!(document["summary"].is_object(), "{output:?}");
        let counts = ["arrays", "chunks", "bad", "read_bytes"];
        let counts = counts.map(|name| document["summary"][name].clone());
        (counts, document["bad"].clone())
    };
    assert_eq!(counts(&merged), counts(&whole));
    assert_eq!(counts(&whole).0[1], 32, "{whole:?}");
}

/// Asserts that a file that was written in parts is that of one process.
#[track_caller]
pub fn assert_file_is_whole(file: &Path, store: &Path) {
    let alone = file.with_file_name("alone.npy");
    let source = format!("{}:sst", store.display());
    output_of(zarrfs().args(["export", &source]).arg(&alone)).ok();
    assert!(fs::read(file).unwrap() == fs::read(&alone).unwrap());
    // Nothing of the parts is left beside it.
    let names = fs::read_dir(file.parent().unwrap()).unwrap();
    let hidden = names.filter(|name| name.as_ref().unwrap().file_name().as_bytes()[0] == b'.');
    assert_eq!(hidden.count(), 0);
}

/// Replaces texts that must occur.
fn replaced(mut text: String, pairs: &[(&str, &str)]) -> String {
    for (from, to) in pairs {
        assert!(text.contains(from), "{text}");
        text = text.replace(from, to);
    }
    text
}

#[test]
fn the_job_array_of_the_manual_runs_on_a_slurm_cluster() {
    for program in [
        "/usr/sbin/munged",
        "/usr/sbin/slurmctld",
        "/usr/sbin/slurmd",
    ] {
        if !Path::new(program).exists() {
            return skipped(format!("needs {program} (packages munge and slurm-wlm)"));
        }
    }
    let place = Place::new();
    let store = store_with_damage(&place);
    let scratch = place.make_dir("scratch");
    let job = replaced(
        code_block("hpc.md", "#SBATCH --array=1-8"),
        &[
            ("s3://bucket/ocean.zarr", store.to_str().unwrap()),
            (" --anonymous", ""),
            ("/scratch", scratch.to_str().unwrap()),
        ],
    );
    fs::write(place.join("job"), job).unwrap();
    let bin = place.make_dir("bin");
    std::os::unix::fs::symlink(zarrfs().get_program(), bin.join("zarrfs")).unwrap();
    let mut cluster = Command::new("bash");
    cluster.args(["-euc", CLUSTER, "bash"]).arg(place.dir());
    let ports = [Port::free(), Port::free()];
    cluster.args(ports.each_ref().map(|port| port.number.to_string()));
    let output = run_for(&mut cluster, Duration::from_secs(100));
    let messages = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(77) {
        let with = |word: &&str| messages.lines().rev().find(|line| line.contains(word));
        let reason = ["fatal", "not found", "error"].iter().find_map(with);
        return skipped(format!(
            "SLURM does not start: {}",
            reason.unwrap_or("no reason")
        ));
    }
    assert!(output.status.success(), "{messages}");

    assert_results_are_whole(&place.join("run"), &store);
    assert_file_is_whole(&scratch.join("sst.npy"), &store);
    place.assert_untouched();
}

#[test]
fn the_script_for_dask_of_the_manual_runs_with_worker_processes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = root.join("tests/python/.venvs/main/bin/python");
    let probe = Command::new(&python)
        .args(["-c", "import distributed"])
        .output();
    if !probe.is_ok_and(|output| output.status.success()) {
        return skipped("needs Dask (tests/python/setup.sh)");
    }
    let place = Place::new();
    let store = store_with_damage(&place);
    let script = replaced(
        code_block("hpc.md", "dask.distributed"),
        &[
            // Before the path of the store, which may have the same digits.
            ("/64", "/8"),
            ("65)", "9)"),
            ("s3://bucket/ocean.zarr", store.to_str().unwrap()),
            (", \"--anonymous\"", ""),
        ],
    );
    let results = place.make_dir("results");
    let bin = zarrfs().get_program().to_owned();
    let bin = Path::new(&bin).parent().unwrap().to_owned();
    let path = std::env::var("PATH").unwrap();
    let mut dask = Command::new(&python);
    dask.current_dir(&results).args(["-c", &script]);
    dask.env("PATH", format!("{}:{path}", bin.display()));
    // The last line of the script is the merge, which fails for the damaged chunk.
    output_of(&mut dask).failed(1, &["check --merge"]);
    assert_results_are_whole(&results, &store);
    place.assert_untouched();
}
