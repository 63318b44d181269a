//! Branches, tags and snapshots of local repositories.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::thread;
use std::time::{Duration, SystemTime};

use rustix::io::Errno;
use serde_json::Value;

use crate::support::*;
use crate::{FORMATS, Repository, is_version, make};

/// Returns the output of `zarrfs info` for a repository.
fn info(repository: &Repository, args: &[&str]) -> Value {
    let mut command = zarrfs();
    command
        .arg("info")
        .arg(repository.path())
        .arg("--json")
        .args(args);
    serde_json::from_str(&run(&mut command)).unwrap()
}

#[test]
fn every_version_has_the_arrays_that_were_written() {
    for format in FORMATS {
        let repository = Repository::new(format);
        let first = info(&repository, &[])["tags"]["v1"]
            .as_str()
            .unwrap()
            .to_owned();
        let [allow, targets] = repository.allowed();
        for (reference, version) in [
            (None, "second"),
            (Some("main"), "second"),
            (Some("dev"), "first"),
            (Some("v1"), "first"),
            (Some(first.as_str()), "first"),
        ] {
            let mut args = vec![allow.as_str(), &targets];
            args.extend(reference.iter().flat_map(|name| ["--ref", name]));
            let mount = Mount::with(repository.path(), &args);
            is_version(mount.path(), version);
            mount.unmount();
        }
    }
}

#[test]
fn a_mount_equals_the_arrays_that_icechunk_reads() {
    let repository = Repository::new("v1");
    let mount = Mount::new(repository.path());
    let mut same = make();
    same.arg("same").arg(mount.path()).arg(repository.path());
    // icechunk prints warnings to standard output.
    assert_eq!(run(&mut same).lines().last(), Some("5"));
    mount.unmount();
}

#[test]
fn names_and_views_of_a_repository_are_those_of_its_nodes() {
    for format in FORMATS {
        let repository = Repository::new(format);
        let mount = Mount::new(repository.path());
        let names = |path: &str| {
            let names = fs::read_dir(mount.join(path)).unwrap();
            let mut names: Vec<_> = names.map(|name| name.unwrap().file_name()).collect();
            names.sort();
            names
        };
        let root = [
            "checked",
            "ints",
            "scalar",
            "sub",
            "sub-group",
            "virtual",
            "zarr.json",
        ];
        assert_eq!(names(""), root);
        assert_eq!(names("ints"), ["c", "zarr.json"]);
        assert_eq!(names("ints/c/2"), ["0", "1", "2"]);
        assert_eq!(names("scalar"), ["c", "zarr.json"]);
        // Four manifests, of 8 rows each.
        assert_eq!(names("sub/split/c").len(), 30);
        assert_eq!(names("sub/long/c"), ["0", "1", "2", "3"]);
        for absent in [
            "ints/c/3",
            "ints/c/0/3",
            "ints/0",
            "sub/late",
            "sub/long/c/4",
            "zarr.json/x",
        ] {
            let error = fs::metadata(mount.join(absent)).unwrap_err();
            let is_absent = [Errno::NOENT, Errno::NOTDIR].map(|errno| Some(errno.raw_os_error()));
            assert!(
                is_absent.contains(&error.raw_os_error()),
                "{absent}: {error}"
            );
        }
        let npy = read(mount.join("sub/split/.zarrfs/split.npy")).unwrap();
        let last = (299_i16).to_le_bytes();
        assert_eq!(npy[npy.len() - 2..], last);
        mount.unmount();
    }
}

