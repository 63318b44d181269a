//! The cores and the memory that this process may use, its mount table, other processes, and files that users name.

mod cgroup;
pub mod mountinfo;
pub mod processes;
pub mod terminal;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::process::{Resource, getrlimit};

/// The assumed memory in bytes if `/proc/meminfo` is unreadable.
const UNKNOWN_MEMORY_BYTES: u64 = 4 << 30;

/// Keeps all descriptors but standard input, output and error from programs that this process starts from now on.
///
/// Those that this program has opened are never inherited. Those of the program that has started this one are
/// inherited otherwise, among them an open `/dev/fuse` for a mount, which must not outlive the daemon in a helper.
pub fn keep_descriptors_from_children() {
    close_fds::set_fds_cloexec_threadsafe(3, &[]);
}

/// Returns the numbers of the descriptors that this process has inherited, but for standard input, output and error.
///
/// Called before [`keep_descriptors_from_children`]: until then, they differ from those that this program has opened.
pub fn inherited_descriptors() -> Vec<i32> {
    let open = close_fds::iter_open_fds(3);
    open.filter(|number| is_inheritable(*number)).collect()
}

/// Returns whether execve(2) leaves a descriptor open (proc_pid_fdinfo(5)).
fn is_inheritable(number: i32) -> bool {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap_or_default();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| !OFlags::from_bits_retain(flags).contains(OFlags::CLOEXEC))
}

/// Returns the number of cores that this process may use, at least 1.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Returns the memory in bytes that this process may use: the smallest of the machine's memory, the
/// limits of its cgroup and of all ancestor cgroups, its address space limit (`ulimit -v`), and the
/// memory that SLURM granted the job on this node.
pub fn memory_bytes() -> u64 {
    let slurm = std::env::var("SLURM_MEM_PER_NODE").ok();
    let limits = [
        cgroup::memory_limit_bytes(Path::new("/")),
        address_space_bytes(),
        slurm.and_then(|text| slurm_bytes(&text)),
    ];
    let limits = limits.into_iter().flatten();
    limits.fold(machine_bytes(), u64::min)
}

/// Returns the limit of address space (`ulimit -v`) in bytes, if it is set.
pub fn address_space_bytes() -> Option<u64> {
    getrlimit(Resource::As).current
}

/// Returns the used address space in bytes.
pub fn used_address_space_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    kilobytes(&status, "VmSize:").unwrap_or(0)
}

fn machine_bytes() -> u64 {
    let table = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    kilobytes(&table, "MemTotal:").unwrap_or(UNKNOWN_MEMORY_BYTES)
}

/// Returns the size in bytes from a line such as `MemTotal:  1024 kB`.
fn kilobytes(table: &str, name: &str) -> Option<u64> {
    let text = table.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = text.trim().trim_end_matches(" kB").parse().ok()?;
    Some(kilobytes.saturating_mul(1024))
}

/// Parses `SLURM_MEM_PER_NODE` into bytes. Its unit is MiB unless it ends with another unit; 0
/// grants all memory of the node.
fn slurm_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let (digits, unit) = match text.char_indices().last()? {
        (at, 'K' | 'k') => (text.get(..at)?, 1 << 10),
        (at, 'M' | 'm') => (text.get(..at)?, 1 << 20),
        (at, 'G' | 'g') => (text.get(..at)?, 1 << 30),
        (at, 'T' | 't') => (text.get(..at)?, 1 << 40),
        _ => (text, 1 << 20),
    };
    let number: u64 = digits.parse().ok()?;
    (number > 0).then(|| number.saturating_mul(unit))
}

/// Reads a whole file.
///
/// # Errors
/// If the file cannot be read or has more than `max_bytes`.
pub fn read_file(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut limited = File::open(path)?.take(max_bytes.saturating_add(1));
    limited.read_to_end(&mut bytes)?;
    match bytes.len() as u64 > max_bytes {
        true => Err(io::ErrorKind::FileTooLarge.into()),
        false => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slurm_counts_in_mebibytes_unless_it_names_a_unit() {
        assert_eq!(slurm_bytes("4096"), Some(4 << 30));
        assert_eq!(slurm_bytes("4G"), Some(4 << 30));
        assert_eq!(slurm_bytes("512K"), Some(512 << 10));
        assert_eq!(slurm_bytes("18446744073709551615T"), Some(u64::MAX));
        for none in ["", "0", "0G", "G", "-1", "many", "é"] {
            assert_eq!(slurm_bytes(none), None, "{none}");
        }
    }

    #[test]
    fn a_line_of_proc_is_in_kilobytes() {
        let table = "MemTotal:       24684072 kB\nMemFree:  7 kB\n";
        assert_eq!(kilobytes(table, "MemTotal:"), Some(24_684_072 << 10));
        assert_eq!(kilobytes(table, "VmSize:"), None);
        assert!(used_address_space_bytes() > 1 << 20);
    }
}
