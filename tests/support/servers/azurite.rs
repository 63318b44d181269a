//! An object store with the protocol of Azure.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::support::scratch;

use super::{Keys, Port, Process, Remote, answered, client, http, installed, lines, put};

/// Azurite. It checks signatures. A container is private to its account, or readable by all.
#[derive(Debug)]
pub struct Azurite {
    _process: Process,
    port: Port,
    keys: Keys,
    _dir: tempfile::TempDir,
}

const ACCOUNT: &str = "zarrfstests";

/// 64 bytes in base64.
const KEY: &str =
    "YSBrZXkgb2YgdGhlIHRlc3RzIG9mIHphcnJmcyBhbmQgb2Ygbm90aGluZyBlbHNlLCA2NCBieXRlcyBsb25nLg==";

impl Azurite {
    pub fn start() -> Self {
        let dir = scratch();
        let port = Port::free();
        let number = port.number.to_string();
        let keys = Keys::new(ACCOUNT, KEY);
        let mut command = Command::new(installed(".venv/bin/node"));
        command
            .arg(installed("node_modules/azurite/dist/src/blob/main.js"))
            .args(["--blobHost", "127.0.0.1", "--blobPort", &number])
            // Disables the upload of usage statistics.
            .args(["--silent", "--skipApiVersionCheck", "--disableTelemetry"])
            .arg("--location")
            .arg(dir.path())
            .env("AZURITE_ACCOUNTS", format!("{}:{}", keys.name, keys.secret));
        let mut process = Process::start("azurite", &command, &dir.path().join("log"));
        let url = format!("http://127.0.0.1:{number}/");
        process.wait(Duration::from_secs(60), || {
            http::request("GET", &url, &[], b"").is_ok()
        });
        Self {
            _process: process,
            port,
            keys,
            _dir: dir,
        }
    }

    /// Returns the endpoint of the account.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}/{ACCOUNT}", self.port.number)
    }

    /// Returns the keys of the account.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Creates a private or public container, if it does not exist, and uploads every file of
    /// `tree` to it.
    pub fn put(&self, container: &str, tree: &Path, is_public: bool) {
        let mut env = azure(Some(&self.keys));
        if is_public {
            env.push(("AZURE_PUBLIC".to_owned(), "1".to_owned()));
        }
        put("azure-put", &self.endpoint(), container, tree, &env);
    }

    /// Reads an object with the given keys, or anonymously.
    pub fn get(&self, container: &str, key: &str, keys: Option<&Keys>) -> Result<Vec<u8>, String> {
        let endpoint = self.endpoint();
        answered(client("azure-get", &endpoint, container, key, &azure(keys)))
    }

    /// Returns every key that begins with `prefix`.
    pub fn list(
        &self,
        container: &str,
        prefix: &str,
        keys: Option<&Keys>,
    ) -> Result<Vec<String>, String> {
        let endpoint = self.endpoint();
        let output = client("azure-list", &endpoint, container, prefix, &azure(keys));
        answered(output).map(|output| lines(&output))
    }

    /// Returns the `zarrfs` arguments for sources in a container, with the given keys or anonymously.
    pub fn remote(&self, container: &str, keys: Option<&Keys>) -> Remote {
        let remote = Remote::new(&format!("az://{container}"))
            .endpoint(&self.endpoint())
            .envs(azure(Some(&Keys::new(ACCOUNT, ""))).swap_remove(0));
        match keys {
            Some(keys) => azure(Some(keys)).into_iter().fold(remote, Remote::envs),
            None => remote.arg("--anonymous"),
        }
    }
}

/// Returns the environment of an Azure client.
fn azure(keys: Option<&Keys>) -> Vec<(String, String)> {
    let Some(keys) = keys else { return Vec::new() };
    vec![
        ("AZURE_STORAGE_ACCOUNT_NAME".to_owned(), keys.name.clone()),
        ("AZURE_STORAGE_ACCOUNT_KEY".to_owned(), keys.secret.clone()),
    ]
}
