//! D3, D4, D18: sources that deny access, credentials that expire, and buckets in another region.

use std::path::Path;

use crate::clients::Foreground;
use crate::faulty::*;
use crate::remote::*;
use crate::support::*;

#[test]
fn d03_a_chunk_that_is_forbidden_is_eacces_and_not_absent() {
    for backend in BOTH {
        let remote = Remote::new(backend);
        let mount = remote.mount(&[]);
        let forbidden = match backend {
            Backend::Http => Fault::status(403),
            Backend::S3 => Fault::s3(403, "AccessDenied"),
        };
        let rule = remote.server.add(on(&remote.at("a", 1)), forbidden);
        remote.chunk_fails(&mount, "a", 1, &[EACCES]);
        assert!(rule.hits() <= 6, "forbidden keys are not requested again");
        logged(&mount, &["a/c/1", "EACCES"]);
        if backend == Backend::S3 {
            logged(&mount, &["ListBucket"]);
        }
        remote.heals(&mount, "a");
    }
}

#[test]
fn d03_an_option_treats_forbidden_chunks_as_absent() {
    let fill = FILL.to_le_bytes().repeat(CHUNK);
    for backend in BOTH {
        let remote = Remote::new(backend);
        let mount = remote.mount(&["--missing-status", "403"]);
        logged(&mount, &["403", "missing|absent"]);
        let rule = on(&remote.at("hole", 1));
        remote.server.add(rule, Fault::status(403));
        assert!(read(remote.view(&mount, "hole", 1)).unwrap() == fill);
        assert_eq!(errno(read(mount.join(remote.key("hole", 1)))), ENOENT);
        // Other statuses are not treated as absence.
        remote.server.heal();
        remote
            .server
            .add(on(&remote.at("a", 1)), Fault::status(401));
        remote.chunk_fails(&mount, "a", 1, &[EACCES]);
        remote.heals(&mount, "a");
    }
}

#[test]
fn d03_a_source_that_is_forbidden_is_not_mounted() {
    for backend in BOTH {
        for status in [401, 403] {
            let remote = Remote::new(backend);
            remote.server.add(on("*"), Fault::status(status));
            remote.is_refused(&["denied|forbidden|unauthorized|credentials|permission|401|403"]);
        }
    }
}

#[test]
fn d04_a_401_is_eacces_and_no_secret_is_printed() {
    let remote = Remote::new(Backend::Http);
    let mount = remote.mount(&[
        "--header",
        "Authorization: Bearer CANARY",
        "--log-level",
        "trace",
    ]);
    remote.reads(&mount, "good");
    for request in remote.server.requests() {
        assert_eq!(request.header("authorization"), Some("Bearer CANARY"));
    }
    let rule = remote
        .server
        .add(on(&remote.at("a", 1)), Fault::status(401));
    remote.chunk_fails(&mount, "a", 1, &[EACCES]);
    assert!(rule.hits() <= 6, "{} times", rule.hits());
    remote.heals(&mount, "a");
    assert!(!mount.log().contains("CANARY"), "{}", mount.log());
    assert!(
        !std::fs::read_to_string("/proc/mounts")
            .unwrap()
            .contains("CANARY")
    );
}

/// Returns the document of a credentials service.
fn credentials(key: &str, expires: &str) -> String {
    format!(
        r#"{{"AccessKeyId":"{key}","SecretAccessKey":"SECRET{key}","Token":"TOKEN{key}","Expiration":"{expires}"}}"#
    )
}

