//! The round trips that a program waits for, one after the other.

use std::fs;
use std::time::Duration;

use crate::servers::Remote;
use crate::support::faulty::Server;
use crate::support::*;

/// The time of each response. Two requests that begin at most half of it apart do not wait for each other.
const LATENCY: Duration = Duration::from_millis(400);
const KEYS: usize = 40;

/// Returns a consolidated group of version 2 with an array of many chunks.
fn served() -> tempfile::TempDir {
    let served = scratch();
    let array = served.path().join("many/x");
    fs::create_dir_all(&array).unwrap();
    let document = serde_json::json!({"zarr_format": 2, "shape": [KEYS * 1000], "chunks": [1000], "dtype": "|u1",
        "order": "C", "compressor": null, "filters": null, "fill_value": 0});
    let attributes = serde_json::json!({"units": "1"});
    let group = serde_json::json!({"zarr_format": 2});
    let all = serde_json::json!({"zarr_consolidated_format": 1, "metadata":
        {".zgroup": group, "x/.zarray": document, "x/.zattrs": attributes}});
    let root = served.path().join("many");
    fs::write(root.join(".zgroup"), group.to_string()).unwrap();
    fs::write(root.join(".zmetadata"), all.to_string()).unwrap();
    fs::write(array.join(".zarray"), document.to_string()).unwrap();
    fs::write(array.join(".zattrs"), attributes.to_string()).unwrap();
    for number in 0..KEYS {
        let byte = u8::try_from(number).unwrap() + 1;
        fs::write(array.join(number.to_string()), vec![byte; 1000]).unwrap();
    }
    served
}

/// Runs a command over the directory `DIR` of the array; returns the requests of each round trip.
fn round_trips(script: &str) -> Vec<Vec<String>> {
    let served = served();
    let server = Server::over(served.path());
    let mounted = Remote::new(server.url().trim_end_matches('/')).mount("many");
    server.set_latency(LATENCY);
    server.forget_requests();
    let directory = mounted.join("x").display().to_string();
    sh(&script.replace("DIR", &directory));
    let mut requests = server.requests();
    requests.sort_by_key(|request| request.began);
    let mut trips: Vec<Vec<String>> = Vec::new();
    let mut last = None;
    for request in requests {
        let name = format!("{} {}", request.method, request.key);
        match trips.last_mut() {
            Some(trip) if last.is_some_and(|at| request.began - at < LATENCY / 2) => {
                trip.push(name)
            }
            _ => trips.push(vec![name]),
        }
        last = Some(request.began);
    }
    mounted.unmount();
    trips
}

#[test]
fn tar_waits_for_the_documents_together_and_then_for_the_values() {
    let trips = round_trips("tar -C DIR -cf - . | wc -c");
    let mut documents = trips[0].clone();
    documents.sort();
    assert_eq!(documents, ["GET many/x/.zarray", "GET many/x/.zattrs"]);
    // The first values are read ahead at once, and the others while the program reads these.
    assert!(trips[1].len() >= 16 && trips.len() <= 4, "{trips:#?}");
    assert_eq!(trips.concat().len(), KEYS + 2, "{trips:#?}");
}

#[test]
fn attributes_of_all_keys_take_two_round_trips_after_a_listing() {
    let trips = round_trips("ls -la DIR | wc -l");
    assert_eq!(trips.len(), 2, "{trips:#?}");
    assert_eq!(trips.concat().len(), KEYS + 2, "{trips:#?}");
    let values = trips[1].iter().filter(|name| name.starts_with("GET"));
    assert!(values.count() <= 1, "{trips:#?}");
}

#[test]
fn rsync_waits_for_documents_then_attributes_then_values() {
    let trips =
        round_trips("copy=$(mktemp -d); rsync -a DIR $copy; diff -r DIR $copy/x; rm -r $copy");
    assert!(trips.len() <= 5, "{trips:#?}");
    // The lookup of the first value may fetch it.
    let requests = trips.concat().len();
    assert!(
        (2 * KEYS + 1..=2 * KEYS + 2).contains(&requests),
        "{trips:#?}"
    );
}

#[test]
fn a_program_that_lists_and_reads_one_document_causes_no_other_request_for_values() {
    let trips = round_trips("ls DIR > /dev/null; cat DIR/.zarray > /dev/null; sleep 1");
    let values = trips
        .concat()
        .into_iter()
        .filter(|name| !name.contains("/.z"));
    assert_eq!(values.count(), 0, "{trips:#?}");
    assert!(trips.concat().len() <= 2, "{trips:#?}");
}
