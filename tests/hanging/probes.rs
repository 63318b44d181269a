//! `zarrfs stats --prometheus` tells a daemon that hangs from a source that hangs.

use std::time::{Duration, Instant};

use crate::clients::*;
use crate::gate::*;
use crate::support::*;

#[test]
fn stats_for_prometheus_tell_a_stopped_daemon_from_a_hanging_source() {
    let hanging = Hanging::new(&["a/0", "b/0"], &["--timeout", "60s"]);
    hanging.close_for_all();
    let path = &hanging.mount.path;
    let mut reader = start("cat", &[&hanging.join("b/0")]);
    hangs(&mut reader, "a reader");
    let samples = || {
        let mut stats = zarrfs();
        stats.args(["stats", "--prometheus"]).arg(path);
        let output = run_for(&mut stats, Duration::from_secs(60));
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let value = |text: &str, name: &str| {
        let start = format!("{name}{{mountpoint=\"{}\",", path.display());
        let sample = text.lines().find(|line| line.starts_with(&start));
        sample.and_then(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
    };
    let begun = Instant::now();
    let text = samples();
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    assert_eq!(value(&text, "zarrfs_up"), Some(1.0), "{text}");
    // The kernel gives the number only if fusectl is mounted.
    if let Some(waiting) = value(&text, "zarrfs_waiting_requests") {
        assert!(waiting >= 1.0, "{text}");
    }

    let stopped = Stopped::new(hanging.mount.daemon.id());
    let text = samples();
    assert_eq!(value(&text, "zarrfs_up"), Some(0.0), "{text}");
    assert_eq!(value(&text, "zarrfs_start_time_seconds"), None, "{text}");
    drop(stopped);
    hanging.open();
    assert_eq!(value(&samples(), "zarrfs_up"), Some(1.0));
}