#[test]
fn d04_expired_credentials_are_fetched_again_once() {
    let remote = Remote::new(Backend::S3);
    let giver = Server::files();
    let far_off = "2099-01-01T00:00:00Z";
    giver.put("credentials", credentials("KEYONE", far_off));
    let url = giver.url_of("credentials");
    let env = [
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", url.as_str()),
        ("AWS_EC2_METADATA_DISABLED", "true"),
        ("AWS_SHARED_CREDENTIALS_FILE", "/dev/null"),
        ("AWS_CONFIG_FILE", "/dev/null"),
        ("AWS_REGION", "us-east-1"),
    ];
    let mut options = remote.options();
    options.extend(["--log-level".into(), "trace".into()]);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let mount = Foreground::new(&[], &env, Path::new(&remote.source()), &options);
    let native = |i| mount.join(remote.key("a", i));
    assert!(read(native(0)).unwrap() == chunk(0));
    let signed = |key: &str| {
        let requests = remote.server.requests();
        let last = requests
            .iter()
            .rev()
            .find(|r| r.header("authorization").is_some());
        last.is_some_and(|r| r.header("authorization").unwrap().contains(key))
    };
    assert!(signed("KEYONE"));

    // The old key has expired, and a new one is available.
    let old = on("*").header("authorization", "*KEYONE*");
    remote.server.add(old, Fault::s3(400, "ExpiredToken"));
    giver.put("credentials", credentials("KEYTWO", far_off));
    giver.forget_requests();
    assert!(read(native(1)).unwrap() == chunk(1));
    assert!(signed("KEYTWO"));
    assert_eq!(giver.requests().len(), 1, "one refresh");

    // No valid key is available.
    remote.server.add(on("*"), Fault::s3(400, "ExpiredToken"));
    giver.forget_requests();
    remote.server.forget_requests();
    is_one_of(
        in_time(LIMIT, "the key", || read(mount.join(remote.key("z", 2)))),
        &[EACCES],
        "the key",
    );
    let refreshes = giver.requests();
    // Keys of `a` can still be prefetched at this time. Each of their requests may ask for credentials, too.
    let (requests, prefetches): (Vec<_>, Vec<_>) = remote
        .server
        .requests()
        .into_iter()
        .partition(|request| request.key == remote.at("z", 2));
    assert!(
        refreshes.len() <= 2 + prefetches.len(),
        "{refreshes:?} {prefetches:?}"
    );
    assert!(requests.len() <= 4, "{requests:?}");
    remote.server.heal();
    let next = in_time(SOON, "the next read", || {
        read(mount.join(remote.key("z", 2)))
    });
    assert!(next.unwrap() == remote.server.get(&remote.at("z", 2)).unwrap());
    for secret in ["SECRETKEY", "TOKENKEY"] {
        assert!(!mount.log().contains(secret), "{}", mount.log());
    }
}

/// Refuses every request that is not signed for the region `eu-west-3`.
fn in_eu_west_3(remote: &Remote, refusal: Fault) -> Rule {
    let elsewhere = on("*").header("authorization", "*/us-east-1/s3/*");
    let refusal = refusal.with("x-amz-bucket-region", "eu-west-3");
    remote.server.add(elsewhere, refusal)
}

/// Mounts with credentials, so that requests are signed.
fn signed(remote: &Remote, more: &[&str]) -> Result<Mount, Refusal> {
    let options = remote.options();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    Mount::attempt_in(remote.source(), &[&options, more].concat(), |command| {
        command
            .env("AWS_ACCESS_KEY_ID", "KEY")
            .env("AWS_SECRET_ACCESS_KEY", "SECRET");
    })
}

#[test]
fn d18_the_region_of_a_response_is_used_for_all_further_requests() {
    for refusal in [
        Fault::s3(400, "AuthorizationHeaderMalformed"),
        Fault::s3(301, "PermanentRedirect"),
        Fault::s3(403, "AccessDenied"),
    ] {
        let remote = Remote::new(Backend::S3);
        let rule = in_eu_west_3(&remote, refusal);
        let mount = signed(&remote, &[]).unwrap();
        assert!(read(mount.join(remote.key("a", 0))).unwrap() == chunk(0));
        assert_eq!(rule.hits(), 1);
    }
}

#[test]
fn d18_a_wrong_region_of_the_user_is_refused_and_the_right_one_is_named() {
    let remote = Remote::new(Backend::S3);
    in_eu_west_3(&remote, Fault::s3(400, "AuthorizationHeaderMalformed"));
    let refusal = signed(&remote, &["--region", "us-east-1"]).expect_err("the mount must fail");
    let expected = "the bucket is in the region eu-west-3, not in us-east-1";
    assert_refusal(&refusal, &[expected, "--region"]);
    assert!(signed(&remote, &["--region", "eu-west-3"]).is_ok());
}

#[test]
fn d18_a_region_that_changes_with_each_response_is_an_error() {
    let remote = Remote::new(Backend::S3);
    let elsewhere = |from: &str, to: &str| {
        let requests = on("*").header("authorization", &format!("*/{from}/s3/*"));
        let refusal = Fault::s3(301, "PermanentRedirect").with("x-amz-bucket-region", to);
        remote.server.add(requests, refusal);
    };
    elsewhere("us-east-1", "eu-west-3");
    elsewhere("eu-west-3", "us-east-1");
    let refusal = signed(&remote, &[]).expect_err("the mount must fail");
    assert_refusal(&refusal, &["in the region us-east-1, not in eu-west-3"]);
    assert_eq!(remote.server.requests().len(), 2);
}
