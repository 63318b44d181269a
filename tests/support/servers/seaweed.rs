//! An object store with the S3 protocol, which optionally checks signatures.

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
    /// Dropped after the process, which would recreate the sockets.
    _sockets: Sockets,
    ports: [Port; 8],
    keys: Option<Keys>,
    _dir: tempfile::TempDir,
}

impl Seaweed {
    /// The bucket that everyone may list and read, with or without a signature.
    pub const PUBLIC: &str = "public";

    /// Starts a server that allows everything, whatever the signature is.
    pub fn open() -> Self {
        Self::start(None)
    }

    /// Starts a server that requires the keys, except to read the bucket `PUBLIC`.
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
            // Disables the upload of usage statistics.
            .arg("-master.telemetry=false")
            .args(["-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3"])
            .args(["-s3.port.iceberg=0", "-s3.port.lance=0"])
            .args(["-volume.max=30", "-master.volumeSizeLimitMB=64"])
            // The default, 1 % of the disk, may be gigabytes.
            .arg("-volume.minFreeSpace=64MiB")
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
        // The gateway answers before any volume is writable.
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

    /// Returns the keys, if the server requires them.
    pub fn keys(&self) -> Option<&Keys> {
        self.keys.as_ref()
    }

    /// Creates the bucket, if it does not exist, and uploads every file of `tree` to it.
    pub fn put(&self, bucket: &str, tree: &Path) {
        put("s3-put", &self.endpoint(), bucket, tree, &aws(self.keys()));
    }

    /// Reads an object with the given keys, or anonymously.
    pub fn get(&self, bucket: &str, key: &str, keys: Option<&Keys>) -> Result<Vec<u8>, String> {
        answered(client("s3-get", &self.endpoint(), bucket, key, &aws(keys)))
    }

    /// Returns every key that begins with `prefix`, in the order of the server.
    pub fn list(
        &self,
        bucket: &str,
        prefix: &str,
        keys: Option<&Keys>,
    ) -> Result<Vec<String>, String> {
        let output = client("s3-list", &self.endpoint(), bucket, prefix, &aws(keys));
        answered(output).map(|output| lines(&output))
    }

    /// Returns the `zarrfs` arguments for sources in a bucket, with the given keys or anonymously.
    pub fn remote(&self, bucket: &str, keys: Option<&Keys>) -> Remote {
        Remote::s3(&self.endpoint(), bucket, keys)
    }
}

/// Files whose location cannot be configured.
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

/// Returns the environment of an S3 client.
pub(super) fn aws(keys: Option<&Keys>) -> Vec<(String, String)> {
    let mut env = vec![("AWS_REGION".to_owned(), "us-east-1".to_owned())];
    if let Some(keys) = keys {
        env.push(("AWS_ACCESS_KEY_ID".to_owned(), keys.name.clone()));
        env.push(("AWS_SECRET_ACCESS_KEY".to_owned(), keys.secret.clone()));
    }
    env
}
