//! The error of an unauthorised mount names the reason, but not the secret.

use std::fs;
use std::path::Path;

use crate::compare::served;
use crate::servers::{Azurite, Keys, Moto, Nginx, Remote, Seaweed, basic};
use crate::support::*;

/// Returns a small hierarchy.
fn small() -> tempfile::TempDir {
    let (served, small) = (served(), scratch());
    let (from, to) = (served.path().join("v3-sharded"), small.path().join("store"));
    run(std::process::Command::new("cp").arg("-r").arg(from).arg(to));
    small
}

/// Asserts that the store can be mounted with the right credentials. With the wrong ones, the exit
/// code is 32, and the message names host and reason, but none of the `secrets`.
fn is_refused(right: &Remote, wrong: &Remote, host: &str, secrets: &[&str]) {
    right.mount("store").unmount();
    let source = wrong.source("store");
    let Err(refusal) = wrong.attempt(&source) else {
        panic!("{source} was mounted with wrong credentials");
    };
    let message = refusal.stderr.to_lowercase();
    assert_eq!(refusal.code, Some(32), "{source}: {message}");
    let reasons = [
        "denied",
        "credentials",
        "forbidden",
        "unauthorized",
        "not authorized",
        "password",
        "signature",
        "401",
        "403",
    ];
    assert!(
        reasons.iter().any(|reason| message.contains(reason)),
        "{source}: no reason: {message}"
    );
    assert!(
        refusal.stderr.contains(&source) || refusal.stderr.contains(host),
        "{source}: not named: {message}"
    );
    assert!(refusal.stderr.lines().count() <= 5, "{source}: {message}");
    let ways = ["--env-file", "--header"];
    assert!(
        ways.iter().any(|way| refusal.stderr.contains(way)),
        "{source}: it does not say what to do: {message}"
    );
    for secret in secrets {
        assert!(
            !refusal.stderr.contains(secret),
            "{source}: {secret} in {message}"
        );
    }
}

#[test]
fn a_wrong_secret_of_s3_is_refused_and_not_printed() {
    let small = small();
    let seaweed = Seaweed::signed();
    seaweed.put("private", small.path());
    let keys = seaweed.keys().unwrap();
    let right = seaweed.remote("private", Some(keys));
    let host = seaweed.endpoint();
    let wrong = keys.with_wrong_secret();
    let secrets = [keys.secret.as_str(), &wrong.secret];
    is_refused(
        &right,
        &seaweed.remote("private", Some(&wrong)),
        &host,
        &secrets,
    );
    let unknown = Keys::new("UNKNOWNKEY", &keys.secret);
    let secrets = [keys.secret.as_str()];
    is_refused(
        &right,
        &seaweed.remote("private", Some(&unknown)),
        &host,
        &secrets,
    );
    is_refused(&right, &seaweed.remote("private", None), &host, &secrets);
}

#[test]
fn a_user_of_s3_with_rights_to_another_bucket_is_refused() {
    let small = small();
    let moto = Moto::start();
    moto.put("own", small.path());
    moto.put("other", small.path());
    let keys = moto.enforce("own");
    let right = moto.remote("own", &keys);
    let host = moto.endpoint();
    is_refused(&right, &moto.remote("other", &keys), &host, &[&keys.secret]);
    let wrong = keys.with_wrong_secret();
    let secrets = [keys.secret.as_str(), &wrong.secret];
    is_refused(&right, &moto.remote("own", &wrong), &host, &secrets);
}

#[test]
fn a_wrong_key_of_azure_is_refused_and_not_printed() {
    let small = small();
    let azurite = Azurite::start();
    azurite.put("private", small.path(), false);
    let right = azurite.remote("private", Some(azurite.keys()));
    let wrong = Keys::new(&azurite.keys().name, "d3Jvbmcga2V5IG9mIHRoZSB0ZXN0cw==");
    let host = azurite.endpoint();
    let secrets = [azurite.keys().secret.as_str(), &wrong.secret];
    is_refused(
        &right,
        &azurite.remote("private", Some(&wrong)),
        &host,
        &secrets,
    );
    is_refused(&right, &azurite.remote("private", None), &host, &secrets);
}

#[test]
fn a_wrong_password_of_a_web_server_is_refused_and_not_printed() {
    let small = small();
    let nginx = Nginx::start(small.path());
    let right = nginx.remote("auth");
    let host = nginx.url("");
    let plain = Remote::new(&nginx.url("auth"));
    is_refused(&right, &plain, &host, &[Nginx::PASSWORD]);
    let credentials = basic(Nginx::USER, "a-wrong-password");
    let wrong = plain
        .arg("--header")
        .arg(&format!("Authorization: {credentials}"));
    let secrets = ["a-wrong-password", credentials.trim_start_matches("Basic ")];
    is_refused(&right, &wrong, &host, &secrets);
}

#[test]
fn an_unreachable_server_is_named() {
    let port = crate::servers::Port::free();
    let remote = Remote::new(&format!("http://127.0.0.1:{}", port.number))
        .arg("--retries")
        .arg("1");
    let refusal = remote.attempt(&remote.source("store")).unwrap_err();
    assert_eq!(refusal.code, Some(32), "{refusal:?}");
    let host = format!("127.0.0.1:{}", port.number);
    assert!(refusal.stderr.contains(&host), "{refusal:?}");
}

#[test]
fn an_absent_store_is_refused() {
    let small = small();
    fs::create_dir(small.path().join("empty")).unwrap();
    let nginx = Nginx::start(small.path());
    for path in ["nowhere", "nowhere.zip", "empty"] {
        let source = nginx.remote("").source(path);
        let refusal = nginx.remote("").attempt(&source).unwrap_err();
        assert_eq!(refusal.code, Some(32), "{source}: {refusal:?}");
        let name = Path::new(path).file_stem().unwrap().to_str().unwrap();
        assert!(refusal.stderr.contains(name), "{source}: {refusal:?}");
    }
}
