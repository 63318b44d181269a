//! Repositories on servers.

use std::fs;

use rustix::io::Errno;

use crate::servers::{Azurite, FakeGcs, Moto, Nginx, Remote};
use crate::support::faulty::{Fault, Server, on};
use crate::support::*;
use crate::{FORMATS, PREFIX_BYTES, Repository, is_version};

/// Serves a repository and its virtual chunks from a web server.
fn served(format: &str) -> (Nginx, Repository) {
    let repository = Repository::bare(format);
    let nginx = Nginx::start(repository.dir.path());
    repository.move_targets(&nginx.url("/targets/"));
    (nginx, repository)
}

/// Returns the requests for files below a directory of the repository.
fn below(nginx: &Nginx, directory: &str) -> Vec<String> {
    let requests = nginx.requests().into_iter();
    let requests = requests.filter(|request| request.path.contains(directory));
    requests
        .map(|request| format!("{} {}", request.method, request.path))
        .collect()
}

#[test]
fn a_repository_on_a_web_server_has_every_array() {
    for format in FORMATS {
        let (nginx, _repository) = served(format);
        for location in ["", "index"] {
            let mount = nginx.remote(location).mount("repository");
            is_version(mount.path(), "second");
            mount.unmount();
        }
        let remote = nginx.remote("").arg("--ref").arg("v1");
        let mount = remote.mount("repository");
        is_version(mount.path(), "first");
        mount.unmount();
    }
}

#[test]
fn chunks_take_one_request_each_and_names_take_none() {
    for format in FORMATS {
        let (nginx, _repository) = served(format);
        let mount = nginx.remote("").mount("repository");
        let listed = run(std::process::Command::new("find")
            .arg(mount.path())
            .args(["-size", "+7k"]));
        assert!(listed.lines().count() >= 4, "{listed}");
        assert_eq!(below(&nginx, "/chunks/").len(), 0, "{:?}", nginx.requests());
        let manifests = below(&nginx, "/manifests/");
        let mut once = manifests.clone();
        once.sort();
        once.dedup();
        assert_eq!(manifests.len(), once.len(), "{manifests:?}");
        for number in 0..4 {
            let chunk = read(mount.join(format!("sub/long/c/{number}"))).unwrap();
            assert_eq!(chunk.len(), 8000);
        }
        let chunks = below(&nginx, "/chunks/");
        assert_eq!(chunks.len(), 4, "{chunks:?}");
        assert!(
            chunks.iter().all(|chunk| chunk.starts_with("GET")),
            "{chunks:?}"
        );
        mount.unmount();
    }
}

#[test]
fn immutable_content_comes_from_the_disk_cache_without_a_request() {
    for format in FORMATS {
        let (nginx, _repository) = served(format);
        let cache = scratch();
        let cache = cache.path().join("cache");
        let remote = nginx
            .remote("")
            .arg("--disk-cache")
            .arg(cache.to_str().unwrap());
        let all = |mount: &Mount| read(mount.join("sub/long/.zarrfs/long.npy")).unwrap();
        let mount = remote.mount("repository");
        let first = all(&mount);
        mount.unmount();
        let before = nginx.requests().len();
        let mount = remote.mount("repository");
        assert_eq!(all(&mount), first);
        mount.unmount();
        let requests = nginx.requests().split_off(before);
        let immutable = ["/snapshots/", "/manifests/", "/chunks/"];
        for request in &requests {
            let is_immutable = immutable.iter().any(|part| request.path.contains(part));
            assert!(!is_immutable, "{requests:?}");
        }
    }
}

#[test]
fn a_virtual_chunk_with_the_entity_tag_of_another_version_is_stale() {
    for format in FORMATS {
        let (nginx, repository) = served(format);
        let tagged = |mount: &Mount| read(mount.join("checked/tagged/c/0"));
        let mount = nginx.remote("").mount("repository");
        assert_eq!(tagged(&mount).unwrap().len(), 200);
        mount.unmount();
        let target = repository.targets().join("data.bin");
        fs::write(target, [7; 5000]).unwrap();
        let mount = nginx.remote("").mount("repository");
        assert_eq!(errno(tagged(&mount)), Errno::STALE.raw_os_error());
        assert_eq!(read(mount.join("virtual/c/0")).unwrap().len(), 200);
        mount.unmount();
    }
}

#[test]
fn a_virtual_chunk_at_another_server_needs_an_option() {
    let repository = Repository::bare("v2");
    let (nginx, other) = (
        Nginx::start(repository.dir.path()),
        Nginx::start(repository.dir.path()),
    );
    let prefix = other.url("/targets/");
    repository.move_targets(&prefix);
    let mount = nginx.remote("").mount("repository");
    assert_eq!(
        errno(read(mount.join("virtual/c/0"))),
        Errno::ACCESS.raw_os_error()
    );
    mount.unmount();
    let mount = nginx
        .remote("")
        .arg("--allow-target")
        .arg(&prefix)
        .mount("repository");
    is_version(mount.path(), "second");
    mount.unmount();
}

/// Returns a repository whose virtual chunks are next to it in a bucket.
fn in_bucket(format: &str, bucket: &str) -> Repository {
    let repository = Repository::bare(format);
    // The name fills the prefix, because a key must not contain additional slashes.
    let name = "t".repeat(PREFIX_BYTES - format!("{bucket}//").len());
    repository.move_targets(&format!("{bucket}/{name}/"));
    fs::rename(repository.targets(), repository.dir.path().join(name)).unwrap();
    repository
}

