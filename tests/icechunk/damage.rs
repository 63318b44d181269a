//! Damaged repositories: errors for exactly those keys that need the damaged file.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::support::*;
use crate::{FORMATS, Repository};

/// Keys of arrays with separate manifests.
const CHUNKS: [&str; 5] = [
    "ints/c/0/0",
    "scalar/c",
    "sub/long/c/0",
    "sub-group/flags/c/0",
    "sub/split/c/29/1",
];

fn files(repository: &Repository, directory: &str) -> Vec<PathBuf> {
    let files = fs::read_dir(repository.path().join(directory)).unwrap();
    files.map(|file| file.unwrap().path()).collect()
}

/// Returns the results of reading the chunks: 0, or the errno.
fn outcomes(repository: &Repository) -> [i32; 5] {
    let mount = Mount::new(repository.path());
    let outcomes = CHUNKS.map(|chunk| {
        let listed = fs::read_dir(mount.join(chunk).parent().unwrap());
        match (read(mount.join(chunk)), listed) {
            (Ok(_), Ok(_)) => 0,
            (Err(error), _) | (_, Err(error)) => error.raw_os_error().unwrap(),
        }
    });
    mount.unmount();
    outcomes
}

/// A change of the content of a file.
type Change = dyn Fn(&mut Vec<u8>);

fn damaged(path: &Path, change: &Change) {
    let mut file = fs::read(path).unwrap();
    change(&mut file);
    fs::write(path, file).unwrap();
}

#[test]
fn a_damaged_manifest_is_an_error_of_its_chunks_only() {
    let changes: [(&str, &Change); 5] = [
        ("cut", &|file| file.truncate(file.len() / 2)),
        ("empty", &Vec::clear),
        ("of another type", &|file| file[37] = 1),
        ("of a later version", &|file| file[36] = 9),
        // An endless sequence of zeros after the header.
        ("a bomb", &|file| {
            file.truncate(38);
            file.push(1);
            file.extend([0x28, 0xb5, 0x2f, 0xfd, 0, 0x58]);
            // RLE blocks of 2 MiB.
            file.extend([0xfa, 0xff, 0xff, 0].repeat(1 << 16));
        }),
    ];
    for format in FORMATS {
        let repository = Repository::new(format);
        assert_eq!(outcomes(&repository), [0; 5]);
        for (what, change) in changes {
            let mut concerned = [0; 5];
            for manifest in files(&repository, "manifests") {
                let good = fs::read(&manifest).unwrap();
                damaged(&manifest, change);
                let found = outcomes(&repository);
                for (count, errno) in concerned.iter_mut().zip(found) {
                    let is_error = [Errno::IO, Errno::OPNOTSUPP, Errno::NOMEM];
                    let is_error = is_error.map(Errno::raw_os_error).contains(&errno);
                    assert!(errno == 0 || is_error, "{format} {what}: {errno}");
                    *count += i32::from(errno != 0);
                }
                fs::write(&manifest, good).unwrap();
            }
            // Each chunk needs one manifest, and fails only if that one is damaged.
            assert_eq!(concerned, [1; 5], "{format} {what}");
        }
    }
}

#[test]
fn a_missing_or_short_file_of_chunks_is_an_error_and_not_an_absence() {
    for format in FORMATS {
        let repository = Repository::new(format);
        let [first, second, ..] = &files(&repository, "chunks")[..] else {
            panic!("too few chunks");
        };
        fs::remove_file(first).unwrap();
        damaged(second, &|file| file.truncate(7999));
        let mount = Mount::new(repository.path());
        let reads = (0..4).map(|number| read(mount.join(format!("sub/long/c/{number}"))));
        let (good, bad): (Vec<_>, Vec<_>) = reads.partition(Result::is_ok);
        assert_eq!(good.len(), 2);
        for bad in bad {
            assert_eq!(errno(bad), Errno::IO.raw_os_error());
        }
        for number in 0..4 {
            let chunk = mount.join(format!("sub/long/c/{number}"));
            assert_eq!(fs::metadata(chunk).unwrap().len(), 8000);
        }
        assert_eq!(
            errno(read(mount.join("sub/long/.zarrfs/long.npy"))),
            Errno::IO.raw_os_error()
        );
        mount.unmount();
    }
}

#[test]
fn a_damaged_snapshot_or_list_of_branches_is_refused() {
    for format in FORMATS {
        let repository = Repository::new(format);
        for snapshot in files(&repository, "snapshots") {
            damaged(&snapshot, &|file| file.truncate(file.len() - 9));
        }
        let refused = Mount::attempt(repository.path(), &[]).unwrap_err();
        assert!(refused.stderr.contains("snapshots/"), "{}", refused.stderr);
    }
    let repository = Repository::new("v2");
    let repo = repository.path().join("repo");
    damaged(&repo, &|file| file.truncate(file.len() / 2));
    let refused = Mount::attempt(repository.path(), &[]).unwrap_err();
    assert!(refused.stderr.contains("repo"), "{}", refused.stderr);
    let repository = Repository::new("v1");
    let main = repository.path().join("refs/branch.main/ref.json");
    fs::write(main, b"{\"snapshot\":").unwrap();
    let refused = Mount::attempt(repository.path(), &[]).unwrap_err();
    assert!(refused.stderr.contains("ref.json"), "{}", refused.stderr);
}
