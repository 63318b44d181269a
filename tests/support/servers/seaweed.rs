//! An object store that speaks S3, and checks signatures if it is to.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::json;

use crate::support::scratch;

use super::{Keys, Port, Process, Remote, answered, client, http, installed, lines, put};

/// SeaweedFS: master, volume server, filer and S3 gateway in one process.
#[derive(Debug)]
pub struct Seaweed {
    _process: Process,
    /// Go after the process, which would make them again.
    _sockets: Sockets,
    ports: [Port; 8],
    keys: Option<Keys>,
    _dir: tempfile::TempDir,
}

impl Seaweed {
    /// The bucket that everybody may list and read, signed or not.
    pub const PUBLIC: &str = "public";

    /// Everybody may do everything, whatever they are signed with.
    pub fn open() -> Self {
        Self::start(None)
    }

    /// Only who knows the keys may do anything; the bucket `PUBLIC` is for all to read.
    pub fn signed() -> Self {
        let keys = Keys::new("ZARRFSTESTSEAWEED", "seaweed/secret+of-the-tests");
        Self::start(Some(keys))
    }

    fn start(keys: Option<Keys>) -> Self {
        let dir = scratch();
        let path = |name: &str| {
            dir.path()
                .join(name)
                .into_os_string()
                .into_string()
                .unwrap()
        };
        let ports: [Port; 8] = std::array::from_fn(|_| Port::free());
        fs::create_dir(path("data")).unwrap();
        let mut command = Command::new(installed(".venv/bin/weed"));
        command
            .current_dir(dir.path())
            .args(["-logtostderr=true", "server"])
            // It would count itself somewhere else.
            .arg("-master.telemetry=false")
            .args(["-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3"])
            .args(["-s3.port.iceberg=0", "-s3.port.lance=0"])
            .args(["-volume.max=30", "-master.volumeSizeLimitMB=64"])
            .arg(format!("-dir={}", path("data")))
            .arg(format!("-filer.localSocket={}", path("filer.sock")))
            .arg(format!("-s3.localSocket={}", path("s3.sock")));
        for (option, port) in PORTS.iter().zip(&ports) {
            command.arg(format!("-{option}={}", port.number));
        }
        if let Some(keys) = &keys {
            let identities = json!({"identities": [
                {
                    "name": "owner",
                    "credentials": [{"accessKey": keys.name, "secretKey": keys.secret}],
                    "actions": ["Admin", "Read", "List", "Tagging", "Write"],
                },
                {"name": "anonymous", "actions": [
                    format!("Read:{}", Self::PUBLIC), format!("List:{}", Self::PUBLIC),
                ]},
            ]});
            fs::write(path("identities"), identities.to_string()).unwrap();
            command.arg(format!("-s3.config={}", path("identities")));
        }
        let log = dir.path().join("log");
        let process = Process::start("seaweedfs", &command, &log);
        let mut seaweed = Self {
            _process: process,
            _sockets: Sockets::of(&ports),
            ports,
            keys,
            _dir: dir,
        };
        // The gateway answers before there is a place to put anything.
        let gateway = seaweed.endpoint();
        let volumes = format!("http://127.0.0.1:{}/dir/assign", seaweed.ports[0].number);
        seaweed._process.wait(Duration::from_secs(60), || {
            http::request("GET", &gateway, &[], b"").is_ok()
                && http::request("GET", &volumes, &[], b"").is_ok_and(|a| a.status == 200)
        });
        seaweed
    }

    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports[6].number)
    }

    /// Who may do everything, if not everybody may.
    pub fn keys(&self) -> Option<&Keys> {
        self.keys.as_ref()
    }

    /// Makes the bucket, if there is none, and puts every file of `tree` into it.
    pub fn put(&self, bucket: &str, tree: &Path) {
        put("s3-put", &self.endpoint(), bucket, tree, &aws(self.keys()));
    }

    /// Reads an object with these keys, or with none.
    pub fn get(&self, bucket: &str, key: &str, keys: Option<&Keys>) -> Result<Vec<u8>, String> {
        answered(client("s3-get", &self.endpoint(), bucket, key, &aws(keys)))
    }

    /// Every key that begins with `prefix`, as the server orders them.
    pub fn list(
        &self,
        bucket: &str,
        prefix: &str,
        keys: Option<&Keys>,
    ) -> Result<Vec<String>, String> {
        let output = client("s3-list", &self.endpoint(), bucket, prefix, &aws(keys));
        answered(output).map(|output| lines(&output))
    }

    /// What `zarrfs` is told to mount something of a bucket, with these keys or anonymously.
    pub fn remote(&self, bucket: &str, keys: Option<&Keys>) -> Remote {
        Remote::s3(&self.endpoint(), bucket, keys)
    }
}

/// Files that it cannot be told to have in another place.
#[derive(Debug)]
struct Sockets(Vec<String>);

impl Sockets {
    fn of(ports: &[Port]) -> Self {
        let names = PORTS.iter().zip(ports).filter_map(|(option, port)| {
            let part = option.strip_suffix(".port.grpc")?;
            Some(format!("/tmp/seaweedfs-{part}-grpc-{}.sock", port.number))
        });
        Self(names.collect())
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = fs::remove_file(path);
        }
    }
}

const PORTS: [&str; 8] = [
    "master.port",
    "master.port.grpc",
    "volume.port",
    "volume.port.grpc",
    "filer.port",
    "filer.port.grpc",
    "s3.port",
    "s3.port.grpc",
];

/// The environment of an S3 client.
pub(super) fn aws(keys: Option<&Keys>) -> Vec<(String, String)> {
    let mut env = vec![("AWS_REGION".to_owned(), "us-east-1".to_owned())];
    if let Some(keys) = keys {
        env.push(("AWS_ACCESS_KEY_ID".to_owned(), keys.name.clone()));
        env.push(("AWS_SECRET_ACCESS_KEY".to_owned(), keys.secret.clone()));
    }
    env
}
