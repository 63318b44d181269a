//! D5, D6, D16: servers that fail, that do not answer, and that disappear and return.

use std::time::{Duration, Instant};

use crate::clients::read_uncached;
use crate::faulty::*;
use crate::remote::*;
use crate::support::*;

#[test]
fn d05_a_temporary_failure_is_retried() {
    for backend in BOTH {
        let remote = Remote::new(backend);
        for (i, fault) in [
            Fault::status(500),
            Fault::status(503),
            Fault::status(429).retry_after(0),
            Fault::s3(503, "SlowDown"),
        ]
        .into_iter()
        .enumerate()
        {
            // A new mount, so that readahead has not fetched the key.
            let mount = remote.mount(&[]);
            let key = remote.at("a", i);
            let rule = remote.server.add(on(&key).first(1), fault);
            let native = in_time(LIMIT, "the key", || read(mount.join(remote.key("a", i))));
            assert!(native.unwrap() == chunk(i));
            assert_eq!(rule.hits(), 1);
            let rule = remote
                .server
                .add(on(&remote.at("z", i)).first(1), Fault::status(502));
            let view = in_time(LIMIT, "the chunk", || read(remote.view(&mount, "z", i)));
            assert!(view.unwrap() == chunk(i));
            assert_eq!(rule.hits(), 1);
        }
    }
}

#[test]
fn d05_a_permanent_failure_is_eio_within_the_deadline() {
    for backend in BOTH {
        for fault in [
            Fault::status(500),
            Fault::status(429),
            Fault::status(503).retry_after(3600),
            Fault::s3(503, "SlowDown"),
        ] {
            let remote = Remote::new(backend);
            let mount = remote.mount(&["--retries", "2"]);
            let rule = remote.server.add(on(&remote.at("a", 1)), fault);
            remote.chunk_fails(&mount, "a", 1, &[EIO]);
            // Three reads of at most three requests each; the kernel may repeat each read once.
            assert!(rule.hits() <= 18, "{} requests", rule.hits());
            logged(&mount, &["a/c/1", "EIO", "attempt|tries|tried", "50|429"]);
            remote.heals(&mount, "a");
        }
    }
}

#[test]
fn d05_a_retry_waits_for_retry_after() {
    for backend in BOTH {
        let remote = Remote::new(backend);
        let mount = remote.mount(&[]);
        let busy = Fault::status(429).retry_after(1);
        remote.server.add(on(&remote.at("a", 1)).first(1), busy);
        let native = in_time(LIMIT, "the key", || read(mount.join(remote.key("a", 1))));
        assert!(native.unwrap() == chunk(1));
        let requests = remote.server.requests_for(&remote.at("a", 1));
        let refused = requests.iter().position(|r| r.status == Some(429)).unwrap();
        let pause = requests[refused + 1].began - requests[refused].began;
        assert!(pause >= Duration::from_millis(900), "{pause:?}");
    }
}

#[test]
fn d05_a_server_with_too_many_requests_gets_fewer_at_a_time() {
    const READERS: usize = 12;
    for backend in BOTH {
        let busy = match backend {
            Backend::Http => Fault::status(429),
            Backend::S3 => Fault::s3(503, "SlowDown"),
        };
        let remote = Remote::new(backend);
        // Each phase has its own keys, which have not been cached or prefetched.
        for phase in ["before", "busy", "after"] {
            for i in 0..READERS {
                remote.put(&format!("{phase}/c/1{i}"), chunk(0));
            }
        }
        let mount = remote.mount(&["--parallel", "16", "--retries", "3", "--timeout", "10s"]);
        let key = |phase: &str, i: usize| mount.join(format!("{phase}/c/1{i}"));
        // Returns whether `requests` requests are in flight when all keys are read concurrently.
        let in_flight = |phase: &str, requests: usize, limit: Duration| {
            let gate = remote.server.hold(&format!("store/{phase}/c/1*"));
            std::thread::scope(|scope| {
                let readers = (0..READERS).map(|i| key(phase, i));
                let readers: Vec<_> = readers
                    .map(|path| scope.spawn(move || read(path)))
                    .collect();
                let came = gate.came(requests, limit);
                gate.open();
                for reader in readers {
                    assert!(reader.join().unwrap().unwrap() == chunk(0));
                }
                came
            })
        };
        assert!(in_flight("before", READERS, LIMIT), "{backend:?}");
        remote.server.add(on("store/busy/c/1*"), busy);
        std::thread::scope(|scope| {
            for i in 0..READERS {
                let path = key("busy", i);
                scope.spawn(move || is_one_of(read(path), &[EIO], "a key of a busy server"));
            }
        });
        remote.server.heal();
        // The limit is now two requests: one for a value and one for a name.
        let soon = Duration::from_millis(500);
        assert!(!in_flight("after", 3, soon), "{backend:?}");
        remote.reads(&mount, "good");
    }
}

