//! A web server.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::support::{is_root, scratch, wait_until};

use super::{Port, Process, Remote, http};

/// nginx over one directory, which it serves in several ways:
///
/// | location     | way                                                          |
/// |--------------|--------------------------------------------------------------|
/// | `/`          | files; a directory is 403                                    |
/// | `/index/`    | directories are pages of links, without names that begin with a dot |
/// | `/json/`     | the same as JSON                                             |
/// | `/norange/`  | the whole file is the answer to every range                  |
/// | `/auth/`     | for `USER` with `PASSWORD` only                              |
/// | `/redirect/` | a redirection to the file below `/`                          |
/// | `/noetag/`   | nothing but a time tells a file from a later one             |
/// | `/closed/`   | what does not exist is 403                                   |
#[derive(Debug)]
pub struct Nginx {
    _process: Process,
    port: Port,
    marks: AtomicU32,
    dir: tempfile::TempDir,
}

/// A request that was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub method: String,
    /// With the query, as the client wrote it.
    pub path: String,
    /// The header `Range`.
    pub range: Option<String>,
    pub status: u16,
    /// Of the body.
    pub bytes: u64,
}

const PROGRAM: &str = "/usr/sbin/nginx";

const CONFIG: &str = r#"
@USER@
daemon off;
worker_processes 1;
pid @DIR@/pid;
error_log @DIR@/errors warn;
events { worker_connections 1024; }
http {
    log_format requests escape=json "$request_method\t$request_uri\t$http_range\t$status\t$body_bytes_sent";
    access_log @DIR@/requests requests;
    client_body_temp_path @DIR@/body;
    proxy_temp_path @DIR@/proxy;
    fastcgi_temp_path @DIR@/fastcgi;
    uwsgi_temp_path @DIR@/uwsgi;
    scgi_temp_path @DIR@/scgi;
    default_type application/octet-stream;
    keepalive_requests 100000;
    # As the client wrote it, which nginx would not write the same again.
    map $request_uri $below_redirect { "~^/redirect(?<rest>/.*)$" $rest; }
    server {
        listen 127.0.0.1:@PORT@;
        location / { root "@ROOT@"; }
        location /index/ { alias "@ROOT@/"; autoindex on; }
        location /json/ { alias "@ROOT@/"; autoindex on; autoindex_format json; }
        location /norange/ { alias "@ROOT@/"; max_ranges 0; }
        location /auth/ {
            alias "@ROOT@/";
            auth_basic "test";
            auth_basic_user_file @DIR@/users;
        }
        location /redirect/ { return 302 $below_redirect; }
        location /noetag/ { alias "@ROOT@/"; etag off; }
        location /closed/ { alias "@ROOT@/"; error_page 404 = @denied; }
        location @denied { return 403; }
    }
}
"#;

impl Nginx {
    pub const USER: &str = "reader";
    pub const PASSWORD: &str = "a-password-of-the-tests";

    /// Serves the directory `root`.
    pub fn start(root: &Path) -> Self {
        assert!(
            Path::new(PROGRAM).exists(),
            "run tests/servers/setup.sh: no {PROGRAM}"
        );
        let dir = scratch();
        let port = Port::free();
        // The workers of root are another user unless they are told not to be.
        let user = if is_root() { "user root;" } else { "" };
        let config = CONFIG
            .replace("@USER@", user)
            .replace("@DIR@", dir.path().to_str().unwrap())
            .replace("@ROOT@", root.to_str().unwrap())
            .replace("@PORT@", &port.number.to_string());
        let (file, log) = (dir.path().join("config"), dir.path().join("log"));
        fs::write(&file, config).unwrap();
        let users = format!("{}:{{PLAIN}}{}\n", Self::USER, Self::PASSWORD);
        fs::write(dir.path().join("users"), users).unwrap();
        let mut command = Command::new(PROGRAM);
        command.arg("-p").arg(dir.path());
        command.args(["-e", "stderr", "-c"]).arg(&file);
        let mut process = Process::start("nginx", &command, &log);
        let mark = format!("http://127.0.0.1:{}{MARK}start", port.number);
        process.wait(Duration::from_secs(20), || {
            http::request("GET", &mark, &[], b"").is_ok()
        });
        Self {
            _process: process,
            port,
            marks: AtomicU32::new(0),
            dir,
        }
    }

    /// The URL of a path that begins with a location: `index/v3`.
    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.port.number)
    }

    /// What `zarrfs` is told to mount something below a location (without slashes; "" is `/`).
    pub fn remote(&self, location: &str) -> Remote {
        let remote = Remote::new(self.url(location).trim_end_matches('/'));
        match location {
            "auth" => {
                let header = format!("Authorization: {}", basic(Self::USER, Self::PASSWORD));
                remote.arg("--header").arg(&header)
            }
            "closed" => remote.arg("--missing-status").arg("403"),
            _ => remote,
        }
    }

    /// Every request so far that was answered to its end, in that order.
    pub fn requests(&self) -> Vec<Request> {
        // One worker writes its lines in order: what came before this one is there when it is.
        let number = self.marks.fetch_add(1, Ordering::Relaxed);
        let mark = format!("{MARK}{number}");
        http::get(&self.url(&mark[1..]));
        let lines = || fs::read_to_string(self.dir.path().join("requests")).unwrap();
        let is_there = || lines().contains(&format!("\t{mark}\t"));
        assert!(
            wait_until(Duration::from_secs(10), is_there),
            "nginx writes no log of its requests"
        );
        lines()
            .lines()
            .map(Request::parsed)
            .filter(|request| !request.path.starts_with(MARK))
            .collect()
    }
}

/// Requests for paths like this are this module's own.
const MARK: &str = "/.mark-";

/// What stands in the header `Authorization`.
pub fn basic(user: &str, password: &str) -> String {
    use base64::Engine;
    let engine = base64::engine::general_purpose::STANDARD;
    format!("Basic {}", engine.encode(format!("{user}:{password}")))
}

impl Request {
    fn parsed(line: &str) -> Self {
        let fields: Vec<&str> = line.split('\t').collect();
        let [method, path, range, status, bytes] = fields[..] else {
            panic!("nginx logged {line:?}");
        };
        Self {
            method: method.to_owned(),
            path: path.to_owned(),
            range: (!range.is_empty()).then(|| range.to_owned()),
            status: status.parse().unwrap(),
            bytes: bytes.parse().unwrap(),
        }
    }
}
