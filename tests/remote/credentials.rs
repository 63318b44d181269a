//! Credentials that a command prints and that expire.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::compare::*;
use crate::servers::{Azurite, Moto, Nginx, Remote, TwoPorts};
use crate::support::*;

/// A command that counts its runs.
struct Counted {
    dir: tempfile::TempDir,
    line: String,
}

impl Counted {
    fn new(line: &str) -> Self {
        let dir = scratch();
        let runs = dir.path().join("runs");
        let line = format!("printf x >>'{}'; {line}", runs.display());
        Self { dir, line }
    }

    fn runs(&self) -> usize {
        fs::read(self.dir.path().join("runs")).map_or(0, |runs| runs.len())
    }
}

/// Reads a file from a server whose tokens expire, until `seconds` have passed. Returns the requests.
fn read_for(seconds: u64, arguments: &[&str]) -> Vec<String> {
    let served = served();
    let server = TwoPorts::start("expiring.py", served.path(), arguments);
    let command = format!("curl -sS http://127.0.0.1:{}/", server.port() + 1);
    let remote = Remote::new(&format!("http://127.0.0.1:{}", server.port()));
    let remote = remote.arg("--credential-command").arg(&command);
    // Each read asks the server.
    let mounted = remote.arg("--ttl").arg("0s").mount("v3-consolidated");
    let expected = fs::read(served.path().join("v3-consolidated/zstd/zarr.json")).unwrap();
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        let found = read(mounted.join("zstd/zarr.json"));
        assert_eq!(found.unwrap(), expected);
        std::thread::sleep(Duration::from_millis(50));
    }
    mounted.unmount();
    server.requests()
}

#[test]
fn a_token_is_renewed_before_it_expires() {
    let requests = read_for(5, &["2"]);
    let tokens = requests.iter().filter(|line| *line == "token").count();
    assert!((2..=5).contains(&tokens), "{requests:?}");
    let others = requests.iter().filter(|line| line.starts_with("401"));
    // The one that the test waits for.
    assert!(others.count() <= 1, "{requests:?}");
    assert!(requests.len() > 20, "{requests:?}");
}

#[test]
fn a_token_is_renewed_when_the_server_refuses_it() {
    let requests = read_for(8, &["6", "--silent"]);
    let tokens = requests.iter().filter(|line| *line == "token").count();
    assert_eq!(tokens, 2, "{requests:?}");
}

#[test]
fn the_keys_of_a_bucket_are_asked_for_once() {
    let served = served();
    let moto = Moto::start();
    moto.put("private", served.path());
    let keys = moto.enforce("private");
    let command = Counted::new(&format!(
        r#"printf '{{"Version": 1, "AccessKeyId": "{}", "SecretAccessKey": "{}"}}'"#,
        keys.name, keys.secret
    ));
    let remote = Remote::new("s3://private").endpoint(&moto.endpoint());
    let remote = remote.arg("--credential-command").arg(&command.line);
    let mounted = remote.mount("v3-consolidated");
    assert_eq!(
        read(mounted.join("zstd/zarr.json")).unwrap(),
        fs::read(served.path().join("v3-consolidated/zstd/zarr.json")).unwrap()
    );
    read(mounted.join("zstd/.zarrfs/zstd.npy")).unwrap();
    // A key that is not there is no sign of old keys.
    for _ in 0..3 {
        assert!(fs::metadata(mounted.join("none")).is_err());
    }
    mounted.unmount();
    assert_eq!(command.runs(), 1);
}

#[test]
fn a_signature_of_azure_opens_a_private_container() {
    let served = served();
    let azurite = Azurite::start();
    azurite.put("private", served.path(), false);
    let keys = azurite.keys();
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/servers/.venv/bin/python");
    let script = format!(
        "import datetime, json, azure.storage.blob as blob\n\
         end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)\n\
         sas = blob.generate_container_sas('{}', 'private', account_key='{}', permission='rl', expiry=end)\n\
         print(json.dumps({{'token': sas, 'msft:expiry': end.isoformat()}}))",
        keys.name, keys.secret
    );
    let command = Counted::new(&format!("{} -c \"{script}\"", python.display()));
    let with_command = |base: &str| {
        let remote = Remote::new(base);
        remote.arg("--credential-command").arg(&command.line)
    };
    let azure = with_command("az://private").endpoint(&azurite.endpoint());
    // As Planetary Computer names its assets.
    let web = with_command(&format!("{}/private", azurite.endpoint()));
    for remote in [azure, web] {
        let mounted = remote.mount("v3-consolidated");
        assert_eq!(
            read(mounted.join("zstd/zarr.json")).unwrap(),
            fs::read(served.path().join("v3-consolidated/zstd/zarr.json")).unwrap()
        );
        let missing = fs::metadata(mounted.join("zstd/c/99/99")).unwrap_err();
        assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
        mounted.unmount();
    }
    assert_eq!(command.runs(), 2);
}

#[test]
fn the_password_of_a_web_server_is_in_netrc() {
    let served = served();
    let nginx = Nginx::start(served.path());
    let file = served.path().join("netrc");
    let entry = |host: &str| {
        let (user, password) = (Nginx::USER, Nginx::PASSWORD);
        let text = format!("machine {host} login {user} password {password}\n");
        fs::write(&file, text).unwrap();
        let remote = Remote::new(nginx.url("auth").trim_end_matches('/'));
        remote.envs(("NETRC".to_owned(), file.to_str().unwrap().to_owned()))
    };
    let mounted = entry("127.0.0.1").mount("v3-consolidated");
    read(mounted.join("zstd/zarr.json")).unwrap();
    mounted.unmount();
    for (host, options) in [("other", &[][..]), ("127.0.0.1", &["--anonymous"])] {
        let remote = options
            .iter()
            .fold(entry(host), |remote, option| remote.arg(option));
        let source = remote.source("v3-consolidated");
        let text = format!("{:?}", remote.attempt(&source).unwrap_err());
        assert!(text.contains("401"), "{text}");
    }
}

#[test]
fn a_command_that_fails_is_named_with_its_reason() {
    let refused = |base: &str, line: &str| {
        let remote = Remote::new(base).arg("--credential-command").arg(line);
        let source = remote.source("a");
        format!("{:?}", remote.attempt(&source).unwrap_err())
    };
    for (base, line, reason) in [
        ("s3://b", "echo no login >&2; exit 1", "no login"),
        (
            "http://127.0.0.1:1",
            "echo no login >&2; exit 1",
            "no login",
        ),
        (
            "s3://b",
            r#"echo '{"headers":{"A":"b"}}'"#,
            "does not print AWS keys",
        ),
        (
            "redis://127.0.0.1/0?prefix=a",
            "true",
            "--credential-command",
        ),
    ] {
        let text = refused(base, line);
        assert!(text.contains(reason), "{base} {line}: {text}");
        assert!(text.contains("--credential-command"), "{text}");
    }
}
