//! The messages of common errors: each names the event, the object, and the remedy.
//!
//! Rows that need another environment are in other tests: a daemon without /dev/fuse, fusermount3
//! or `user_allow_other` in `tests/daemon/users.rs`, regions and expired credentials in
//! `tests/faults/access.rs`, signals in `tests/daemon/ends.rs`.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::faulty::{Fault, Server, on};
use crate::place::{CommandOutput, Place, output_of};
use crate::stores::*;
use crate::support::*;

/// An error case: the command line, the exit code, and parts of the message. `|` separates alternatives.
struct ErrorCase {
    line: &'static str,
    code: i32,
    words: &'static [&'static str],
}

const fn error_case(line: &'static str, code: i32, words: &'static [&'static str]) -> ErrorCase {
    ErrorCase { line, code, words }
}

/// Errors without a network. The numbers are only for reference.
const ERROR_CASES: [ErrorCase; 65] = [
    // Commands.
    error_case(
        "treee ocean.zarr",
        2,
        &["`treee` is neither a command nor a file", "`tree`"],
    ),
    error_case(
        "umnt mnt",
        2,
        &["`umnt` is neither", "did you mean `umount`?"],
    ),
    error_case(
        "mout ocean.zarr mnt",
        2,
        &["`mout` is neither", "did you mean `mount`?"],
    ),
    error_case("list", 2, &["`list` is neither", "did you mean `mounts`?"]),
    error_case(
        "ls ocean.zarr",
        2,
        &["`ls` is neither", "did you mean `tree`?"],
    ),
    error_case(
        "open ocean.zarr",
        2,
        &["`open` is neither", "did you mean `mount`?"],
    ),
    error_case(
        "version",
        2,
        &["`version` is neither", "did you mean `--version`?"],
    ),
    error_case(
        "xyzzy",
        2,
        &["`xyzzy` is neither", "`zarrfs --help` lists the commands"],
    ),
    error_case(
        "info ocean.zarr a b",
        2,
        &["unexpected argument 'b'", "--help"],
    ),
    error_case(
        "mnt ocean.zarr full",
        2,
        &["`mnt` is no command", "did you mean `mount`?"],
    ),
    error_case(
        "ocean.zarr my ocean",
        2,
        &["unexpected argument `ocean`", "a SOURCE and a MOUNTPOINT"],
    ),
    error_case(
        "--json info ocean.zarr",
        2,
        &["`info` is a command and comes first", "zarrfs info"],
    ),
    error_case(
        "run ocean.zarr ncdump -h",
        2,
        &[
            "`--` stands before the command",
            "zarrfs run SOURCE -- ncdump",
        ],
    ),
    error_case(
        "help vews",
        1,
        &["no topic `vews`", "did you mean `views`?"],
    ),
    // Mountpoints.
    error_case(
        "ocean.zarr ocean.zarr/new --mkdir",
        32,
        &["ocean.zarr/new", "lies inside the source", "outside of it"],
    ),
    error_case(
        "nosuch.zarr new/mnt --mkdir",
        32,
        &["nosuch.zarr", "no such file", "check the path"],
    ),
    error_case(
        "ocean.zarr mnt-nope",
        32,
        &["mountpoint mnt-nope", "no such file", "--mkdir creates it"],
    ),
    error_case(
        "ocean.zarr emptyfile",
        32,
        &["mountpoint emptyfile", "not a directory", "--mkdir"],
    ),
    error_case(
        "mnt ocean.zarr",
        32,
        &[
            "mnt: no Zarr metadata",
            "look swapped: zarrfs ocean.zarr mnt",
        ],
    ),
    error_case(
        "ocean.zarr ocean.zarr",
        32,
        &["mountpoint ocean.zarr", "MOUNTPOINT second", "swapped"],
    ),
    error_case(
        "empty empty",
        32,
        &[
            "mountpoint",
            "empty",
            "the source lies inside it",
            "beside it",
        ],
    ),
    error_case(
        "ocean.zarr full",
        32,
        &["mountpoint full", "not empty", "--nonempty"],
    ),
    // Sources.
    error_case(
        "plain mnt",
        32,
        &["plain: no Zarr metadata", "it contains a.txt", "--force"],
    ),
    error_case(
        "empty mnt",
        32,
        &["empty: no Zarr metadata", "it is empty", "--force"],
    ),
    error_case(
        "files mnt",
        32,
        &["files", "x.nc is a NetCDF file", "without a mount"],
    ),
    error_case(
        "zips mnt",
        32,
        &["zips", "x.zip is a zip archive", "can be a source"],
    ),
    error_case(
        "emptyfile mnt",
        32,
        &["emptyfile", "an empty file", "zarrfs mounts"],
    ),
    error_case("x.tar mnt", 32, &["x.tar", "a tar archive", "ratarmount"]),
    error_case(
        "x.tar.gz mnt",
        32,
        &["x.tar.gz", "tar.gz", "unpack it first"],
    ),
    error_case("x.h5 mnt", 32, &["x.h5", "HDF5", "open it without a mount"]),
    error_case(
        "x.html mnt",
        32,
        &["x.html", "an HTML page", "zarrfs mounts"],
    ),
    error_case(
        "x.json mnt",
        32,
        &[
            "x.json",
            "a JSON document without references",
            "zarrfs mounts",
        ],
    ),
    error_case(
        "x.nc mnt",
        32,
        &["x.nc", "NetCDF", "open it without a mount"],
    ),
    error_case(
        "truncated.zip mnt",
        32,
        &[
            "truncated.zip",
            "truncated, 5000 bytes",
            "download it again",
        ],
    ),
    error_case(
        "ocean.zarr/zarr.json mnt",
        32,
        &["ocean.zarr/zarr.json", "the directory that holds it"],
    ),
    error_case(
        "nosuch.zarr mnt",
        32,
        &["source nosuch.zarr", "no such file", "check the path"],
    ),
    error_case(
        "s3:/bucket/x mnt",
        32,
        &["source s3:/bucket/x", "did you mean s3://bucket/x?"],
    ),
    error_case(
        "s3:bucket mnt",
        32,
        &["source s3:bucket", "did you mean s3://bucket?"],
    ),
    error_case(
        "htps://host/x mnt",
        32,
        &["`htps` are not supported", "did you mean `https`?"],
    ),
    error_case(
        "ssh://host/x mnt",
        32,
        &["`ssh` are not supported", "sshfs"],
    ),
    error_case(
        "s3://b/x mnt --endpoint-url localhost:9000",
        2,
        &["--endpoint-url", "https://host:9000"],
    ),
    error_case(
        "az://container/x mnt",
        32,
        &["az://container/x", "AZURE_STORAGE_ACCOUNT_NAME"],
    ),
    // Options.
    error_case(
        "ocean.zarr mnt -o allow_other,foo",
        2,
        &["unknown mount option `foo`", "--help"],
    ),
    error_case(
        "ocean.zarr mnt -o allow_othr",
        2,
        &["`allow_othr`", "did you mean `allow_other`?"],
    ),
    error_case(
        "ocean.zarr mnt --alow-other",
        2,
        &["--alow-other", "--allow-other"],
    ),
    error_case("ocean.zarr mnt -v", 2, &["`-v`", "--log-level debug"]),
    error_case("ocean.zarr mnt -r", 2, &["`-r`", "read-only"]),
    error_case(
        "ocean.zarr mnt -x",
        2,
        &["`-x`", "`zarrfs mount --help` lists"],
    ),
    error_case(
        "ocean.zarr mnt --views on",
        2,
        &["--views", "'on'", "off, hidden, list"],
    ),
    error_case(
        "ocean.zarr mnt --ttl 5x",
        2,
        &["--ttl", "`5x` is not a time", "500ms"],
    ),
    error_case(
        "ocean.zarr mnt --cache-size lots",
        2,
        &["--cache-size", "`lots` is not a size", "64KiB"],
    ),
    error_case(
        "ocean.zarr mnt --formats xyz",
        2,
        &["--formats", "unknown format `xyz`", "npy"],
    ),
    error_case(
        "ocean.zarr mnt --uid root",
        2,
        &["--uid", "`root` is not the number", "id -u"],
    ),
    // Keys.
    error_case(
        "ocean.zarr mnt --path ssh",
        32,
        &["ocean.zarr: ssh: no such key", "there are sst, lat"],
    ),
    error_case(
        "info ocean.zarr ssh",
        1,
        &["ocean.zarr: ssh: no such key", "there are sst, lat"],
    ),
    error_case(
        "info ocean.zarr:sst",
        1,
        &["source ocean.zarr:sst", "ocean.zarr exists: --path sst"],
    ),
    error_case(
        "help nc",
        1,
        &["no topic `nc`", "`zarrfs help netcdf` is about it"],
    ),
    // Exports.
    error_case(
        "export ocean.zarr sst sst.tif x",
        2,
        &["a key stands behind the source", "SOURCE:KEY FILE"],
    ),
    error_case(
        "export ocean.zarr:sst sst.cdf.nc",
        1,
        &["sst.cdf.nc", "`cdf` is a view of a group", "npy"],
    ),
    error_case(
        "export ocean.zarr sst.npy",
        1,
        &["sst.npy", "`npy` is a view of an array", "SOURCE:KEY"],
    ),
    error_case(
        "export ocean.zarr nowhere/x.nc",
        1,
        &["nowhere/x.nc", "nowhere is no directory"],
    ),
    // Mounts.
    error_case(
        "umount mnt",
        1,
        &["mnt: nothing is mounted there", "`zarrfs mounts`"],
    ),
    error_case(
        "umount /proc",
        1,
        &["/proc", "of type proc, not zarrfs", "`zarrfs mounts`"],
    ),
    error_case(
        "stats mnt",
        1,
        &["mnt: nothing is mounted there", "`zarrfs mounts`"],
    ),
    error_case(
        "stats /proc",
        1,
        &["/proc", "of type proc, not zarrfs", "`zarrfs mounts`"],
    ),
];

/// Creates the files that the command lines name.
fn prepare(dir: &Path) {
    for name in ["mnt", "empty"] {
        fs::create_dir(dir.join(name)).unwrap();
    }
    write(dir.join("emptyfile"), "");
    write(dir.join("full/file"), "x");
    write(dir.join("plain/a.txt"), "x");
    group(&dir.join("nested/data/ocean.zarr"));
    group(&dir.join("ocean.zarr"));
    for name in ["lat", "sst"] {
        let (shape, chunks) = ([2].into(), regular(&[2].into()));
        array(
            &dir.join("ocean.zarr").join(name),
            &shape,
            &chunks,
            &["bytes"].into(),
        );
    }
    let mut tar = vec![0; 1024];
    tar[257..262].copy_from_slice(b"ustar");
    write(dir.join("x.tar"), tar);
    write(dir.join("x.tar.gz"), b"\x1f\x8b\x08\0\0\0\0\0");
    write(dir.join("x.h5"), b"\x89HDF\r\n\x1a\n00000000");
    write(dir.join("x.html"), "<!DOCTYPE html>");
    write(dir.join("x.json"), "{}");
    write(dir.join("x.nc"), b"CDF\x01000000000000");
    let zip = fs::read(fixture("zip/v2-flat-zip-r.zip")).unwrap();
    write(dir.join("files/x.nc"), b"CDF\x01000000000000");
    write(dir.join("zips/x.zip"), &zip);
    write(dir.join("truncated.zip"), &zip[..5000]);
}

/// Runs a command line in a directory, without the credentials of the user.
fn run_line(dir: &Path, line: &str) -> CommandOutput {
    let mut command = zarrfs();
    command.args(line.split(' ')).current_dir(dir);
    for (name, _) in std::env::vars() {
        if name.starts_with("AWS_") || name.starts_with("AZURE_") {
            command.env_remove(name);
        }
    }
    command
        .env("HOME", dir)
        .env("AWS_EC2_METADATA_DISABLED", "true");
    output_of(&mut command)
}

#[test]
fn an_error_names_its_subject_and_the_remedy() {
    let dir = scratch();
    prepare(dir.path());
    for ErrorCase { line, code, words } in ERROR_CASES {
        let output = run_line(dir.path(), line);
        for word in words {
            let is_there = output.err.to_lowercase().contains(&word.to_lowercase());
            assert!(is_there, "{line}: {word:?} is not in {output:?}");
        }
        assert_eq!(output.code, Some(code), "{line}: {output:?}");
        assert!(!is_mounted(&dir.path().join("mnt")), "{line}");
    }
    for created in ["new", "ocean.zarr/new"] {
        assert!(!dir.path().join(created).exists(), "{created}");
    }
}

#[test]
fn an_error_of_a_server_names_its_subject_and_the_remedy() {
    let dir = scratch();
    prepare(dir.path());
    let server = Server::s3("bucket");
    let endpoint = server.url();
    let s3 = |bucket: &str, more: &str| {
        format!("s3://{bucket}/ocean.zarr mnt --endpoint-url {endpoint} --retries 0{more}")
    };
    write(
        dir.path().join(".aws/config"),
        "[profile empty]\nregion = eu-west-3\n",
    );
    let cases = [
        (
            s3("nobucket", " --anonymous"),
            &[
                "s3://nobucket/ocean.zarr",
                "NoSuchBucket",
                "no such bucket; check its name",
            ][..],
        ),
        (
            s3("bucket", ""),
            &[
                "s3://bucket/ocean.zarr",
                "no credentials were found",
                "--anonymous sends none",
            ],
        ),
        (
            s3("bucket", " --profile nosuch"),
            &[
                "the profile nosuch is neither in",
                ".aws/config",
                "--profile",
            ],
        ),
        (
            s3("bucket", " --profile empty"),
            &["the profile empty has no credentials", "--env-file"],
        ),
        (
            s3("bucket", " --anonymous"),
            &[
                "s3://bucket/ocean.zarr",
                "neither a Zarr hierarchy nor a zip archive",
            ],
        ),
        (
            "http://nosuch.invalid/x.zarr mnt --retries 0".to_owned(),
            &["nosuch.invalid"],
        ),
        (
            "http://127.0.0.1:1/x.zarr mnt --retries 0".to_owned(),
            &[
                "127.0.0.1 refuses connections on port 1",
                "check host and port",
            ],
        ),
    ];
    for (line, words) in cases {
        run_line(dir.path(), &line).failed(32, words);
    }
}

#[test]
fn an_explicit_profile_has_precedence_over_the_environment() {
    let dir = scratch();
    prepare(dir.path());
    let server = Server::s3("bucket");
    let endpoint = server.url();
    let mut command = zarrfs();
    command.args(["s3://bucket/ocean.zarr", "mnt", "--retries", "0"]);
    command.args(["--profile", "nosuch", "--endpoint-url", &endpoint]);
    command.current_dir(dir.path()).env("HOME", dir.path());
    command.env("AWS_ACCESS_KEY_ID", "a");
    command.env("AWS_SECRET_ACCESS_KEY", "b");
    let refused = output_of(&mut command);
    refused.failed(32, &["the profile nosuch is neither in", "credentials"]);
}

#[test]
fn a_url_of_a_document_is_refused_with_the_url_of_its_hierarchy() {
    let dir = scratch();
    prepare(dir.path());
    let server = Server::over(dir.path());
    let line = format!("{}/ocean.zarr/zarr.json mnt", server.url());
    run_line(dir.path(), &line).failed(
        32,
        &["a document of Zarr metadata", "the directory that holds it"],
    );
}

/// Returns objects at a URL that are not a source: name, first bytes, and parts of the message.
fn other_objects() -> Vec<(&'static str, Vec<u8>, &'static [&'static str])> {
    let mut tar = vec![0; 1024];
    tar[257..262].copy_from_slice(b"ustar");
    let zip = fs::read(fixture("zip/v2-flat-zip-r.zip")).unwrap();
    vec![
        ("x.nc", b"CDF\x01".into(), &["a NetCDF file", "kerchunk"]),
        ("x.h5", b"\x89HDF\r\n\x1a\n".into(), &["HDF5", "kerchunk"]),
        (
            "x.tif",
            b"II*\0".into(),
            &["a TIFF file", "open it without"],
        ),
        ("x.tar", tar, &["a tar archive", "ratarmount"]),
        (
            "lfs.zip",
            b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n".into(),
            &["a pointer of git lfs", "git lfs pull"],
        ),
        (
            "annex.zip",
            b"/annex/objects/SHA256E-s9--0.zip\n".into(),
            &["git annex get"],
        ),
        (
            "x.xml",
            b"<?xml version=\"1.0\"?><Error/>".into(),
            &["an XML document", "an error of an object store"],
        ),
        (
            "x.tar.gz",
            b"\x1f\x8b\x08\0\0\0\0\0".into(),
            &["tar.gz", "unpack it first"],
        ),
        (
            "x.html",
            b"<!DOCTYPE html>".into(),
            &["an HTML page", "the URL of a Zarr hierarchy"],
        ),
        (
            "x.json",
            b"{\"a\": 1}".into(),
            &["a JSON document without references"],
        ),
        (
            "x.bin",
            b"\xff\xff".into(),
            &["in an unknown format", "the URL of a Zarr hierarchy"],
        ),
        (
            "empty",
            Vec::new(),
            &["an empty file", "the URL of a Zarr hierarchy"],
        ),
        (
            "page.zip",
            b"<html>".into(),
            &["an HTML page", "the URL of a Zarr hierarchy"],
        ),
        (
            "x.zip",
            zip[..5000].into(),
            &["the zip archive is truncated", "store it again"],
        ),
    ]
}

#[test]
fn the_first_bytes_identify_an_object_that_is_no_source() {
    let dir = scratch();
    prepare(dir.path());
    for (name, head, words) in other_objects() {
        let long = match head.is_empty() {
            true => head.clone(),
            false => [head.clone(), vec![0; 300_000]].concat(),
        };
        for bytes in [head, long] {
            let size = format!("{name}, {} bytes", bytes.len());
            let (web, bucket) = (Server::files(), Server::s3("bucket"));
            web.put(name, bytes.clone());
            bucket.put(name, bytes.clone());
            let endpoint = bucket.url();
            let s3 = format!("s3://bucket/{name}");
            let on_s3 = format!("{s3} mnt --endpoint-url {endpoint} --anonymous --retries 0");
            let url = web.url_of(name);
            // The search for a hierarchy takes eight requests to a web server and two to a bucket, the
            // end and the header of the object two, and its contents and the header again two more.
            for (line, label, server, limit) in [
                (format!("{url} mnt --retries 0"), &url, &web, 12),
                (on_s3, &s3, &bucket, 6),
            ] {
                let refused = run_line(dir.path(), &line);
                refused.failed(32, words);
                refused.failed(32, &[&format!("zarrfs: {label}: ")]);
                let requests = server.requests().len();
                assert!(requests <= limit, "{size}: {:#?}", server.requests());
            }
        }
    }
    let web = Server::files();
    let line = format!("{} mnt --retries 0", web.url_of("nosuch/ocean.zarr"));
    let words = ["the server has nothing at this URL", "check the URL"];
    run_line(dir.path(), &line).failed(32, &words);
}

#[test]
fn a_mount_that_fails_leaves_no_directory_behind() {
    let dir = scratch();
    let runtime = dir.path().join("run");
    fs::create_dir(&runtime).unwrap();
    let mut command = zarrfs();
    command.arg("nosuch.zarr").current_dir(dir.path());
    let failed = output_of(command.env("XDG_RUNTIME_DIR", &runtime));
    failed.failed(32, &["source nosuch.zarr"]);
    assert!(!runtime.join("zarrfs/nosuch.zarr").exists());
    let failed = output_of(command.env_remove("XDG_RUNTIME_DIR"));
    failed.failed(32, &["source nosuch.zarr"]);
}

#[test]
fn a_refusal_of_a_bucket_names_the_remedy() {
    let dir = scratch();
    prepare(dir.path());
    for (status, code, words) in [
        (
            403,
            "AccessDenied",
            &["s3:ListBucket", "--missing-status 403"][..],
        ),
        (
            400,
            "ExpiredToken",
            &["the credentials have expired, renew them"],
        ),
        (
            403,
            "InvalidAccessKeyId",
            &["access denied", "--env-file or --profile"],
        ),
    ] {
        let server = Server::s3("bucket");
        server.add(on("*"), Fault::s3(status, code));
        let endpoint = server.url();
        let line =
            format!("s3://bucket/ocean.zarr mnt --endpoint-url {endpoint} --retries 0 --anonymous");
        let output = run_line(dir.path(), &line);
        output.failed(32, &["s3://bucket/ocean.zarr", code]);
        output.failed(32, words);
    }
}

#[test]
fn an_error_of_a_mount_names_it_and_the_remedy() {
    let place = Place::new();
    let store = place.store();
    place.mount(&store, &[]);
    let shown = place.path.to_str().unwrap();
    let again = place.attempt(&store, &[]);
    again.failed(32, &["is already mounted there", "zarrfs umount"]);
    let umount = |path: &Path| output_of(zarrfs().arg("umount").arg(path));
    let inside = format!("zarrfs umount {shown}");
    umount(&place.path.join("a")).failed(1, &["a part of the mount", &inside]);
    let user = Command::new("sleep")
        .arg("600")
        .current_dir(&place.path)
        .spawn();
    let mut user = user.unwrap();
    umount(&place.path).failed(1, &["busy", &format!("sleep ({})", user.id()), "--lazy"]);
    user.kill().unwrap();
    user.wait().unwrap();
    // Maps the file, as numpy with mmap_mode does.
    let script = "import mmap, sys, time; file = open(sys.argv[1], 'rb'); \
                  mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ); file.close(); \
                  print(flush=True); time.sleep(600)";
    let mut user = Command::new("python3")
        .args(["-c", script])
        .arg(place.path.join("zarr.json"))
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = [0];
    std::io::Read::read_exact(user.stdout.as_mut().unwrap(), &mut ready).unwrap();
    umount(&place.path).failed(1, &["busy", &format!("({})", user.id())]);
    user.kill().unwrap();
    user.wait().unwrap();
    umount(&place.path).ok();
}

#[test]
fn a_mount_of_another_user_names_that_user() {
    if !is_root() {
        return skipped("needs root");
    }
    let place = Place::new();
    let binary = place.open_to_nobody();
    let store = place.store();
    place.mount(&store, &["--allow-other"]);
    let mut umount = Command::new(&binary);
    let refused = output_of(&mut as_nobody(umount.arg("umount").arg(&place.path)));
    refused.failed(1, &["mounted by the user 0", "only that user and root"]);
    place.unmount(&[]).ok();
    // Without --allow-other, the mount does not reveal its process ID.
    place.mount(&store, &[]);
    let mut mounts = Command::new(binary);
    let listed = output_of(&mut as_nobody(mounts.arg("mounts")));
    let shown = format!("on {} (of the user 0)", place.path.display());
    assert!(listed.ok().out.contains(&shown), "{listed:?}");
    place.unmount(&[]).ok();
}
