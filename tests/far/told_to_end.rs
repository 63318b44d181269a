//! G2: who is told to end while the store hangs ends at once, in whatever call.

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::clients::*;
use crate::gate::*;
use crate::support::*;

const FILES: [&str; 10] = [
    "a/open", "a/read", "a/direct", "a/stat", "a/fault", "b/0", "c/0", "d/0", "d/1", "e/0",
];

fn signal(child: &Killed, signal: Signal) {
    kill_process(Pid::from_child(&child.0), signal).unwrap();
}

/// Signals a program and checks that it is gone soon.
fn ends(child: &mut Killed, with: Signal, what: &str) {
    hangs(child, what);
    let begun = Instant::now();
    signal(child, with);
    let ended = wait_for(&mut child.0, Duration::from_secs(3));
    let waited = begun.elapsed();
    assert!(ended.is_some(), "{what} stays after {with:?}");
    assert!(waited < SOON, "{what}: {waited:?}");
}

#[test]
fn g02_whoever_is_told_to_end_ends_while_the_store_hangs() {
    let far = Far::new(&FILES, &["--timeout", "60s", "--ttl", "1h"]);
    for name in FILES {
        if !name.ends_with("stat") {
            std::fs::metadata(far.join(name)).unwrap();
        }
    }
    for name in ["a/read", "a/direct"] {
        drop(open(&far.join(name)));
    }
    // Opening it is at hand, reading it not.
    let directory = std::fs::File::open(far.join("c")).unwrap();
    drop(directory);

    far.close();
    let signals = [
        Signal::INT,
        Signal::KILL,
        Signal::TERM,
        Signal::HUP,
        Signal::QUIT,
    ];
    let direct = format!("if={}", far.join("a/direct").display());
    for with in signals {
        ends(&mut start("cat", &[&far.join("a/open")]), with, "open");
        ends(&mut start("cat", &[&far.join("a/read")]), with, "read");
        let arguments = [
            direct.as_ref(),
            "iflag=direct".as_ref(),
            "bs=64k".as_ref(),
            "count=1".as_ref(),
        ];
        ends(&mut start("dd", &arguments), with, "direct read");
        ends(&mut start("stat", &[&far.join("a/stat")]), with, "lookup");
        ends(&mut start("ls", &[&far.join("b")]), with, "opendir");
        ends(&mut start("ls", &[&far.join("c")]), with, "readdir");
    }
    // They were told that they were interrupted, and could go on.
    let script = "
import sys
ready()
try:
    with open(sys.argv[1], 'rb', buffering=0) as file:
        file.read(5)
except KeyboardInterrupt:
    print('caught')
";
    for name in ["a/open", "a/read", "a/stat"] {
        let mut python = start_python(script, &far.join(name));
        ends(&mut python, Signal::INT, name);
        assert_eq!(printed(&mut python), "caught\n", "{name}");
    }
    // All of these come back now.
    far.open();
    far.recovers(&FILES);
}

#[test]
fn g02_a_signal_that_is_not_to_end_changes_nothing() {
    let far = Far::new(&FILES, &["--timeout", "60s", "--ttl", "1h"]);
    drop(open(&far.join("a/read")));
    far.close();
    let mut ignoring = Killed(
        Command::new("sh")
            .args(["-c", "trap '' INT TERM; exec cat \"$0\" > /dev/null"])
            .arg(far.join("a/open"))
            .spawn()
            .unwrap(),
    );
    let script = "
import signal, sys
signal.signal(signal.SIGUSR1, lambda *_: print('heard'))
ready()
with open(sys.argv[1], 'rb', buffering=0) as file:
    print(len(file.read(5)))
";
    let mut hearing = start_python(script, &far.join("a/read"));
    std::thread::sleep(Duration::from_millis(700));
    signal(&ignoring, Signal::INT);
    signal(&ignoring, Signal::TERM);
    signal(&hearing, Signal::USR1);
    std::thread::sleep(Duration::from_millis(1000));
    assert!(ignoring.0.try_wait().unwrap().is_none());
    hangs(&mut hearing, "a program with a handler");
    far.open();
    assert!(wait_for(&mut ignoring.0, 2 * SOON).unwrap().success());
    assert!(wait_for(&mut hearing.0, 2 * SOON).unwrap().success());
    let text = printed(&mut hearing);
    assert!(text.contains("heard") && text.contains('5'), "{text}");
    far.recovers(&FILES);
}

#[test]
fn g02_a_page_fault_is_not_interrupted_for_a_signal_that_is_handled() {
    // Only root may always see what another thread waits in.
    if !is_root() {
        return skipped("needs root");
    }
    let far = Far::new(&FILES, &["--timeout", "60s", "--ttl", "1h"]);
    drop(open(&far.join("a/fault")));
    far.close();
    let script = "
import mmap, signal, sys
signal.signal(signal.SIGTERM, lambda *_: print('heard'))
ready()
with open(sys.argv[1], 'rb') as file:
    memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    print(memory[100000])
";
    let mut handled = start_python(script, &far.join("a/fault"));
    let mut killed = start_python(script, &far.join("a/fault"));
    hangs(&mut handled, "a page fault");
    signal(&handled, Signal::TERM);
    std::thread::sleep(Duration::from_millis(600));
    ends(&mut killed, Signal::KILL, "a killed page fault");
    hangs(&mut handled, "a page fault");
    far.open();
    let status = wait_for(&mut handled.0, Duration::from_secs(5)).unwrap();
    let text = printed(&mut handled);
    assert!(status.success(), "{status} {text}");
    let byte = content("a/fault")[100_000].to_string();
    assert!(text.contains("heard") && text.contains(&byte), "{text}");
    far.recovers(&FILES);
}
