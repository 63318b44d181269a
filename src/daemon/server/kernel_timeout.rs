//! The time limit of the kernel for requests (Linux 6.15, Documentation/admin-guide/sysctl/fs.rst).
//!
//! If one request exceeds it, the kernel aborts the whole connection, and the mount is dead.

use std::fs;
use std::path::Path;
use std::time::Duration;

/// The directory of the settings.
const DIRECTORY: &str = "/proc/sys/fs/fuse";
/// The kernel raises a shorter limit to this one, which is the interval of its checks.
const MIN: Duration = Duration::from_secs(15);
/// The least time between the limit of the daemon and that of the kernel. A request that waits fails one second
/// after `--timeout`, and late if the machine is busy.
const MARGIN: Duration = Duration::from_secs(3);

/// Returns a lower `--timeout`, with a warning, if the kernel aborts connections at about that time or before.
pub(super) fn lowered(timeout: Duration) -> Option<(Duration, String)> {
    lowered_in(Path::new(DIRECTORY), timeout)
}

fn lowered_in(directory: &Path, timeout: Duration) -> Option<(Duration, String)> {
    let setting = |name: &'static str| {
        let text = fs::read_to_string(directory.join(name)).ok()?;
        let seconds: u64 = text.trim().parse().ok()?;
        // 0 is no limit.
        (seconds > 0).then(|| (Duration::from_secs(seconds), name))
    };
    // The default is for daemons that request no limit, such as this one. The maximum is for all.
    let settings = ["max_request_timeout", "default_request_timeout"];
    let (limit, name) = settings.into_iter().filter_map(setting).min()?;
    let usable = limit.max(MIN).saturating_sub(MARGIN);
    (usable < timeout).then(|| {
        let warning = format!(
            "--timeout is {usable:?} instead of {timeout:?}: after {limit:?} for one request (sysctl \
             fs.fuse.{name}), the kernel ends the whole mount"
        );
        (usable, warning)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shorter_limit_of_the_kernel_lowers_the_timeout() {
        let directory = tempfile::tempdir().unwrap();
        let timeout = Duration::from_secs(30);
        let lowered = |max: Option<&str>, default: Option<&str>| {
            for (name, value) in [
                ("max_request_timeout", max),
                ("default_request_timeout", default),
            ] {
                let path = directory.path().join(name);
                let _ = fs::remove_file(&path);
                if let Some(value) = value {
                    fs::write(path, value).unwrap();
                }
            }
            lowered_in(directory.path(), timeout).map(|(limit, text)| (limit.as_secs(), text))
        };
        for (max, default, expected) in [
            (None, None, None),
            (Some("0\n"), Some("0\n"), None),
            (Some("60\n"), Some("120\n"), None),
            // The margin is needed at the limit of the daemon itself, too.
            (Some("31\n"), None, Some((28, "max_request_timeout"))),
            (
                Some("30\n"),
                Some("20\n"),
                Some((17, "default_request_timeout")),
            ),
            (Some("20\n"), Some("0\n"), Some((17, "max_request_timeout"))),
            // The kernel checks only every 15 s.
            (Some("1\n"), None, Some((12, "max_request_timeout"))),
        ] {
            let found = lowered(max, default);
            let seconds = found.as_ref().map(|(seconds, _)| *seconds);
            assert_eq!(
                seconds,
                expected.map(|(seconds, _)| seconds),
                "{max:?} {default:?}"
            );
            if let (Some((_, text)), Some((_, name))) = (found, expected) {
                assert!(text.contains(name), "{text}");
            }
        }
    }
}
