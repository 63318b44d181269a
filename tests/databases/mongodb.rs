//! MongoDB: the store of zarr-python 2.18. These tests need the feature `mongodb`.
//!
//! The server is `tests/servers/mongodb.py`. PoloDB 5.3 (`cargo install polodb`), another server with MongoDB's
//! protocol, was tried with pymongo 4.6 and 4.20 and cannot take its place:
//! - Its replies have the length of the document in place of the flags, and pymongo refuses them.
//! - With flags that a test sets to zero, `ping`, `insert_one`, `find_one` and `$match` succeed. The reply to `find`
//!   has the request 0, so `find` of several documents fails, and with it `MongoDBStore`.
//! - `update` and `replaceOne` with `upsert`, with which `MongoDBStore` writes each key, want `updates` in the
//!   command and fail.
//! - `aggregate` refuses `$project`, with which zarrfs reads the keys. All databases are one.

use crate::support::*;

#[cfg(not(feature = "mongodb"))]
#[test]
fn a_hierarchy_of_mongodb_is_that_of_a_zip() {
    skipped("zarrfs is built without MongoDB: scripts/test --features mongodb");
}

#[cfg(feature = "mongodb")]
mod built {
    use std::fs;
    use std::time::Duration;

    use rustix::io::Errno;

    use super::*;
    use crate::hierarchies::{is_as_zip, served};
    use crate::servers::{MongoDb, Remote};
    use crate::{python, write};

    fn mount(source: &str, args: &[&str]) -> Mount {
        let remote = args
            .iter()
            .fold(Remote::new(""), |remote, arg| remote.arg(arg));
        let mounted = remote.attempt(source);
        mounted.unwrap_or_else(|e| panic!("{source}: {e:?}"))
    }

    fn fails_with<T: std::fmt::Debug>(result: std::io::Result<T>, expected: Errno) {
        assert_eq!(errno(result), expected.raw_os_error());
    }

    /// Runs a script in which `c` is the pymongo collection.
    fn change(mongodb: &MongoDb, script: &str) {
        let begin = format!(
            "import pymongo; c = pymongo.MongoClient(port={})['mongodb_zarr']['zarr_collection']",
            mongodb.port()
        );
        let mut command = std::process::Command::new(python());
        run(command.arg("-c").arg(format!("{begin}\n{script}")));
    }

    const SMALL: &str = "\
        c.insert_one({'key': '.zgroup', 'value': b'{\"zarr_format\": 2}'})\n\
        c.insert_one({'key': 'a/0', 'value': b'zero'})\n\
        c.insert_one({'key': 'a/0', 'value': b'another document'})\n\
        c.insert_one({'key': 'a/text', 'value': 'text'})\n\
        c.insert_one({'key': 'a/none'})\n\
        c.insert_one({'key': 17, 'value': b'x'})\n\
        c.insert_one({'value': b'of no key'})\n";

    #[test]
    fn a_hierarchy_of_mongodb_is_that_of_a_zip() {
        let (mongodb, scratch) = (MongoDb::start(&python(), &[]), scratch());
        let zip = scratch.path().join("h.zip");
        run(write().args(["mongodb", &mongodb.port()]).arg(&zip));
        let zip = served(Mount::new(&zip), false);
        let before = mongodb.commands().len();
        for place in ["", "/mongodb_zarr/zarr_collection"] {
            let url = mongodb.url(place);
            is_as_zip(mount(&url, &[]), &zip);
        }
        let commands = mongodb.commands().split_off(before);
        assert!(
            commands
                .iter()
                .all(|name| name == "aggregate" || name == "getMore")
        );
        let nothing = Remote::new("")
            .attempt(&mongodb.url("/other/c"))
            .unwrap_err();
        assert!(nothing.stderr.contains("no document"), "{nothing:?}");
    }

    #[test]
    fn a_document_without_a_binary_value_is_an_error_of_its_key() {
        let mongodb = MongoDb::start(&python(), &[]);
        change(&mongodb, SMALL);
        let mounted = mount(&mongodb.url(""), &["--ttl", "0"]);
        assert_eq!(fs::read(mounted.join("a/0")).unwrap(), b"zero");
        for name in ["a/text", "a/none"] {
            fails_with(fs::read(mounted.join(name)), Errno::IO);
            fails_with(fs::metadata(mounted.join(name)), Errno::IO);
        }
        let mut names: Vec<_> = fs::read_dir(mounted.join("a"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["0", "none", "text"]);
        fails_with(fs::read(mounted.join("a/absent")), Errno::NOENT);
        // Replaces a value by one of the same length, with the same `_id` and then with another.
        change(
            &mongodb,
            "c.replace_one({'key': 'a/0'}, {'key': 'a/0', 'value': b'same'})",
        );
        assert_eq!(fs::read(mounted.join("a/0")).unwrap(), b"same");
        change(
            &mongodb,
            "c.delete_many({'key': 'a/0'})\nc.insert_one({'key': 'a/0', 'value': b'next'})",
        );
        assert_eq!(fs::read(mounted.join("a/0")).unwrap(), b"next");
        mounted.unmount();
    }

    #[test]
    fn a_refusal_or_the_end_of_mongodb_is_an_error_and_never_absence() {
        let refusing = MongoDb::start(&python(), &["--refuse"]);
        let refused = Remote::new("").attempt(&refusing.url("")).unwrap_err();
        let output = &refused.stderr;
        assert!(
            output.contains("not authorized") && output.contains("MONGODB_PASSWORD"),
            "{output}"
        );
        // The second batch of the keys never arrives.
        let breaking = MongoDb::start(&python(), &["--break"]);
        change(&breaking, SMALL);
        change(
            &breaking,
            "c.insert_many([{'key': f'b/{n}', 'value': b'x'} for n in range(20_000)])",
        );
        let remote = Remote::new("").arg("--retries").arg("1");
        let broken = remote.attempt(&breaking.url("")).unwrap_err();
        assert!(!broken.stderr.contains("no document"), "{broken:?}");
        let ending = MongoDb::start(&python(), &[]);
        change(&ending, SMALL);
        let mounted = mount(&ending.url(""), &["--ttl", "0", "--timeout", "2s"]);
        assert_eq!(fs::read(mounted.join("a/0")).unwrap(), b"zero");
        drop(ending);
        let begun = std::time::Instant::now();
        for name in ["a/0", "a/absent"] {
            let error = fs::read(mounted.join(name)).unwrap_err();
            assert_ne!(error.kind(), std::io::ErrorKind::NotFound, "{name}");
        }
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "{:?}",
            begun.elapsed()
        );
        mounted.unmount();
    }
}
