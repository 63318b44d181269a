//! What seeds have found, with the least source and network that shows it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::content::{ARRAYS, Writer};
use super::mount;
use super::scenario::{Scenario, archive_options, options};
use crate::hierarchy::KEY_CLASSES;
use crate::runtime;
use crate::runtime::simulated::Simulation;
use crate::store::simulated::SimulatedServer;

/// With seed 415, each inner chunk requested the index of its shard and the document of its array again. On a slow
/// network, a read of all shards did not end before its deadline.
#[test]
fn inner_chunks_of_a_shard_share_its_index_and_one_check_of_the_document() {
    let array = ARRAYS[2];
    let mut most = 0;
    for seed in 0..10 {
        let simulation = Simulation::start(seed, None);
        let server = Arc::new(SimulatedServer::new(KEY_CLASSES, None));
        let writer = Writer::new(&server, false, false);
        let mut options = options();
        (options.ttl, options.absent_ttl) = (Duration::ZERO, Duration::ZERO);
        (options.parallel, options.timeout) = (1, Duration::from_secs(5));
        let scenario = Arc::new(Scenario::new(server, writer, options));
        simulation.settle(Duration::from_secs(60));
        let mounted = mount(&simulation, &scenario).unwrap();
        let world = Arc::clone(&mounted.world);
        world.is_calm.store(true, Ordering::Relaxed);
        let begun = simulation.trace().len();
        let own = Arc::clone(&world);
        let read = simulation.block_on(async move { own.read_view(array).await });
        assert!(read.is_ok(), "{:?}", world.broken.lock());
        let trace = simulation.trace();
        let shard = format!("  GET {} ", array.chunk_key(0));
        let of_shard = |line: &&String| line.contains(&shard) && !line.contains(": ");
        let reads = trace[begun..]
            .iter()
            .filter(|line| line.contains("read g/"));
        let requests = trace[begun..].iter().filter(of_shard).count();
        most = most.max(requests.div_ceil(reads.count()));
        drop((world, mounted));
    }
    // The index, and all inner chunks.
    assert_eq!(most, 2, "requests for one shard in one read");
}

/// With seed 12, two programs that read one shard of an archive requested its index and its inner chunks twice.
#[test]
fn readers_of_one_entry_of_an_archive_share_its_requests() {
    let array = ARRAYS[2];
    let mut requests = 0;
    for seed in 0..20 {
        let simulation = Simulation::start(seed, None);
        let server = Arc::new(SimulatedServer::new(KEY_CLASSES, None));
        let writer = Writer::new(&server, false, true);
        let mut scenario = Scenario::new(Arc::clone(&server), writer, options());
        let mut archive = archive_options();
        (archive.tail_bytes, archive.zip.verify) = (30, true);
        scenario.archive = Some(archive);
        let scenario = Arc::new(scenario);
        simulation.settle(Duration::from_secs(60));
        let mounted = mount(&simulation, &scenario).unwrap();
        let readers = (0..4).map(|_| {
            let own = Arc::clone(&mounted.world);
            runtime::spawn(async move {
                let view = own.read_view(array).await;
                let key = own.read_key(&array.chunk_key(0)).await;
                view.is_ok() && key.is_ok()
            })
        });
        for reader in readers.collect::<Vec<_>>() {
            assert!(simulation.block_on(reader), "seed {seed}");
        }
        assert_eq!(server.broken(), Vec::<String>::new(), "seed {seed}");
        let trace = simulation.trace();
        requests += trace.iter().filter(|line| line.contains("GET")).count();
        drop(mounted);
    }
    assert!(requests > 20 * 10, "only {requests} requests");
}
