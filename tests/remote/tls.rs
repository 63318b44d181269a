//! D6: certificates of private authorities, over real TLS. Every command has all variables of certificates set or
//! removed, because the machine that runs the tests may have them set.

use std::fs;
use std::path::Path;
use std::process::Output;
use std::time::Duration;

use crate::servers::{Https, without_cloud_environment};
use crate::support::*;

const VARIABLES: [&str; 5] = [
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "AWS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
];
const DOCUMENT: &str = r#"{"zarr_format": 2}"#;

/// A server of a hierarchy without arrays.
fn server() -> (tempfile::TempDir, Https) {
    let root = scratch();
    fs::create_dir(root.path().join("s.zarr")).unwrap();
    fs::write(root.path().join("s.zarr/.zgroup"), DOCUMENT).unwrap();
    let https = Https::start(root.path());
    (root, https)
}

/// Returns the output of `zarrfs tree` with exactly these variables of certificates.
fn tree(source: &str, args: &[&str], variables: &[(&str, &Path)]) -> Output {
    let mut command = zarrfs();
    without_cloud_environment(&mut command);
    for name in VARIABLES {
        command.env_remove(name);
    }
    command.envs(variables.iter().copied());
    command.args(["tree", source, "--timeout", "5s"]).args(args);
    run_for(&mut command, Duration::from_secs(30))
}

fn is_read(output: &Output) {
    assert!(output.status.success(), "{output:?}");
}

/// Checks that a source is refused with one message that has all words.
fn is_refused(output: &Output, words: &[&str]) {
    assert!(!output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(text.trim().lines().count(), 1, "{text}");
    for word in words {
        assert_eq!(text.matches(word).count(), 1, "{word}: {text}");
    }
}

#[test]
fn d06_each_way_to_name_a_private_authority_is_taken() {
    let (_root, https) = server();
    let ca = https.file("ca");
    let url = https.url("leaf", "s.zarr");
    let directory = scratch();
    fs::copy(&ca, directory.path().join("lab.crt")).unwrap();
    is_read(&tree(&url, &["--ca-bundle", ca.to_str().unwrap()], &[]));
    let in_directory = directory.path().to_str().unwrap();
    is_read(&tree(&url, &["--ca-bundle", in_directory], &[]));
    for name in VARIABLES {
        let path = match name {
            "SSL_CERT_DIR" => directory.path(),
            _ => &ca,
        };
        is_read(&tree(&url, &[], &[(name, path)]));
    }
    // A machine may name the authorities of the system in the other variables.
    let other = https.file("self");
    for name in VARIABLES.into_iter().filter(|name| *name != "SSL_CERT_DIR") {
        let all = VARIABLES.map(|one| (one, if one == name { &*ca } else { &*other }));
        is_read(&tree(&url, &[], &all));
    }
    // The option is alone, as in curl.
    let option = ["--ca-bundle", other.to_str().unwrap()];
    is_refused(
        &tree(&url, &option, &[("SSL_CERT_FILE", &ca)]),
        &["no authority that is trusted"],
    );
}

#[test]
fn d06_a_server_whose_own_certificate_is_an_authority_is_trusted() {
    let (_root, https) = server();
    for (certificate, trusted) in [("self", "self"), ("sub", "ca"), ("sub", "sub")] {
        let url = https.url(certificate, "s.zarr");
        is_read(&tree(&url, &[], &[("SSL_CERT_FILE", &https.file(trusted))]));
    }
    // The name of the signer is that of the trusted one, and its key is not.
    for (certificate, trusted) in [("self", "ca"), ("sub", "self"), ("leaf", "self")] {
        let url = https.url(certificate, "s.zarr");
        let output = tree(&url, &[], &[("SSL_CERT_FILE", &https.file(trusted))]);
        is_refused(&output, &["no authority that is trusted"]);
    }
}

#[test]
fn d06_a_certificate_that_is_refused_says_why_once_and_what_to_do() {
    let (_root, https) = server();
    for (certificate, trusted, words) in [
        (
            "leaf",
            "self",
            &[
                "no authority that is trusted",
                "--ca-bundle FILE",
                "else of SSL_CERT_FILE",
            ][..],
        ),
        (
            "self",
            "leaf",
            &["no authority that is trusted", "--ca-bundle FILE"],
        ),
        ("expired", "ca", &["has expired", "renew it"]),
        ("subexpired", "ca", &["has expired", "renew it"]),
        ("named", "ca", &["other.example", "subjectAltName"]),
        ("nameless", "nameless", &["other.example", "subjectAltName"]),
        ("client", "client", &["not for servers"]),
    ] {
        let url = https.url(certificate, "s.zarr");
        let output = tree(&url, &[], &[("SSL_CERT_FILE", &https.file(trusted))]);
        is_refused(&output, words);
    }
    // No certificate is trusted at all.
    let url = https.url("leaf", "s.zarr");
    let empty = scratch();
    is_refused(
        &tree(&url, &[], &[("SSL_CERT_DIR", empty.path())]),
        &["--ca-bundle FILE"],
    );
    let missing = empty.path().join("none.pem");
    let missing = missing.to_str().unwrap();
    is_refused(&tree(&url, &["--ca-bundle", missing], &[]), &[missing]);
    fs::write(empty.path().join("key.pem"), "no certificate").unwrap();
    let key = empty.path().join("key.pem");
    let key = key.to_str().unwrap();
    is_refused(
        &tree(&url, &["--ca-bundle", key], &[]),
        &[key, "no certificate in PEM"],
    );
}

#[test]
fn d06_a_bucket_takes_a_private_authority_too() {
    let (_root, https) = server();
    let endpoint = https.url("self", "");
    let args = ["--endpoint-url", &endpoint, "--anonymous"];
    let source = "s3://bucket/s.zarr";
    let own = https.file("self");
    let refused = tree(source, &args, &[("AWS_CA_BUNDLE", &https.file("ca"))]);
    is_refused(&refused, &["--ca-bundle FILE"]);
    // The server is no object store: its answer shows that the connection was made.
    let answered = tree(source, &args, &[("AWS_CA_BUNDLE", &own)]);
    let text = String::from_utf8_lossy(&answered.stderr);
    assert!(!text.contains("certificate"), "{text}");
}

#[test]
fn d12_no_redirect_leads_from_https_to_http() {
    let (_root, https) = server();
    let output = tree(
        &https.url("leaf", "down/s.zarr"),
        &[],
        &[("CURL_CA_BUNDLE", &https.file("ca"))],
    );
    is_refused(&output, &["from https to http"]);
}

#[test]
fn d06_a_mount_with_a_private_authority_is_read() {
    let (_root, https) = server();
    let ca = https.file("ca");
    let url = https.url("leaf", "s.zarr").replace("https", "HTTPS");
    let args = ["--ca-bundle", ca.to_str().unwrap()];
    let mount = Mount::attempt_in(&url, &args, |command| {
        without_cloud_environment(command);
        for name in VARIABLES {
            command.env_remove(name);
        }
    });
    let mount = mount.unwrap_or_else(|refusal| panic!("{refusal:?}"));
    assert_eq!(fs::read_to_string(mount.join(".zgroup")).unwrap(), DOCUMENT);
    mount.unmount();
}
