//! The mountpoint of a source without MOUNTPOINT: `zarrfs/NAME` in the runtime directory of the user.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::mountpoint::MountEntry;
use super::{Failure, Source, kernel, mount_report, mountpoint, probe};
use crate::view::shell_quoted;

/// The largest number of mounts of sources with the same name.
const MAX_SAME_NAME: u32 = 1000;

/// The mountpoint of a command without MOUNTPOINT.
#[derive(Debug)]
pub(super) enum Chosen {
    /// A directory that was created for the mount.
    New(PathBuf),
    /// The mount that the same command has made before, and the process of its daemon.
    Mounted(PathBuf, u32),
}

/// Creates a directory for a source, or finds the mount that the same command has made.
///
/// # Errors
/// The user has no runtime directory, or the directory cannot be created.
pub(super) fn choose(source: &Source, is_foreground: bool) -> Result<Chosen, Failure> {
    let name = match source {
        Source::Argument(given) => name(given.as_os_str().as_bytes()),
        Source::Demo => b"demo".to_vec(),
    };
    let directory = directory().ok_or_else(|| {
        let example = format!("/tmp/{}", String::from_utf8_lossy(&name));
        format!(
            "no MOUNTPOINT is given, and XDG_RUNTIME_DIR, in which zarrfs creates one, is not set; \
             name an empty directory after SOURCE, such as {} --mkdir",
            shell_quoted(&example)
        )
    })?;
    for number in 1..=MAX_SAME_NAME {
        let mut name = name.clone();
        if number > 1 {
            name.extend(format!("-{number}").bytes());
        }
        let path = directory.join(std::ffi::OsString::from_vec(name));
        let failed = |error: io::Error| format!("mountpoint {}: {error}", path.display());
        let is_taken = match mountpoint::resolve(&path) {
            Ok(resolved) => mountpoint::entry(&resolved).map_err(failed)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(error).into()),
        };
        let same = is_taken.as_ref().filter(|_| !is_foreground);
        if let Some(pid) = same.and_then(|entry| daemon_of_same_command(entry, source, &path)) {
            return Ok(Chosen::Mounted(path, pid));
        }
        // A dead mount of zarrfs is replaced.
        let is_alive =
            is_taken.is_some_and(|entry| entry.kind != kernel::FS_TYPE || !probe::is_dead(&path));
        if !is_alive {
            fs::create_dir_all(&path).map_err(failed)?;
            return Ok(Chosen::New(path));
        }
    }
    let shown = directory.display();
    Err(format!("{shown}: {MAX_SAME_NAME} sources of this name are mounted").into())
}

/// Returns the process of the daemon of a mount, if it answers, and if the same command has started it: with the same
/// arguments, and for a path in the same place.
fn daemon_of_same_command(entry: &MountEntry, source: &Source, path: &Path) -> Option<u32> {
    // The name of a URL with a secret is not in its arguments; the arguments are enough then.
    let is_same = entry.kind == kernel::FS_TYPE
        && mount_report::mount_name(source, &entry.source) == entry.source;
    let pid = is_same.then(|| probe::pid_of(path).ok().flatten())??;
    let arguments = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let is_json = |argument: &&[u8]| *argument == b"--json";
    let arguments = arguments.strip_suffix(b"\0")?.split(|byte| *byte == 0);
    let mut arguments = arguments.skip(1).filter(|argument| !is_json(argument));
    let own: Vec<OsString> = std::env::args_os().skip(1).collect();
    // The daemon has the mountpoint after the arguments of its command.
    let own = own.iter().map(|argument| argument.as_bytes());
    let own = own.filter(|argument| !is_json(argument));
    let is_same = arguments
        .by_ref()
        .eq(own.chain([path.as_os_str().as_bytes()]));
    is_same.then(|| u32::try_from(pid).ok())?
}

/// Returns the line that tells the user the mountpoint.
pub(super) fn line(path: &Path) -> Vec<u8> {
    [path.as_os_str().as_bytes(), b"\n"].concat()
}

/// Removes the directory of a failed mount.
pub(super) fn discard(path: &Path) {
    // Fails for a directory that is mounted on or not empty, which is kept.
    let _ = fs::remove_dir(path);
}

/// Removes the directory of an ended mount, if [`choose`] or `zarrfs run` created it.
pub(super) fn remove(mountpoint: &Path) {
    if super::private_mountpoint().is_some_and(|private| private == mountpoint) {
        let _ = fs::remove_dir(mountpoint);
        return;
    }
    let directory = directory().and_then(|directory| fs::canonicalize(directory).ok());
    if directory.is_some_and(|directory| mountpoint.parent() == Some(&directory)) {
        // Fails for a directory that is not empty or mounted on again, which is kept.
        let _ = fs::remove_dir(mountpoint);
    }
}

fn directory() -> Option<PathBuf> {
    let runtime = PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR")?);
    runtime.is_absolute().then(|| runtime.join("zarrfs"))
}

/// Returns the last component of a path or of a URL without its query.
fn name(source: &[u8]) -> Vec<u8> {
    let end = match source.windows(3).any(|three| three == b"://") {
        true => source.iter().position(|byte| b"?#|;".contains(byte)),
        false => source.iter().position(|byte| *byte == b'|'),
    };
    let source = source.get(..end.unwrap_or(source.len())).unwrap_or(source);
    let is_name = |name: &&[u8]| !matches!(*name, b"" | b"." | b"..") && !name.ends_with(b":");
    let mut names = source.rsplit(|byte| *byte == b'/');
    let name = names.find(is_name).unwrap_or(b"zarr");
    // The authority of a URL may contain a password.
    match name.iter().rposition(|byte| *byte == b'@') {
        Some(at) => name.get(at + 1..).unwrap_or(name).to_vec(),
        None => name.get(..200).unwrap_or(name).to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_the_last_component_without_secrets() {
        for (source, expected) in [
            ("ocean.zarr", "ocean.zarr"),
            ("/data/ocean.zarr/", "ocean.zarr"),
            ("s3://b/x/ocean.zip|zip:inner", "ocean.zip"),
            ("https://h/ocean.zarr?token=s", "ocean.zarr"),
            ("https://u:p@h:80/", "h:80"),
            ("s3://bucket", "bucket"),
            (".", "zarr"),
            ("/", "zarr"),
        ] {
            let found = String::from_utf8(name(source.as_bytes())).unwrap();
            assert_eq!(found, expected, "{source}");
        }
    }
}
