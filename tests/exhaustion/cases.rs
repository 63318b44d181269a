//! One failure in a process of its own: a mount, the lookup of a path and its listing or read, during which something
//! fails; then the same without a failure.

use std::env;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use zarrfs::fs::Fs;

use crate::mounted::{Failed, mount, visit};
use crate::{allocator, kernel, syscalls};

/// The variable with the case of a process.
const CASE: &str = "ZARRFS_TEST_EXHAUSTION";

/// What fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failing {
    /// An allocation of at least [`allocator::LARGE_BYTES`].
    Allocation,
    /// A system call that returns a descriptor.
    Descriptor,
    /// The start of a thread.
    Thread,
}

impl Failing {
    const ALL: [Self; 3] = [Self::Allocation, Self::Descriptor, Self::Thread];

    /// Returns the errno values that a request may fail with.
    fn errnos(self) -> &'static [&'static str] {
        match self {
            Self::Allocation => &["ENOMEM"],
            // A remote source is unavailable without a socket.
            Self::Descriptor => &["EMFILE", "EIO"],
            Self::Thread => &["EIO"],
        }
    }
}

/// A failure and a path.
#[derive(Debug, Clone, Copy)]
pub struct Case<'a> {
    pub failing: Failing,
    pub source: &'a str,
    pub path: &'a str,
    /// What a visit of the path finds.
    pub expected: &'a str,
    /// Which one fails, from 1.
    pub n: u64,
}

/// The result of a case.
#[derive(Debug)]
pub enum Outcome {
    /// Fewer than `n` things that can fail.
    NoFailure,
    /// The failure had this effect, and the next visit was right.
    Survived(String),
    /// The process ended, or something was wrong afterwards.
    Wrong(String),
}

impl Case<'_> {
    /// Runs the case in another process.
    ///
    /// # Panics
    /// If the process cannot be started.
    pub fn run(self, is_traced: bool) -> Outcome {
        let case = json!({
            "failing": format!("{:?}", self.failing), "source": self.source, "path": self.path,
            "expected": self.expected, "n": self.n, "is_traced": is_traced,
        });
        let mut command = Command::new(env::current_exe().unwrap());
        let name = "cases::the_case_of_a_process";
        command.args([
            "--exact",
            name,
            "--ignored",
            "--nocapture",
            "--test-threads=1",
        ]);
        command.env_remove("RUST_BACKTRACE");
        let output = command.env(CASE, case.to_string()).output().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout);
        let said = stdout.lines().find_map(|line| line.split_once("outcome: "));
        match said {
            Some((_, "no failure")) if output.status.success() => Outcome::NoFailure,
            Some((_, effect)) if output.status.success() => Outcome::Survived(effect.to_owned()),
            _ => {
                let stderr = String::from_utf8_lossy(&output.stderr);
                Outcome::Wrong(format!("{}\n{}", output.status, without_noise(&stderr)))
            }
        }
    }
}

/// Returns the number of large allocations of a mount and a visit of a path.
///
/// # Panics
/// If there is no such path.
pub fn large_allocations(source: &str, path: &str) -> u64 {
    allocator::fail(u64::MAX, false);
    visit(&mount(source).expect("a mount"), path).expect("a visit");
    allocator::end()
}

/// Returns a message without the frames of its stacks that are not of zarrfs or of a library.
fn without_noise(message: &str) -> String {
    let is_frame = |line: &str| {
        line.trim_start()
            .starts_with(|first: char| first.is_ascii_digit())
    };
    let is_place = |line: &str| line.trim_start().starts_with("at ");
    let is_standard = |line: &str| {
        [" core::", " alloc::", " std::", "__rust"]
            .iter()
            .any(|part| line.contains(part))
    };
    let lines = message
        .lines()
        .filter(|line| !(is_place(line) || is_frame(line) && is_standard(line)));
    let lines: Vec<&str> = lines.take(40).collect();
    lines.join("\n")
}