#[test]
fn an_unknown_name_is_refused_with_the_list_of_names() {
    for format in FORMATS {
        let repository = Repository::new(format);
        for name in ["other", "gone", "00000000000000000000"] {
            let refused = Mount::attempt(repository.path(), &["--ref", name]).unwrap_err();
            for word in ["branches: dev, main", "tags: v1", name] {
                assert!(refused.stderr.contains(word), "{name}: {}", refused.stderr);
            }
        }
    }
    let plain = scratch();
    fs::write(plain.path().join(".zgroup"), r#"{"zarr_format": 2}"#).unwrap();
    let pipeline = format!("{}|icechunk:", plain.path().display());
    for refused in [
        Mount::attempt(plain.path(), &["--ref", "main"]),
        Mount::attempt(pipeline, &[]),
    ] {
        let stderr = refused.unwrap_err().stderr;
        assert!(stderr.contains("no Icechunk repository"), "{stderr}");
    }
}

#[test]
fn info_lists_branches_tags_and_snapshots() {
    for format in FORMATS {
        let repository = Repository::new(format);
        let info = info(&repository, &["--ref", "v1"]);
        assert_eq!(info["ref"], "v1");
        assert_eq!(info["snapshot"], info["tags"]["v1"]);
        assert_eq!(info["branches"]["dev"], info["tags"]["v1"]);
        assert!(info["tags"].get("gone").is_none(), "{info}");
        let snapshots = info["snapshots"].as_object().unwrap();
        let messages: Vec<&str> = snapshots
            .values()
            .map(|snapshot| snapshot["message"].as_str().unwrap())
            .collect();
        assert_eq!(messages, ["second", "first", "Repository initialized"]);
        let latest = snapshots.values().next().unwrap();
        let date = latest["date"].as_str().unwrap();
        assert!(date.starts_with("20") && date.ends_with('Z'), "{date}");
        let text = run(zarrfs().arg("info").arg(repository.path()));
        assert!(text.contains("second") && text.contains("dev: "), "{text}");
    }
}

#[test]
fn a_virtual_chunk_outside_of_the_repository_needs_an_option() {
    for format in FORMATS {
        let repository = Repository::new(format);
        let mount = Mount::new(repository.path());
        assert_eq!(
            errno(read(mount.join("virtual/c/0"))),
            Errno::ACCESS.raw_os_error()
        );
        assert_eq!(fs::metadata(mount.join("virtual/c/0")).unwrap().len(), 200);
        assert!(mount.log().contains("--allow-target"), "{}", mount.log());
        // Other chunks can still be read.
        assert_eq!(read(mount.join("sub/long/c/0")).unwrap().len(), 8000);
        mount.unmount();
    }
}

#[test]
fn a_virtual_chunk_of_another_version_of_its_file_is_stale() {
    for format in FORMATS {
        let repository = Repository::new(format);
        let [allow, targets] = repository.allowed();
        let dated = |mount: &Mount| read(mount.join("checked/dated/c/0"));
        let mount = Mount::with(repository.path(), &[&allow, &targets]);
        assert_eq!(dated(&mount).unwrap().len(), 200);
        mount.unmount();
        let file = File::options()
            .write(true)
            .open(repository.targets().join("data.bin"))
            .unwrap();
        file.set_modified(SystemTime::now()).unwrap();
        let mount = Mount::with(repository.path(), &[&allow, &targets]);
        assert_eq!(errno(dated(&mount)), Errno::STALE.raw_os_error());
        // This version is the default.
        assert_eq!(read(mount.join("virtual/c/0")).unwrap().len(), 200);
        mount.unmount();
    }
}

/// Moves `main` of a repository from the first to the second version.
struct Moving {
    repository: Repository,
    later: Option<Vec<u8>>,
}

impl Moving {
    fn new(format: &str) -> Self {
        let repository = Repository::new(format);
        if format == "v1" {
            let reference = |name: &str| repository.path().join(format!("refs/{name}/ref.json"));
            let later = fs::read(reference("branch.main")).unwrap();
            fs::copy(reference("tag.v1"), reference("branch.main")).unwrap();
            let later = Some(later);
            return Self { repository, later };
        }
        // icechunk keeps the file from before the second commit.
        let repo = repository.path().join("repo");
        let later = fs::read(&repo).unwrap();
        let old_files = fs::read_dir(repository.path().join("overwritten")).unwrap();
        for old_file in old_files {
            fs::copy(old_file.unwrap().path(), &repo).unwrap();
            let info = info(&repository, &[]);
            if info["branches"]["main"] == info["tags"]["v1"] && info["tags"]["v1"].is_string() {
                let later = Some(later);
                return Self { repository, later };
            }
        }
        panic!("no earlier version of {repo:?}");
    }

    fn go_on(&mut self) {
        let name = match self.repository.path().join("repo").exists() {
            true => "repo",
            false => "refs/branch.main/ref.json",
        };
        let (path, new) = (
            self.repository.path().join(name),
            self.repository.path().join("new"),
        );
        fs::write(&new, self.later.take().unwrap()).unwrap();
        fs::rename(new, path).unwrap();
    }
}

#[test]
fn a_branch_that_moves_is_seen_and_open_files_stay_on_their_snapshot() {
    for format in FORMATS {
        let mut moving = Moving::new(format);
        let mount = Mount::with(moving.repository.path(), &["--ttl", "100ms"]);
        let tag = Mount::with(moving.repository.path(), &["--ref", "v1"]);
        let chunk = mount.join("ints/c/0/0");
        let old = read(&chunk).unwrap();
        let open = File::open(&chunk).unwrap();
        let npy = |mount: &Mount| read(mount.join("ints/.zarrfs/ints.npy")).unwrap();
        let old_npy = npy(&mount);
        let view = File::open(mount.join("ints/.zarrfs/ints.bin")).unwrap();
        moving.go_on();
        let is_new = || read(&chunk).is_ok_and(|new| new != old);
        assert!(wait_until(Duration::from_secs(10), is_new), "{format}");
        let mut bytes = vec![0; old.len()];
        open.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes, old, "{format}");
        // The commit changes a chunk and not the document of the array. Decoded chunks are trusted for `--ttl`.
        thread::sleep(Duration::from_millis(200));
        let mixed = view.read_exact_at(&mut [0; 4], 0);
        assert_eq!(errno(mixed), Errno::STALE.raw_os_error(), "{format}");
        let is_new = || npy(&mount) != old_npy;
        assert!(wait_until(Duration::from_secs(10), is_new), "{format}");
        assert_eq!(npy(&tag), old_npy);
        assert_eq!(read(tag.join("ints/c/0/0")).unwrap(), old);
        drop((open, view));
        tag.unmount();
        mount.unmount();
    }
}

#[test]
fn a_commit_of_icechunk_is_seen() {
    let repository = Repository::new("v1");
    let mount = Mount::with(repository.path(), &["--ttl", "100ms"]);
    assert!(!mount.join("sub/late").exists());
    run(make().arg("commit").arg(repository.path()).arg("third"));
    let is_there = || mount.join("sub/late/zarr.json").exists();
    assert!(wait_until(Duration::from_secs(10), is_there));
    let mut same = make();
    same.arg("same").arg(mount.path()).arg(repository.path());
    assert_eq!(run(&mut same).lines().last(), Some("6"));
    mount.unmount();
}

#[test]
fn a_branch_that_is_deleted_is_an_error_and_not_an_empty_directory() {
    let repository = Repository::new("v1");
    let mount = Mount::with(repository.path(), &["--ref", "dev", "--ttl", "100ms"]);
    assert!(mount.join("ints").exists());
    run(Command::new("rm")
        .arg("-r")
        .arg(repository.path().join("refs/branch.dev")));
    let is_stale = || {
        let error = fs::metadata(mount.join("sub/zarr.json")).err();
        error.and_then(|error| error.raw_os_error()) == Some(Errno::STALE.raw_os_error())
    };
    assert!(wait_until(Duration::from_secs(10), is_stale));
    mount.unmount();
}
