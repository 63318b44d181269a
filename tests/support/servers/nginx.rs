//! A web server.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::support::{is_root, scratch, wait_until};

use super::{Port, Process, Remote, http};

/// nginx over one directory, which each location serves in another way:
///
/// | location     | behaviour                                                    |
/// |--------------|--------------------------------------------------------------|
/// | `/`          | files; a directory returns 403                               |
/// | `/index/`    | a directory is a page of links, without names that begin with a dot |
/// | `/json/`     | as `/index/`, but in JSON                                    |
/// | `/norange/`  | every range request returns the whole file                   |
/// | `/auth/`     | only for `USER` with `PASSWORD`                              |
/// | `/redirect/` | redirects to the file below `/`                              |
/// | `/to/PORT/`  | redirects to the file below `/` of another port              |
/// | `/noetag/`   | no ETag: versions of a file differ only in `Last-Modified`   |
/// | `/closed/`   | a missing file returns 403                                   |
/// | `/slow/`     | 1 MiB per second on each connection                          |
#[derive(Debug)]
pub struct Nginx {
    _process: Process,
    port: Port,
    marks: AtomicU32,
    dir: tempfile::TempDir,
}

/// A completed request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub method: String,
    /// The path with the query, as sent by the client.
    pub path: String,
    /// The value of the header `Range`.
    pub range: Option<String>,
    pub status: u16,
    /// The size of the response body in bytes.
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
        location ~ ^/to/(?<other_port>\d+)(?<other_path>/.*)$ { return 302 http://127.0.0.1:$other_port$other_path; }
        location /noetag/ { alias "@ROOT@/"; etag off; }
        location /closed/ { alias "@ROOT@/"; error_page 404 = @denied; }
        location @denied { return 403; }
        location /slow/ { alias "@ROOT@/"; limit_rate 1m; }
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
        // Without this, the workers of a root process run as another user.
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

    /// Returns the URL of a path that begins with a location, such as `index/v3`.
    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.port.number)
    }

    /// Returns the `zarrfs` arguments for sources below a location (without slashes; "" is `/`).
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

    /// Returns every completed request so far, in order.
    pub fn requests(&self) -> Vec<Request> {
        // The only worker logs in order, so once the marker request is logged, all earlier ones are.
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

/// The path prefix of the marker requests of this module.
const MARK: &str = "/.mark-";

/// Returns the value of the header `Authorization`.
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
