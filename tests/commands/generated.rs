//! `zarrfs completions` and `zarrfs stats`.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::place::{Place, daemon_of, output_of};
use crate::stores::*;
use crate::support::*;

#[test]
fn static_completions_have_every_command() {
    let commands = [
        "mount", "umount", "demo", "tree", "info", "check", "stats", "man",
    ];
    for shell in ["elvish", "powershell"] {
        let text = run_on("completions", shell, &[]);
        for command in commands {
            assert!(text.ok().out.contains(command), "{shell}: no {command}");
        }
        assert!(text.out.contains("memory-limit"), "{shell}");
    }
    run_on("completions", "dos", &[]).failed(2, &["dos"]);
}

/// Checks metrics with promtool, which knows the format and the guidelines for names.
fn check_metrics(text: &str) {
    if !Path::new("/usr/bin/promtool").exists() {
        eprintln!("not checked with promtool, which is not installed (package prometheus)");
        return;
    }
    let file = scratch();
    let file = file.path().join("metrics");
    std::fs::write(&file, text).unwrap();
    let mut promtool = Command::new("/usr/bin/promtool");
    promtool.args(["check", "metrics"]);
    let verdict = output_of(promtool.stdin(std::fs::File::open(&file).unwrap()));
    assert_eq!((verdict.ok().out.as_str(), verdict.err.as_str()), ("", ""));
}

#[test]
fn stats_prints_metrics_for_prometheus() {
    let mount = Mount::new(fixture("dir/v3"));
    assert!(read(mount.join("zarr.json")).is_ok());
    let printed = run_on("stats", mount.path(), &["--prometheus"]);
    let text = &printed.ok().out;
    let labels = format!(
        "{{mountpoint=\"{}\",source=\"{}\"}}",
        mount.path().display(),
        fixture("dir/v3").display()
    );
    for line in [
        format!("zarrfs_up{labels} 1"),
        format!("zarrfs_panics_total{labels} 0"),
        "# TYPE zarrfs_read_duration_seconds histogram".to_owned(),
    ] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
    // Each sample is one of the metric before it.
    let mut metric = String::new();
    for line in text.lines() {
        match line.strip_prefix("# TYPE ") {
            Some(declared) => metric = declared.split(' ').next().unwrap().to_owned(),
            None => assert!(
                line.starts_with("# HELP ") || line.starts_with(&metric),
                "{line}"
            ),
        }
    }
    check_metrics(text);
    let all = output_of(zarrfs().args(["stats", "--prometheus"]));
    assert!(all.ok().out.contains(&format!("zarrfs_up{labels} 1")));
    run_on("stats", mount.path(), &["--prometheus", "--json"]).failed(2, &["--json"]);
    // A daemon that does not answer is a metric.
    sh(&format!("kill -STOP {}", mount.pid()));
    let stopped = run_on("stats", mount.path(), &["--prometheus"]);
    sh(&format!("kill -CONT {}", mount.pid()));
    assert!(
        stopped.ok().out.contains(&format!("zarrfs_up{labels} 0")),
        "{stopped:?}"
    );
    assert!(!stopped.out.contains("zarrfs_panics_total"), "{stopped:?}");
    mount.unmount();
}

#[test]
fn stats_prints_the_metrics_of_the_mount() {
    let mount = Mount::new(fixture("dir/v3"));
    let table = run_on("stats", mount.path(), &[]);
    let json = run_on("stats", mount.path(), &["--json"]);
    let stats = json_of(json.ok());
    assert_eq!(stats["panics"], 0, "{stats}");
    assert_eq!(stats["schema"], "zarrfs.stats/1");
    assert_eq!(stats["pid"], mount.pid());
    assert_eq!(stats["mountpoint"], mount.path().to_str().unwrap());
    assert!(stats["uptime_seconds"].as_f64().unwrap() > 0.0, "{stats}");
    assert!(
        stats["decoded_limit_bytes"].as_u64().unwrap() > 1 << 20,
        "{stats}"
    );
    let source = fixture("dir/v3");
    let pid = format!("(pid {})", mount.pid());
    for words in [
        source.to_str().unwrap(),
        &pid,
        "  uptime ",
        "  memory ",
        "  errors  ",
    ] {
        assert!(table.ok().out.contains(words), "{words}: {table:?}");
    }
    let all = json_of(output_of(zarrfs().args(["stats", "--json"])).ok());
    assert_eq!(all["schema"], "zarrfs.stats-of-all/1");
    let mut mounts = all["mounts"].as_array().unwrap().iter();
    assert!(
        mounts.any(|of| of["mountpoint"] == stats["mountpoint"]),
        "{all}"
    );
    run_on("stats", mount.join("a"), &[]).failed(1, &["nothing is mounted there"]);
    let path = mount.path().to_owned();
    mount.unmount();
    assert!(run_on("stats", &path, &[]).code == Some(1));
    run_on("stats", "/proc", &[]).failed(1, &["/proc", "proc, not zarrfs"]);
}

#[test]
fn watching_stats_ends_with_the_mount() {
    let mount = Mount::new(fixture("dir/v3"));
    let mut watch = zarrfs();
    watch
        .args(["stats", "--watch=50ms", "--json"])
        .arg(mount.path());
    let mut watch = watch
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut uptime = || {
        let line = lines.next().unwrap().unwrap();
        let document: serde_json::Value = serde_json::from_str(&line).unwrap();
        document["uptime_seconds"].as_f64().unwrap()
    };
    let first = uptime();
    assert!(uptime() > first);
    // Lazily, because a running `stats` may keep the mount busy.
    run(zarrfs().args(["umount", "--lazy"]).arg(mount.path()));
    let ended = wait_for(&mut watch, Duration::from_secs(20)).unwrap();
    assert_eq!(ended.code(), Some(1));
}

#[test]
fn a_mount_is_described_as_json() {
    for (option, views) in [("--views=hidden", ".zarrfs"), ("--tree=both", "views")] {
        let place = Place::new();
        let store = place.store();
        let output = place.attempt(&store, &["--json", option]);
        let document = json_of(output.ok());
        assert_eq!(document["schema"], "zarrfs.mount/1");
        assert_eq!(document["source"], store.to_str().unwrap());
        assert_eq!(document["mountpoint"], place.path.to_str().unwrap());
        assert_eq!(document["views"], place.path.join(views).to_str().unwrap());
        assert_eq!(document["pid"], daemon_of(&place.path));
        place.unmount(&[]).ok();
    }
}