#[test]
fn d05_random_failures_never_become_wrong_bytes() {
    for backend in BOTH {
        for (seed, fault) in [
            Fault::status(503),
            Fault::Reset,
            Fault::ResetAfter(1000),
            Fault::CloseAfter(1000),
            Fault::IgnoreRange,
            Fault::WrongContentRange,
            Fault::Gzip,
            Fault::s3(200, "InternalError"),
        ]
        .into_iter()
        .enumerate()
        {
            let remote = Remote::new(backend);
            let mount = remote.mount(&["--retries", "1"]);
            remote
                .server
                .add(on("store/*/c/*").get().percent(40, seed as u64), fault);
            for i in 0..4 {
                let view = in_time(LIMIT, "a chunk", || {
                    read_uncached(&remote.view(&mount, "z", i))
                });
                is_right_or(view, &chunk(i), &[EIO, ETIMEDOUT, ESTALE], "a chunk");
                let part = read_uncached(&whole_of(&mount, "a"));
                is_right_or(part, &whole(), &[EIO, ETIMEDOUT, ESTALE], "an array");
            }
            remote.heals(&mount, "a");
        }
    }
}

#[test]
fn d06_a_server_that_refuses_is_eio_within_the_deadline() {
    for backend in BOTH {
        let remote = Remote::new(backend);
        let mount = remote.mount(&[]);
        remote.reads(&mount, "good");
        remote.server.refuse();
        let native = in_time(LIMIT, "the key", || read(mount.join(remote.key("a", 1))));
        is_one_of(native, &[EIO], "the key");
        let view = in_time(LIMIT, "the chunk", || read(remote.view(&mount, "a", 2)));
        is_one_of(view, &[EIO], "the chunk");
        logged(&mount, &["refused|connect", "EIO"]);
        // Cached values need no server.
        in_time(AT_ONCE, "the sibling", || {
            assert!(read(whole_of(&mount, "good")).unwrap() == whole());
        });
        remote.server.accept();
        remote.heals(&mount, "a");
    }
}

#[test]
fn d06_a_connection_that_breaks_during_a_wait_is_opened_again() {
    for backend in BOTH {
        let remote = Remote::new(backend);
        let mount = remote.mount(&[]);
        remote.reads(&mount, "good");
        remote.server.cut();
        remote.reads(&mount, "a");
    }
}

#[test]
fn d06_a_server_that_cannot_be_reached_is_not_mounted() {
    // Uses the default time limit and number of retries.
    let is_refused = |source: &str, options: &[&str], expected: &str| {
        let mount = in_time(AT_ONCE, "mount", || Mount::attempt(source, options));
        let refusal = mount.expect_err("the mount must fail");
        assert_refusal(&refusal, &[expected, "check"]);
        let line = format!("zarrfs: {source}: {expected}");
        assert!(refusal.stderr.starts_with(&line), "{refusal:?}");
        assert_eq!(refusal.stderr.lines().count(), 1, "{refusal:?}");
    };
    let no_name = "the name no-such-host.invalid does not resolve";
    is_refused("http://no-such-host.invalid/store", &[], no_name);
    let server = Server::files();
    server.refuse();
    let refuses = format!("127.0.0.1 refuses connections on port {}", server.port());
    is_refused(&server.url_of("store"), &[], &refuses);
    for (endpoint, expected) in [
        ("http://no-such-host.invalid", no_name),
        (&server.url(), &refuses),
    ] {
        let options = ["--anonymous", "--endpoint-url", endpoint];
        is_refused("s3://bucket/store", &options, expected);
    }
}

