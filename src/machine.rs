//! What the machine has: cores and memory, for defaults.

/// Cores that this process may use, at least 1.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The machine's memory in bytes, or 4 GiB if it is not told.
pub fn memory_bytes() -> u64 {
    let table = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = table
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"));
    let kilobytes = total.and_then(|text| text.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kilobytes.map_or(4 << 30, |kilobytes| kilobytes.saturating_mul(1024))
}
