//! Deterministic simulation of a mount: programs that read it, other programs that change the source, and a network
//! and servers that fail and lie, all on one thread with a virtual clock.
//!
//! A seed decides everything. [`simulate`] opens a source of the simulated server as a mount does, sends the requests of
//! several programs as the FUSE session would, and ends with a calm time, in which nothing changes or fails. It checks
//! that
//!
//! - bytes are those of one version that was current within the time that caches may answer,
//! - a name is absent only if it was, and a listing has each name that was there all the time once,
//! - no request lasts longer than its deadline, and errors name its key,
//! - no two identical requests are in flight at once,
//! - permits, memory and single flights are free when nothing is requested, and nothing waits without end,
//! - all is read as it is after the failures.
//!
//! `ZARRFS_SIMULATION_SEEDS` is the number of seeds, and `ZARRFS_SIMULATION_SEED` runs one seed and prints its trace.

mod content;
mod program;
mod session;
mod view_read;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::array::{Engine, EngineOptions};
use crate::fs::{Fs, Policy};
use crate::hierarchy::{KEY_CLASSES, MetadataListingStore};
use crate::runtime;
use crate::runtime::simulated::{Mutation, Simulation, below, record};
use crate::store::simulated::{Faults, SimulatedServer, SimulatedSource};
use crate::store::{Key, ListingSupport, RemoteOptions, Store, Ttl};
use crate::sync::Mutex;
use crate::tree::{self, MountedTrees, MuxTree};
use crate::view::{Nodes, NodesOptions};
use content::Writer;
use program::World;
use session::Session;

/// The number of seeds in an ordinary run of all tests.
const DEFAULT_SEEDS: u64 = 200;
/// The lines of a trace that a failure shows.
const SHOWN_LINES: usize = 150;

/// A simulation that broke a rule.
#[derive(Debug)]
struct Failure {
    seed: u64,
    broken: Vec<String>,
}

/// A simulated mount.
struct Mount {
    source: SimulatedSource,
    engine: Arc<Engine>,
    fs: Arc<Fs>,
}

fn one_of<T: Copy>(values: &[T]) -> T {
    let number = usize::try_from(below(values.len() as u64)).expect("short");
    values[number]
}

fn options() -> RemoteOptions {
    let ttl = one_of(&[0, 1000, 5000]);
    RemoteOptions {
        timeout: Duration::from_secs(one_of(&[2, 5])),
        retries: one_of(&[0, 3, 10]),
        parallel: one_of(&[1, 2, 4, 16]),
        ttl: Duration::from_millis(ttl),
        absent_ttl: Duration::from_millis(ttl.min(1000)),
        memory_bytes: one_of(&[256 << 10, 1 << 20, 16 << 20]),
        ..RemoteOptions::default()
    }
}

async fn mount(server: &Arc<SimulatedServer>, options: &RemoteOptions) -> Result<Mount, String> {
    let source = server.open(options).await?;
    let mut store: Arc<dyn Store> = Arc::clone(&source.store);
    if store.capabilities().listing != ListingSupport::Complete {
        let listing = MetadataListingStore::new(store, options.ttl, options.absent_ttl);
        store = Arc::new(listing);
    }
    let engine = Engine::new(EngineOptions {
        cache_bytes: one_of(&[0, 400, 1 << 20]),
        memory_limit_bytes: 16 << 20,
        parallel: one_of(&[1, 4, 64]),
        timeout: options.timeout,
    });
    let engine = Arc::new(engine.map_err(|error| error.to_string())?);
    let root = Key::root();
    let failed = |error: crate::store::StoreError| error.to_string();
    let native = tree::native(Arc::clone(&store), &root)
        .await
        .map_err(failed)?;
    let nodes = Nodes::new(
        store,
        Arc::clone(&engine),
        NodesOptions {
            root: root.clone(),
            formats: "npy".parse().map_err(|_| "no formats")?,
            ttl: Ttl {
                present: options.ttl,
                absent: options.absent_ttl,
            },
            assume_wgs84: false,
        },
    );
    let tree = MuxTree::new(native, root, Arc::new(nodes), MountedTrees::Native, false);
    let tree = Box::new(tree.await.map_err(failed)?);
    let policy = Policy {
        ttl: options.ttl,
        absent_ttl: options.absent_ttl,
        uid: 0,
        gid: 0,
        umask: 0,
        local_io_threads: 1,
    };
    let fs = Fs::new(tree, policy).await;
    Ok(Mount {
        source,
        engine,
        fs: Arc::new(fs.map_err(|error| error.to_string())?),
    })
}

/// Runs the simulation of a seed. Returns the rules that were broken, and the trace.
fn simulate(seed: u64, mutation: Option<Mutation>) -> (Vec<String>, Vec<String>) {
    let simulation = Simulation::start(seed, mutation);
    let run = AssertUnwindSafe(|| run(&simulation));
    let broken = catch_unwind(run).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        vec![format!("panic: {}", text.unwrap_or_default())]
    });
    (broken, simulation.trace())
}

