//! G8, G9: programs that walk whole trees, and stable inode numbers.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use crate::clients::*;
use crate::sources::*;
use crate::support::*;

#[test]
fn g08_tree_walking_programs_complete() {
    let dir = scratch();
    let sources = both_kinds(dir.path(), &tree());
    let count = tree().len();
    for source in &sources {
        let mount = Mount::new(source);
        let work = scratch();
        let (mnt, work) = (mount.path().display(), work.path().display());
        let original = sources[0].display();
        assert_eq!(
            sh(&format!("find {mnt} -type f | wc -l")).trim(),
            count.to_string(),
            "find"
        );
        assert_eq!(
            sh(&format!("find {mnt} -type f -size +0 -printf x | wc -c")).trim(),
            (count - 1).to_string()
        );
        let size: u64 = tree().iter().map(|(_, content)| content.len() as u64).sum();
        let listed = sh(&format!(
            "find {mnt} -type f -printf '%s\\n' | awk '{{ s += $1 }} END {{ print s }}'"
        ));
        assert_eq!(listed.trim(), size.to_string(), "sizes");
        sh(&format!(
            "du -s {mnt}; du -s --apparent-size {mnt}; df {mnt}; df -i {mnt}; stat -f {mnt}"
        ));
        sh(&format!("diff -r {original} {mnt}"));
        sh(&format!(
            "rsync -rc {mnt}/ {work}/rsync && diff -r {original} {work}/rsync"
        ));
        sh(&format!(
            "cp -r {mnt} {work}/cp && diff -r {original} {work}/cp"
        ));
        sh(&format!(
            "mkdir {work}/tar && tar -C {mnt} -cf - . | tar -C {work}/tar -xf -"
        ));
        sh(&format!("diff -r {original} {work}/tar"));
        let git = format!("git --git-dir={work}/git --work-tree={mnt}");
        let untracked = sh(&format!(
            "git init -q --bare {work}/git && {git} status --porcelain -uall | wc -l"
        ));
        assert_eq!(untracked.trim(), count.to_string(), "git status");
        assert_eq!(
            sh(&format!(
                "{git} add -A && {git} status --porcelain | grep -c ^A"
            ))
            .trim(),
            count.to_string()
        );
        let system = rustix::fs::statvfs(mount.path()).unwrap();
        assert_eq!(system.f_namemax, 255);
        let is_zip = source.is_file();
        let bytes = is_zip.then(|| fs::metadata(source).unwrap().len());
        // The size of a directory source is unknown: zeros, instead of the values of the underlying disk.
        let blocks = bytes.unwrap_or(0).div_ceil(system.f_frsize);
        assert_eq!((system.f_blocks, system.f_bfree), (blocks, 0), "{source:?}");
        let percent = sh(&format!("df --output=pcent,ipcent {mnt} | tail -n 1"));
        let used: Vec<&str> = percent.split_whitespace().collect();
        assert_eq!(
            used,
            if is_zip { ["100%"; 2] } else { ["-"; 2] },
            "{source:?}"
        );
        assert!(
            system
                .f_flag
                .contains(rustix::fs::StatVfsMountFlags::RDONLY)
        );
    }
}

#[test]
fn g09_inode_numbers_are_stable_over_a_remount() {
    let dir = scratch();
    for source in both_kinds(dir.path(), &tree()) {
        let mount = Mount::new(&source);
        let root = fs::metadata(mount.path()).unwrap().ino();
        let before = inodes(mount.path());
        let distinct: BTreeSet<u64> = before.values().copied().chain([root]).collect();
        assert_eq!(
            distinct.len(),
            before.len() + 1,
            "two names of {source:?} have one number"
        );
        assert!(!distinct.contains(&0));
        drop(mount);

        // Looks the names up in another order, before any listing.
        let again = Mount::new(&source);
        for (name, number) in before.iter().rev() {
            assert_eq!(
                fs::metadata(again.join(name)).unwrap().ino(),
                *number,
                "{name:?} of {source:?}"
            );
        }
        assert_eq!(inodes(again.path()), before);
        assert_eq!(fs::metadata(again.path()).unwrap().ino(), root);
    }
}

#[test]
fn g09_inode_numbers_are_stable_after_forget() {
    if !is_root() {
        return skipped("needs root");
    }
    let dir = scratch();
    for source in both_kinds(dir.path(), &tree()) {
        let mount = Mount::new(&source);
        let before = inodes(mount.path());
        for _ in 0..3 {
            drop_caches();
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(inodes(mount.path()), before, "{source:?}");
        }
    }
}

#[test]
fn g09_files_of_two_file_systems_in_one_source_are_never_mixed_up() {
    if !is_root() {
        return skipped("needs root");
    }
    let source = scratch();
    // Each new tmpfs numbers its inodes from 1.
    let below = |name: &str| source.path().join(name);
    let _mounts = ["one", "two", "three"].map(|name| Extra::new("tmpfs", &below(name)));
    for name in ["one", "two", "three"] {
        fs::write(below(name).join("file"), name.repeat(1000)).unwrap();
    }
    let number = |path: &Path| fs::metadata(path).unwrap().ino();
    assert_eq!(
        number(&below("one/file")),
        number(&below("two/file")),
        "the test needs equal numbers"
    );

    let mount = Mount::of_keys(source.path(), &[]);
    for _ in 0..2 {
        for name in ["one", "two", "three"] {
            let content = read_uncached(&mount.join(name).join("file")).unwrap();
            assert!(
                content == name.repeat(1000).as_bytes(),
                "{name}/file has the bytes of another file"
            );
        }
    }
    let found = inodes(mount.path());
    assert_eq!(
        found.values().collect::<BTreeSet<_>>().len(),
        found.len(),
        "{found:?}"
    );
}