/// Returns the terminal output of a mount, which is then unmounted.
fn on_terminal(remote: &Remote, redirection: &str) -> String {
    let directory = scratch();
    let (binary, options) = (zarrfs(), remote.options().join(" "));
    let (binary, point) = (binary.get_program().to_str().unwrap(), directory.path());
    let (source, point) = (remote.source(), point.to_str().unwrap());
    let command = format!("{binary} {source} {point} --anonymous {options} {redirection}");
    let mut script = std::process::Command::new("script");
    script.args(["-qec", &command, "/dev/null"]);
    let output = run_for(&mut script, Duration::from_secs(20));
    clean_up(directory.path());
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn d07_a_waiting_mount_prints_a_message_on_a_terminal_only() {
    for backend in BOTH {
        let remote = Remote::new(backend);
        let waiting = format!("zarrfs: waiting for {} (--timeout 2s)", remote.source());
        assert!(!on_terminal(&remote, "").contains("waiting"));
        remote
            .server
            .add(on("*").first(1), Fault::Late(Duration::from_millis(1500)));
        let output = on_terminal(&remote, "");
        assert!(output.starts_with(&waiting), "{output}");
        assert_eq!(output.matches("waiting").count(), 1, "{output}");
        remote.server.heal();
        remote
            .server
            .add(on("*").first(1), Fault::Late(Duration::from_millis(1500)));
        assert_eq!(on_terminal(&remote, "2>/dev/null"), "");
    }
}

#[test]
fn d06_a_server_without_tls_gets_no_retry() {
    let server = Server::files();
    let source = server.url_of("store").replace("http://", "https://");
    let refused = in_time(AT_ONCE * 2, "mount", || {
        Mount::attempt(&source, &["--timeout", "2s"])
    });
    assert_refusal(
        &refused.expect_err("the mount must fail"),
        &["tls|ssl|certificate|handshake"],
    );
    // Two documents are requested concurrently.
    assert!(server.connections() <= 2);
}

#[test]
fn d06_a_server_of_another_protocol_is_eio() {
    for backend in BOTH {
        let remote = Remote::new(backend);
        let mount = remote.mount(&[]);
        remote.server.add(on(&remote.at("a", 1)), Fault::Garbage);
        remote.chunk_fails(&mount, "a", 1, &[EIO]);
        remote.heals(&mount, "a");
    }
}

#[test]
fn d16_a_mount_recovers_when_the_network_is_back() {
    for backend in BOTH {
        let remote = Remote::new(backend);
        let mount = remote.mount(&["--ttl", "100ms"]);
        remote.reads(&mount, "good");
        for (is_silent, array) in [(false, "a"), (true, "z")] {
            // The server does not answer, or refuses connections.
            let gate = is_silent.then(|| remote.server.hold("*"));
            if !is_silent {
                remote.server.refuse();
            }
            let failing = Instant::now();
            while failing.elapsed() < 2 * TIMEOUT {
                let native = in_time(LIMIT, "the key", || read(mount.join(remote.key(array, 1))));
                is_one_of(native, &[EIO, ETIMEDOUT], "the key");
                let view = in_time(LIMIT, "the chunk", || read(remote.view(&mount, array, 1)));
                is_one_of(view, &[EIO, ETIMEDOUT], "the chunk");
            }
            drop(gate);
            if !is_silent {
                remote.server.accept();
            }
            remote.heals(&mount, array);
            remote.heals(&mount, "good");
        }
        let lines = mount.log().lines().count();
        assert!(lines < 500, "{lines} lines about one thing");
    }
}