fn run(simulation: &Simulation) -> Vec<String> {
    let page_names = (below(2) == 0).then(|| one_of(&[3, 10, 1000]));
    let server = Arc::new(SimulatedServer::new(KEY_CLASSES, page_names));
    let writer = Arc::new(Writer::new(&server, page_names.is_none()));
    let options = options();
    record(format!("{page_names:?} {options:?}"));
    // The values of the first version are old.
    simulation.settle(Duration::from_secs(60));
    let own = (Arc::clone(&server), options.clone());
    let mounted = simulation.block_on(async move { mount(&own.0, &own.1).await });
    let Mount { source, engine, fs } = match mounted {
        Ok(mounted) => mounted,
        Err(error) => return vec![format!("the mount failed: {error}")],
    };
    let session = Session {
        fs,
        timeout: options.timeout,
    };
    let world = Arc::new(World {
        session,
        server: Arc::clone(&server),
        writer: Arc::clone(&writer),
        ttl: options.ttl,
        is_bucket: page_names.is_some(),
        is_calm: AtomicBool::new(false),
        broken: Mutex::default(),
    });
    server.set_faults(Faults::random(page_names.is_some()));
    run_programs(simulation, &world);

    server.set_faults(Faults::none());
    // Longer than each deadline, and than the time that any cache answers.
    simulation.settle(Duration::from_secs(60));
    let check_idle = |when: &str| {
        for used in source.in_use().into_iter().chain(engine.in_use()) {
            world.breaks(format!("{when}: in use: {used}"));
        }
        for request in server.in_flight() {
            world.breaks(format!("{when}: in flight: {request}"));
        }
    };
    check_idle("after the failures");
    world.is_calm.store(true, Ordering::Relaxed);
    if world.broken.lock().is_empty() {
        let own = Arc::clone(&world);
        simulation.block_on(async move { own.run_calm().await });
    }
    simulation.settle(Duration::from_secs(60));
    check_idle("at the end");
    let counts = world.session.fs.document();
    for name in ["handles", "directory_handles"] {
        if counts[name] != 0 {
            world.breaks(format!("{name}: {}", counts[name]));
        }
    }
    let mut broken = world.broken.lock().clone();
    broken.extend(server.broken());
    drop((world, source, engine));
    if !simulation.settle(Duration::from_secs(3600)) {
        broken.push("something waits for a timer after the unmount".into());
    }
    broken
}

/// Runs programs that read and change the source at the same time.
fn run_programs(simulation: &Simulation, world: &Arc<World>) {
    let mut programs = Vec::new();
    for _ in 0..1 + below(5) {
        let own = Arc::clone(world);
        programs.push(runtime::spawn(async move { own.run(4 + below(10)).await }));
    }
    let writer = Arc::clone(&world.writer);
    programs.push(runtime::spawn(async move { writer.run_hot().await }));
    let (writer, changes) = (Arc::clone(&world.writer), below(3) * below(10));
    programs.push(runtime::spawn(async move {
        if changes > 0 {
            writer.run(changes).await;
        }
    }));
    simulation.block_on(async move {
        for program in programs {
            program.await;
        }
    });
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{variable} is a number")),
    )
}

fn report(failures: &[Failure]) -> String {
    let Some(first) = failures.first() else {
        return String::new();
    };
    let (_, trace) = simulate(first.seed, None);
    let from = trace.len().saturating_sub(SHOWN_LINES);
    let all: Vec<String> = failures
        .iter()
        .map(|failure| format!("{}: {}", failure.seed, failure.broken.join("; ")))
        .collect();
    format!(
        "{} seeds fail:\n{}\n\nthe end of the trace of {} (all of it: ZARRFS_SIMULATION_SEED={}):\n{}",
        failures.len(),
        all.join("\n"),
        first.seed,
        first.seed,
        trace[from..].join("\n")
    )
}

/// Runs seeds on all cores; returns those that fail.
fn run_seeds(seeds: u64) -> Vec<Failure> {
    let (next, failures) = (AtomicU64::new(0), Mutex::<Vec<Failure>>::default());
    thread::scope(|scope| {
        for _ in 0..crate::machine::cores() {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds || failures.lock().len() >= 20 {
                        return;
                    }
                    if seed > 0 && seed % 10_000 == 0 {
                        println!("{seed} seeds");
                    }
                    let (broken, _) = simulate(seed, None);
                    if !broken.is_empty() {
                        println!("seed {seed}: {}", broken.join("; "));
                        failures.lock().push(Failure { seed, broken });
                    }
                }
            });
        }
    });
    let mut failures = failures.lock().drain(..).collect::<Vec<_>>();
    failures.sort_by_key(|failure| failure.seed);
    failures
}

#[test]
fn a_mount_keeps_its_promises_with_each_seed() {
    if let Some(seed) = number("ZARRFS_SIMULATION_SEED") {
        let (broken, trace) = simulate(seed, None);
        println!("{}", trace.join("\n"));
        assert!(broken.is_empty(), "seed {seed}: {}", broken.join("\n"));
        return;
    }
    let seeds = number("ZARRFS_SIMULATION_SEEDS").unwrap_or(DEFAULT_SEEDS);
    let failures = run_seeds(seeds);
    assert!(failures.is_empty(), "{}", report(&failures));
}

#[test]
fn a_seed_has_the_same_trace_each_time() {
    for seed in 0..20 {
        let (one, other) = (simulate(seed, None), simulate(seed, None));
        assert!(one.1.len() > 20, "seed {seed} does nothing");
        for (index, (line, again)) in one.1.iter().zip(&other.1).enumerate() {
            assert_eq!(line, again, "seed {seed}, line {index}");
        }
        assert_eq!(
            (one.0, one.1.len()),
            (other.0, other.1.len()),
            "seed {seed}"
        );
    }
}

/// Returns the first seed that finds a bug, of those of an ordinary run.
fn first_seed_that_finds(mutation: Mutation) -> Option<u64> {
    (0..DEFAULT_SEEDS).find(|seed| !simulate(*seed, Some(mutation)).0.is_empty())
}

#[test]
fn bugs_of_the_past_are_found_with_few_seeds() {
    for mutation in [
        Mutation::MixedVersions,
        Mutation::FirstPageOnly,
        Mutation::LeakedPermit,
    ] {
        let found = first_seed_that_finds(mutation);
        println!("{mutation:?} is found with seed {found:?}");
        assert!(found.is_some(), "{mutation:?} is not found");
    }
}