/// Runs the case that the environment has; a process of its own calls this.
#[test]
#[ignore = "the other tests of this file run it, each time in another process"]
fn the_case_of_a_process() {
    let case = env::var(CASE).expect("a case");
    let case: Value = serde_json::from_str(&case).unwrap();
    let text = |name: &str| case[name].as_str().unwrap().to_owned();
    let failing = Failing::ALL
        .into_iter()
        .find(|failing| format!("{failing:?}") == text("failing"));
    let failing = failing.unwrap();
    let (source, path, expected) = (text("source"), text("path"), text("expected"));
    let (n, is_traced) = (case["n"].as_u64().unwrap(), case["is_traced"] == true);
    if failing != Failing::Allocation {
        syscalls::supervise();
    }
    let descriptors = open_descriptors();
    match failing {
        Failing::Allocation => allocator::fail(n, is_traced),
        Failing::Descriptor => syscalls::fail(syscalls::Class::Descriptor, n),
        Failing::Thread => syscalls::fail(syscalls::Class::Thread, n),
    }
    let mounted = mount(&source);
    let known = mounted.as_ref().ok().map(kernel::counts);
    let first = mounted.as_ref().map(|fs| visit(fs, &path));
    let count = match failing {
        Failing::Allocation => allocator::end(),
        Failing::Descriptor | Failing::Thread => syscalls::end(),
    };
    let effect = match &first {
        Ok(Ok(found)) => {
            let found = found.to_string();
            // A list of diagnostics names the failure.
            let is_report =
                (path.ends_with("README.txt") || path.ends_with("views.json")) && count >= n;
            assert!(
                is_report || found == expected,
                "{found}, expected {expected}"
            );
            "no effect".to_owned()
        }
        Ok(Err(Failed { errno, message })) => {
            assert!(failing.errnos().contains(errno), "{errno}: {message}");
            format!("{errno}: {message}")
        }
        Err(message) => {
            let names_memory = message.contains("memory");
            assert!(failing != Failing::Allocation || names_memory, "{message}");
            format!("no mount: {message}")
        }
    };
    if count < n {
        assert_eq!(effect, "no effect");
        println!("outcome: no failure");
        return;
    }
    let fs = mounted.unwrap_or_else(|_| mount(&source).expect("a mount without failures"));
    let known = known.unwrap_or_else(|| kernel::counts(&fs));
    let again = visit(&fs, &path).expect("a visit without failures");
    assert_eq!(again.to_string(), expected, "after {effect}");
    check_nothing_is_held(&fs, known, &source, &path);
    drop(fs);
    // Pooled connections and threads that end take a moment.
    let end = Instant::now() + Duration::from_secs(5);
    while open_descriptors() > descriptors + own_descriptors() && Instant::now() < end {
        thread::sleep(Duration::from_millis(2));
    }
    let left = open_descriptors();
    assert!(
        left <= descriptors + own_descriptors(),
        "{left} descriptors, {descriptors} at the start"
    );
    println!("outcome: {effect}");
}

/// Returns the number of descriptors that a process opens once and keeps: those of the network runtime, and those of
/// one whose start has failed for lack of a thread, which tokio does not end.
fn own_descriptors() -> usize {
    10
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Checks that no inode number and no handle is held after all files are closed, and no more memory than after two visits
/// without a failure.
fn check_nothing_is_held(fs: &Fs, known: [u64; 3], source: &str, path: &str) {
    assert_eq!(
        kernel::counts(fs),
        known,
        "inodes, handles, directory handles"
    );
    let held = |fs: &Fs| fs.document()["decoded_bytes"].as_u64().expect("a gauge");
    let other = mount(source).expect("a mount");
    for _ in 0..2 {
        visit(&other, path).expect("a visit");
    }
    // What a dropped request has left behind may still be decoded.
    let end = Instant::now() + Duration::from_secs(5);
    while held(fs) > held(&other) && Instant::now() < end {
        thread::sleep(Duration::from_millis(2));
    }
    assert!(
        held(fs) <= held(&other),
        "{} and {} bytes of the memory limit",
        held(fs),
        held(&other)
    );
}
