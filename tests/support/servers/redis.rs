//! Redis with a password, on a port and on a socket.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Signal, kill_process_group};

use crate::support::scratch;

use super::{Port, Process, Remote};

/// A server whose databases are not persistent.
#[derive(Debug)]
pub struct Redis {
    process: Process,
    port: Port,
    tls: Port,
    dir: tempfile::TempDir,
}

impl Redis {
    pub const PASSWORD: &str = "a-password-of-the-tests";

    /// Starts a server without keys.
    pub fn start() -> Self {
        Self::start_in(scratch(), false)
    }

    /// Starts a server that also supports TLS. Returns the file with its certificate authority, too.
    pub fn with_tls() -> (Self, PathBuf) {
        let dir = scratch();
        let authority = dir.path().join("ca.pem");
        crate::support::sh(&format!("cd {} && {CERTIFICATES}", dir.path().display()));
        (Self::start_in(dir, true), authority)
    }

    fn start_in(dir: tempfile::TempDir, has_tls: bool) -> Self {
        let (port, tls) = (Port::free(), Port::free());
        let process = run(&dir, &port, has_tls.then_some(&tls));
        let redis = Self {
            process,
            port,
            tls,
            dir,
        };
        redis.wait();
        redis
    }

    /// As [`Redis::url`], over TLS.
    pub fn tls_url(&self, prefix: &str) -> String {
        format!("rediss://127.0.0.1:{}/0?prefix={prefix}", self.tls.number)
    }

    fn wait(&self) {
        let answers = || TcpStream::connect(("127.0.0.1", self.port.number)).is_ok();
        assert!(
            crate::support::wait_until(Duration::from_secs(30), answers),
            "the server does not answer: {}",
            self.process.log_end()
        );
    }

    /// Returns the URL of the keys with a prefix, which must not need URL encoding.
    pub fn url(&self, prefix: &str) -> String {
        format!("redis://127.0.0.1:{}/0?prefix={prefix}", self.port.number)
    }

    /// As [`Redis::url`], with the password.
    pub fn url_with_password(&self, prefix: &str) -> String {
        let login = format!("redis://:{}@", Self::PASSWORD);
        self.url(prefix).replace("redis://", &login)
    }

    /// Returns the path of the socket.
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    /// Returns the port.
    pub fn port(&self) -> String {
        self.port.number.to_string()
    }

    /// Returns the `zarrfs` arguments for sources on the server.
    pub fn remote(&self) -> Remote {
        Remote::new("").envs(("REDIS_PASSWORD".into(), Self::PASSWORD.into()))
    }

    /// Sends one command and returns its reply, or the length of an array reply.
    pub fn command(&self, parts: &[&[u8]]) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port.number)).unwrap();
        let mut replies = BufReader::new(stream.try_clone().unwrap());
        let login: [&[u8]; 2] = [b"AUTH", Self::PASSWORD.as_bytes()];
        let mut last = String::new();
        for parts in [&login[..], parts] {
            let mut bytes = format!("*{}\r\n", parts.len()).into_bytes();
            for part in parts {
                bytes.extend(format!("${}\r\n", part.len()).bytes());
                bytes.extend(*part);
                bytes.extend(b"\r\n");
            }
            stream.write_all(&bytes).unwrap();
            last.clear();
            replies.read_line(&mut last).unwrap();
            assert!(!last.starts_with('-'), "{last}");
            if let Some(length) = last.strip_prefix('$') {
                let mut bytes = vec![0; length.trim().parse().unwrap()];
                replies.read_exact(&mut bytes).unwrap();
                last = String::from_utf8(bytes).unwrap();
            }
        }
        last
    }

    /// Sets the value of a key.
    pub fn set(&self, key: &str, value: &[u8]) {
        self.command(&[b"SET", key.as_bytes(), value]);
    }

    /// Sets many keys.
    pub fn set_all(&self, keys: impl Iterator<Item = (String, Vec<u8>)>) {
        let all: Vec<_> = keys.collect();
        for some in all.chunks(1000) {
            let mut parts: Vec<&[u8]> = vec![b"MSET"];
            for (key, value) in some {
                parts.extend([key.as_bytes(), value]);
            }
            self.command(&parts);
        }
    }

    /// Returns how often each command was executed since the last call of this function.
    pub fn calls(&self) -> BTreeMap<String, u64> {
        let stats = self.command(&[b"INFO", b"commandstats"]);
        self.command(&[b"CONFIG", b"RESETSTAT"]);
        let call = |line: &str| {
            let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            Some((name.to_owned(), rest.split(',').next()?.parse().ok()?))
        };
        stats.lines().filter_map(call).collect()
    }

    /// Stops the server, which answers no request until it is continued.
    pub fn stop(&self) {
        kill_process_group(self.process.group(), Signal::STOP).unwrap();
    }

    pub fn resume(&self) {
        kill_process_group(self.process.group(), Signal::CONT).unwrap();
    }

    /// Kills the server, calls `between`, and starts another server without keys.
    pub fn restart(&mut self, between: impl FnOnce()) {
        kill_process_group(self.process.group(), Signal::KILL).unwrap();
        let ends = || TcpStream::connect(("127.0.0.1", self.port.number)).is_err();
        assert!(crate::support::wait_until(Duration::from_secs(10), ends));
        between();
        self.process = run(&self.dir, &self.port, None);
        self.wait();
    }
}

/// A shell script that creates a certificate authority, and a certificate for this machine.
const CERTIFICATES: &str = "\
    exec 2>/dev/null\n\
    new='-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes'\n\
    openssl req -x509 $new -keyout ca.key -out ca.pem -days 2 -subj /CN=tests &&\n\
    openssl req $new -keyout key.pem -out request.pem -subj /CN=localhost &&\n\
    echo subjectAltName=IP:127.0.0.1 > names &&\n\
    openssl x509 -req -in request.pem -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out cert.pem";

fn run(dir: &tempfile::TempDir, port: &Port, tls: Option<&Port>) -> Process {
    let config = dir.path().join("redis.conf");
    let mut settings = vec![
        "bind 127.0.0.1".to_owned(),
        format!("port {}", port.number),
        format!("unixsocket {}", dir.path().join("socket").display()),
        format!("dir {}", dir.path().display()),
        format!("requirepass {}", Redis::PASSWORD),
        "save \"\"".to_owned(),
        "daemonize no".to_owned(),
    ];
    if let Some(tls) = tls {
        let file = |name: &str| dir.path().join(name).display().to_string();
        settings.extend([
            format!("tls-port {}", tls.number),
            format!("tls-cert-file {}", file("cert.pem")),
            format!("tls-key-file {}", file("key.pem")),
            "tls-auth-clients no".to_owned(),
        ]);
    }
    fs::write(&config, settings.join("\n")).unwrap();
    let mut command = Command::new("redis-server");
    command.arg(&config);
    Process::start("redis-server", &command, &dir.path().join("log"))
}
