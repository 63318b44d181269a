//! The commands on a bucket whose listings have more than one page.

use crate::faulty::{Fault, Server, on};
use crate::stores::*;
use crate::support::*;

const ARRAYS: usize = 12;
const CHUNKS: usize = 23;

/// Starts a bucket with a group of arrays, one of which has chunks, and pages of five names.
fn server() -> Server {
    let server = Server::s3("bucket");
    let dir = scratch();
    group(dir.path());
    let (shape, chunk_shape) = ([CHUNKS].into(), [1].into());
    let codecs = ["bytes"].into();
    for i in 0..ARRAYS {
        let array_dir = dir.path().join(format!("array{i:02}"));
        array(&array_dir, &shape, &regular(&chunk_shape), &codecs);
    }
    for i in 0..CHUNKS {
        write(dir.path().join(format!("array00/c/{i}")), [1]);
    }
    server.put_tree("s", dir.path());
    server.add(on("*").lists(), Fault::MostNames(5));
    server
}

fn run_on_bucket(server: &Server, command: &str, more: &[&str]) -> crate::place::CommandOutput {
    let endpoint = server.url();
    let options = ["--anonymous", "--endpoint-url", &endpoint, "--json"];
    run_on(command, "s3://bucket/s", &[&options, more].concat())
}

#[test]
fn check_reads_the_chunks_of_all_pages() {
    let server = server();
    let document = json_of(run_on_bucket(&server, "check", &[]).ok());
    let summary = &document["summary"];
    assert_eq!(summary["chunks"], CHUNKS, "{document}");
    assert_eq!(summary["arrays"], ARRAYS, "{document}");
    // Damages a chunk on the last page.
    server.put("s/array00/c/9", [1, 2]);
    assert_eq!(run_on_bucket(&server, "check", &[]).code, Some(1));
}

#[test]
fn info_counts_the_chunks_of_all_pages() {
    let info = json_of(run_on_bucket(&server(), "info", &["--path", "array00"]).ok());
    assert_eq!(info["chunks_present"], CHUNKS, "{info}");
}

#[test]
fn tree_has_the_arrays_of_all_pages() {
    let tree = json_of(run_on_bucket(&server(), "tree", &[]).ok());
    let nodes = tree["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), 1 + ARRAYS, "{tree}");
}
