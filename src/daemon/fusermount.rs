//! The program fusermount3: which one is run, and why it may lack the right to mount.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::StatVfsMountFlags;

use crate::machine;

/// The name of the program.
pub(super) const NAME: &str = "fusermount3";
/// The mode bit that lets a program run with the rights of its owner.
const SETUID: u32 = 0o4000;
/// The mode bits of a program that somebody may execute.
const EXECUTABLE: u32 = 0o111;

/// Returns the command of fusermount3, which inherits no descriptors.
pub(super) fn command() -> Command {
    machine::keep_descriptors_from_children();
    Command::new(NAME)
}

/// Returns the reason why the fusermount3 of PATH runs without the rights of root, with advice.
pub(super) fn missing_rights() -> Option<String> {
    // Root lacks the right to mount itself, as in a container.
    if rustix::process::geteuid().is_root() {
        return None;
    }
    let directories = std::env::var_os("PATH")?;
    let mut found = std::env::split_paths(&directories)
        .map(|directory| directory.join(NAME))
        .filter(|path| is_program(path));
    let used = found.next()?;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let is_confined = status.lines().any(|line| line == "NoNewPrivs:\t1");
    let others = found.chain(["/usr/bin", "/bin"].map(|directory| Path::new(directory).join(NAME)));
    reason(&used, is_confined, others)
}

/// As [`missing_rights`], for a program. `others` are paths of other fusermount3 programs, existing or not.
fn reason(
    used: &Path,
    is_confined: bool,
    mut others: impl Iterator<Item = PathBuf>,
) -> Option<String> {
    let shown = used.display();
    if is_confined {
        return Some(format!(
            "{shown} is setuid root to no effect, because this process has no_new_privs: a container needs \
             allowPrivilegeEscalation, a systemd unit NoNewPrivileges=no"
        ));
    }
    if !is_setuid_root(used) {
        let advice = match others.find(|other| is_setuid_root(other) && !is_nosuid(other)) {
            Some(other) => format!(
                "put {} before it in PATH",
                other.parent().unwrap_or(&other).display()
            ),
            None => format!("an administrator can run: chown root {shown} && chmod u+s {shown}"),
        };
        return Some(format!(
            "{shown} is not setuid root, so it cannot mount for an ordinary user; {advice}"
        ));
    }
    is_nosuid(used).then(|| {
        format!(
            "{shown} is setuid root to no effect, because its file system is mounted with nosuid; install the \
             package fuse3 on the system's own file system"
        )
    })
}

fn is_program(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.mode() & EXECUTABLE != 0)
}

fn is_setuid_root(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.mode() & SETUID != 0 && file.uid() == 0)
}

fn is_nosuid(path: &Path) -> bool {
    rustix::fs::statvfs(path).is_ok_and(|system| system.f_flag.contains(StatVfsMountFlags::NOSUID))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_fusermount3_without_setuid_is_named_with_what_to_do() {
        let directory = tempfile::tempdir().unwrap();
        let own = directory.path().join(NAME);
        std::fs::write(&own, "").unwrap();
        std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o755)).unwrap();
        let text = reason(&own, false, [].into_iter()).unwrap();
        let expected = format!("{0} is not setuid root", own.display());
        assert!(text.starts_with(&expected), "{text}");
        assert!(text.contains("chmod u+s"), "{text}");
        let confined = reason(&own, true, [].into_iter()).unwrap();
        assert!(confined.contains("no_new_privs"), "{confined}");
        let other = PathBuf::from("/bin/mount");
        if is_setuid_root(&other) && !is_nosuid(&other) {
            let text = reason(&own, false, [other.clone()].into_iter()).unwrap();
            assert!(text.contains("put /bin before it in PATH"), "{text}");
            assert_eq!(reason(&other, false, [].into_iter()), None);
        }
    }
}
