//! A web server over TLS, with one port for each certificate.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::support::scratch;

use super::{Port, Process};

/// `CERTIFICATES` makes them, in this order: each has the name `localhost` and is valid, but for what follows.
///
/// | name         |                                                                             |
/// | ------------ | --------------------------------------------------------------------------- |
/// | `leaf`       | signed by `ca`                                                              |
/// | `sub`        | signed by `ca`, and `CA:TRUE` itself                                        |
/// | `self`       | signed by itself, as plain `openssl req -x509` makes it: `CA:TRUE`          |
/// | `client`     | as `self`, for clients only                                                 |
/// | `nameless`   | as `self`, with another name                                                |
/// | `named`      | as `leaf`, with another name                                                |
/// | `expired`    | as `leaf`, expired                                                          |
/// | `subexpired` | as `sub`, expired                                                           |
const NAMES: [&str; 8] = [
    "leaf",
    "sub",
    "self",
    "client",
    "nameless",
    "named",
    "expired",
    "subexpired",
];

/// All authorities have one name, so that only their keys tell them apart.
const CERTIFICATES: &str = r#"
exec 2>/dev/null
new='-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes'
own() { file=$1; shift; openssl req -x509 $new -keyout $file.key -out $file.pem -days 2 -subj /CN=localhost $@; }
signed() {
    printf "$2" > names
    openssl req $new -keyout $1.key -out request.pem -subj /CN=localhost
    openssl x509 -req -in request.pem -CA ca.pem -CAkey ca.key -CAcreateserial -days $3 -extfile names -out $1.pem
}
name=subjectAltName=DNS:localhost
own ca
own self -addext $name
own client -addext $name -addext extendedKeyUsage=clientAuth
own nameless -addext subjectAltName=DNS:other.example
signed leaf $name 2
signed sub $name'\nbasicConstraints=critical,CA:TRUE' 2
signed named subjectAltName=DNS:other.example 2
signed expired $name -1
signed subexpired $name'\nbasicConstraints=critical,CA:TRUE' -1
"#;

/// Serves one directory with each certificate.
#[derive(Debug)]
pub struct Https {
    _process: Process,
    ports: Vec<Port>,
    dir: tempfile::TempDir,
}

impl Https {
    /// Serves the directory `root`. Paths below `down/` redirect to http.
    pub fn start(root: &Path) -> Self {
        let dir = scratch();
        crate::support::sh(&format!("cd {} && {CERTIFICATES}", dir.path().display()));
        let ports: Vec<Port> = NAMES.iter().map(|_| Port::free()).collect();
        let mut command = Command::new("python3");
        let script = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/support/servers/https.py"
        );
        command.arg(script).arg(root);
        for (name, port) in NAMES.iter().zip(&ports) {
            let certificate = dir.path().join(format!("{name}.pem"));
            command.arg(format!("{}={}", port.number, certificate.display()));
        }
        let mut process = Process::start("https", &command, &dir.path().join("log"));
        process.wait(Duration::from_secs(20), || {
            let is_open = |port: &Port| TcpStream::connect(("127.0.0.1", port.number)).is_ok();
            ports.iter().all(is_open)
        });
        Self {
            _process: process,
            ports,
            dir,
        }
    }

    /// Returns the URL of a path, below the port with a certificate.
    pub fn url(&self, certificate: &str, path: &str) -> String {
        let index = NAMES.iter().position(|name| *name == certificate).unwrap();
        format!("https://localhost:{}/{path}", self.ports[index].number)
    }

    /// Returns the file of a certificate; `ca` is the authority.
    pub fn file(&self, certificate: &str) -> PathBuf {
        self.dir.path().join(format!("{certificate}.pem"))
    }
}
