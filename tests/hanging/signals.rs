//! G2: a process with a fatal signal ends at once while the store hangs, in any call.

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::clients::*;
use crate::gate::*;
use crate::support::*;

const FILES: [&str; 10] = [
    "a/open", "a/read", "a/direct", "f/stat", "a/fault", "b/0", "c/0", "d/0", "d/1", "e/0",
];

fn signal(child: &Killed, signal: Signal) {
    kill_process(Pid::from_child(&child.0), signal).unwrap();
}

/// Sends a signal to a program that hangs, and asserts that it ends soon.
fn ends(child: &mut Killed, with: Signal, what: &str) {
    let begun = Instant::now();
    signal(child, with);
    let ended = wait_for(&mut child.0, Duration::from_secs(3));
    let waited = begun.elapsed();
    assert!(ended.is_some(), "{what} stays after {with:?}");
    assert!(waited < SOON, "{what}: {waited:?}");
}

/// Asserts that all programs hang, and that each ends soon after a signal while the others still hang.
fn all_end(children: &mut [(&str, Killed)], with: Signal) {
    // They all start at the same time, and so need only one wait.
    for (what, child) in children.iter_mut().take(1) {
        hangs(child, what);
    }
    for (what, child) in children {
        assert!(
            child.0.try_wait().unwrap().is_none(),
            "{what} does not hang"
        );
        ends(child, with, what);
    }
}

#[test]
fn g02_a_process_with_a_fatal_signal_ends_while_the_store_hangs() {
    let hanging = Hanging::new(&FILES, &["--timeout", "60s", "--ttl", "1h"]);
    for name in FILES {
        if !name.ends_with("stat") {
            std::fs::metadata(hanging.join(name)).unwrap();
        }
    }
    for name in ["a/read", "a/direct"] {
        drop(open(&hanging.join(name)));
    }
    // The open is answered from the cache, but not the read.
    let directory = std::fs::File::open(hanging.join("c")).unwrap();
    drop(directory);

    hanging.close();
    let signals = [
        Signal::INT,
        Signal::KILL,
        Signal::TERM,
        Signal::HUP,
        Signal::QUIT,
    ];
    let direct = format!("if={}", hanging.join("a/direct").display());
    for with in signals {
        let arguments = [
            direct.as_ref(),
            "iflag=direct".as_ref(),
            "bs=64k".as_ref(),
            "count=1".as_ref(),
        ];
        let started = |program, name| start(program, &[&hanging.join(name)]);
        let mut children = [
            ("open", started("cat", "a/open")),
            ("read", started("cat", "a/read")),
            ("direct read", start("dd", &arguments)),
            ("lookup", started("stat", "f/stat")),
            ("opendir", started("ls", "b")),
            ("readdir", started("ls", "c")),
        ];
        all_end(&mut children, with);
    }
    // These calls return EINTR, and the program could continue.
    let script = "
import sys
ready()
try:
    with open(sys.argv[1], 'rb', buffering=0) as file:
        file.read(5)
except KeyboardInterrupt:
    print('caught')
";
    for name in ["a/open", "a/read", "f/stat"] {
        let mut python = start_python(script, &hanging.join(name));
        hangs(&mut python, name);
        ends(&mut python, Signal::INT, name);
        assert_eq!(printed(&mut python), "caught\n", "{name}");
    }
    // These calls all complete now.
    hanging.open();
    hanging.recovers(&FILES);
}

#[test]
fn g02_a_non_fatal_signal_changes_nothing() {
    let hanging = Hanging::new(&FILES, &["--timeout", "60s", "--ttl", "1h"]);
    drop(open(&hanging.join("a/read")));
    hanging.close();
    let mut ignoring = Killed(
        Command::new("sh")
            .args(["-c", "trap '' INT TERM; exec cat \"$0\" > /dev/null"])
            .arg(hanging.join("a/open"))
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
    let mut hearing = start_python(script, &hanging.join("a/read"));
    std::thread::sleep(Duration::from_millis(700));
    signal(&ignoring, Signal::INT);
    signal(&ignoring, Signal::TERM);
    signal(&hearing, Signal::USR1);
    std::thread::sleep(Duration::from_millis(1000));
    assert!(ignoring.0.try_wait().unwrap().is_none());
    hangs(&mut hearing, "a program with a handler");
    hanging.open();
    assert!(wait_for(&mut ignoring.0, 2 * SOON).unwrap().success());
    assert!(wait_for(&mut hearing.0, 2 * SOON).unwrap().success());
    let text = printed(&mut hearing);
    assert!(text.contains("heard") && text.contains('5'), "{text}");
    hanging.recovers(&FILES);
}

#[test]
fn g02_a_page_fault_is_not_interrupted_for_a_signal_that_is_handled() {
    // Only root can always see the system call of another thread.
    if !is_root() {
        return skipped("needs root");
    }
    let hanging = Hanging::new(&FILES, &["--timeout", "60s", "--ttl", "1h"]);
    drop(open(&hanging.join("a/fault")));
    hanging.close();
    let script = "
import mmap, signal, sys
signal.signal(signal.SIGTERM, lambda *_: print('heard'))
ready()
with open(sys.argv[1], 'rb') as file:
    memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    print(memory[100000])
";
    let mut handled = start_python(script, &hanging.join("a/fault"));
    let mut killed = start_python(script, &hanging.join("a/fault"));
    hangs(&mut handled, "a page fault");
    signal(&handled, Signal::TERM);
    std::thread::sleep(Duration::from_millis(600));
    hangs(&mut killed, "a killed page fault");
    ends(&mut killed, Signal::KILL, "a killed page fault");
    hangs(&mut handled, "a page fault");
    hanging.open();
    let status = wait_for(&mut handled.0, Duration::from_secs(5)).unwrap();
    let text = printed(&mut handled);
    assert!(status.success(), "{status} {text}");
    let byte = content("a/fault")[100_000].to_string();
    assert!(text.contains("heard") && text.contains(&byte), "{text}");
    hanging.recovers(&FILES);
}