/// Asserts that all versions of a repository can be mounted, and that an error for a missing name lists the
/// existing ones.
fn is_repository(remote: &Remote) {
    let mount = remote.mount("repository");
    is_version(mount.path(), "second");
    mount.unmount();
    let mount = remote.clone().arg("--ref").arg("v1").mount("repository");
    is_version(mount.path(), "first");
    mount.unmount();
    let source = remote.source("repository/");
    for (pipeline, version) in [
        (format!("{source}|icechunk:@tag.v1/|zarr3:"), "first"),
        (format!("{source}|icechunk:@v1"), "first"),
        (format!("icechunk+{source}"), "second"),
    ] {
        let mount = remote.attempt(&pipeline).unwrap();
        is_version(mount.path(), version);
        mount.unmount();
    }
    let both = remote.clone().arg("--ref").arg("main");
    let refused = both.attempt(&format!("{source}|icechunk:@v1")).unwrap_err();
    let names = "the source names the version v1";
    assert!(refused.stderr.contains(names), "{}", refused.stderr);
    let refused = remote.clone().arg("--ref").arg("other");
    let refused = refused.attempt(&refused.source("repository")).unwrap_err();
    let names = "branches: dev, main; tags: v1";
    assert!(refused.stderr.contains(names), "{}", refused.stderr);
}

#[test]
fn a_repository_at_google_has_every_array() {
    for format in FORMATS {
        let repository = in_bucket(format, "gs://data");
        let gcs = FakeGcs::start("data", repository.dir.path());
        is_repository(&gcs.remote("data"));
    }
}

#[test]
fn a_repository_at_azure_has_every_array() {
    let azurite = Azurite::start();
    for (format, container) in FORMATS.into_iter().zip(["first", "second"]) {
        let repository = in_bucket(format, &format!("az://{container}"));
        azurite.put(container, repository.dir.path(), false);
        is_repository(&azurite.remote(container, Some(azurite.keys())));
    }
}

#[test]
fn a_repository_in_a_bucket_has_every_array() {
    for format in FORMATS {
        let (moto, repository) = (Moto::start(), in_bucket(format, "s3://data"));
        moto.put("data", repository.dir.path());
        let keys = moto.enforce("data");
        is_repository(&moto.remote("data", &keys));
    }
}

#[test]
fn a_web_server_can_redirect_to_the_storage_of_a_repository() {
    for format in FORMATS {
        let (bucket, web, catalog) = (Server::s3("data"), Server::files(), Server::files());
        for (server, origin) in [(&bucket, "s3://data"), (&web, &web.url())] {
            let repository = in_bucket(format, origin);
            for entry in fs::read_dir(repository.dir.path()).unwrap() {
                let path = entry.unwrap().path();
                server.put_tree(path.file_name().unwrap().to_str().unwrap(), &path);
            }
        }
        let to_bucket = Fault::redirect("s3://data/repository?region=eu-west-1");
        catalog.add(on("in-bucket"), to_bucket);
        // As Icechunk does, redirects of the web server are followed first.
        catalog.add(on("moved"), Fault::redirect("/in-bucket"));
        let to_web = web
            .url_of("repository")
            .replace("http://", "http+icechunk://");
        catalog.add(on("on-web"), Fault::redirect(to_web));
        let endpoint = bucket.url();
        let options = ["--endpoint-url", &endpoint, "--header", "X-Key: secret"];
        for source in [
            catalog.url_of("in-bucket"),
            format!("icechunk+{}", catalog.url_of("in-bucket")),
            catalog.url_of("moved"),
            catalog.url_of("on-web"),
        ] {
            let mount = Mount::with(&source, &options);
            is_version(mount.path(), "second");
            mount.unmount();
            let mount = Mount::with(&source, &[&options[..], &["--ref", "v1"]].concat());
            is_version(mount.path(), "first");
            mount.unmount();
        }
        println!("{} requests to the catalog", catalog.requests().len());
        // Neither keys nor headers are sent to the storage.
        for request in [bucket.requests(), web.requests()].concat() {
            for name in ["authorization", "x-key"] {
                assert_eq!(request.header(name), None, "{request:?}");
            }
        }
    }
}

#[test]
fn a_redirect_to_no_repository_or_to_a_forbidden_place_is_refused() {
    let (bucket, catalog) = (Server::s3("data"), Server::files());
    bucket.put(
        "plain/zarr.json",
        r#"{"zarr_format":3,"node_type":"group"}"#,
    );
    let endpoint = bucket.url();
    for (to, words) in [
        ("s3://data/plain", "no Icechunk repository"),
        ("s3://data/nothing", "s3://data/nothing"),
        (
            "http+ic://169.254.169.254/repository",
            "where machines keep credentials",
        ),
        ("r2://data/repository?account_id=x", "--endpoint-url"),
        ("file:///etc", "302|kind file"),
    ] {
        let rule = catalog.add(on("repository"), Fault::redirect(to));
        let refused = Mount::attempt(
            catalog.url_of("repository"),
            &["--endpoint-url", &endpoint, "--retries", "0"],
        );
        let stderr = refused.unwrap_err().stderr;
        assert!(
            words.split('|').any(|word| stderr.contains(word)),
            "{to}: {stderr}"
        );
        drop(rule);
        catalog.heal();
    }
}
